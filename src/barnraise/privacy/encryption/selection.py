"""The parameters that travel encrypted: those that tell tokens by themselves, then the most sensitive of the rest.

The gradient of an input embedding has a row for each token that occurs. The first layer's query, key and value
projections read the embeddings directly, so their gradients span the same tokens (DAGER, Petrov et al. 2024,
arXiv 2405.15586, section 4). An output layer's gradient tells the labels. Each of them leaks without the others, so all
are encrypted. How much the rest tells is measured: the sensitivity of a value is how much its gradient changes when the
tokens change (FedML-HE, Jin et al. 2023, arXiv 2303.10837, section 2.4).

A selection of a full model stops these attacks, not all: a later layer's input at the first position depends on the
first token alone, so a host can try each token there (`benchmarks/encryption.py` does). Only all that travels is safe,
which adapters make small.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from barnraise.core.errors import InputError
from barnraise.core.ranges import joined, size
from barnraise.core.types import ParameterRange, Ranges
from barnraise.models.exchange.layout import Layout

Gradient: TypeAlias = npt.NDArray[np.floating]

GRAIN = 256
"""Neighbouring values that are chosen together: fewer ranges, and a mean is less noisy than one value."""

EMBEDDINGS = frozenset(
    {"wte", "embed_tokens", "embed_in", "word_embeddings", "tok_embeddings", "shared", "lm_head", "embed_out"}
)
"""Names of modules whose gradient has a row for each token: input embeddings and output layers."""

READERS = frozenset(
    {"q_proj", "k_proj", "v_proj", "query", "key", "value", "c_attn", "qkv_proj", "query_key_value", "Wqkv"}
)
"""Names of the projections that read a layer's input; in the first layer that is the embeddings."""


def tells_tokens(name: str) -> bool:
    """Return whether the gradient of the tensor of this name tells tokens by itself.

    >>> [tells_tokens(f"transformer.h.{layer}.attn.c_attn.weight") for layer in (0, 1)]
    [True, False]
    """
    path = name.split(".")
    if EMBEDDINGS.intersection(path):
        return True
    layer = next((part for part in path if part.isdecimal()), "")
    return layer == "0" and bool(READERS.intersection(path))


def sensitivities(pairs: Iterable[tuple[Gradient, Gradient]]) -> npt.NDArray[np.float64]:
    """Return for each value the mean change of its gradient between two batches of other tokens.

    Each pair has two gradients of the same parameters. Raises InputError for no pair, and for numbers that are no
    numbers.
    """
    total: npt.NDArray[np.float64] | None = None
    count = 0
    for first, second in pairs:
        change = np.abs(first.astype(np.float64) - second.astype(np.float64))
        total = change if total is None else total + change
        count += 1
    if total is None:
        raise InputError("a map of sensitivities needs the gradients of at least one pair of batches; give one or more")
    if not np.isfinite(total).all():
        raise InputError("a gradient of the map of sensitivities is infinite or no number; lower the learning rate")
    return total / count


def choose(layout: Layout, measured: npt.NDArray[np.float64], share: float) -> Ranges:
    """Return the ranges of the flat vector that travel encrypted, at most `share` of its values (0 to 1).

    All tensors that tell tokens come first, then runs of `GRAIN` values in the order of their mean sensitivity. Equal
    means go by place, so the result depends on the arguments only. Raises InputError when the share cannot hold the
    tensors that tell tokens.
    """
    if not 0 < share <= 1:
        raise InputError(f"the share of encrypted values is {share}, must be above 0 and at most 1; change it")
    if measured.shape != (layout.size,) or not np.isfinite(measured).all() or (measured < 0).any():
        raise InputError(
            f"a map of {measured.size} sensitivities for {layout.size} values, or one below 0 or not finite; "
            "measure it for this model"
        )
    room = math.floor(share * layout.size + 1e-6)  # the product of a share and a size may be a hair less
    always = [ParameterRange(leaf.offset, leaf.offset + leaf.size) for leaf in layout.leaves if tells_tokens(leaf.name)]
    needed = sum(stop - start for start, stop in always)
    if needed > room:
        raise InputError(
            f"the tensors that tell tokens have {needed} of {layout.size} values ({needed / layout.size:.1%}), but the "
            f"share is {share:.1%}; raise it to {needed / layout.size + 0.001:.3f}, or train adapters only"
        )
    return joined([*always, *_most_sensitive(measured, always, room - needed)])


def _most_sensitive(
    measured: npt.NDArray[np.float64], always: list[ParameterRange], room: int
) -> Iterable[ParameterRange]:
    """Yield runs of `GRAIN` values outside of `always`, the most sensitive first, until `room` values are full."""
    free = np.ones(measured.size, dtype=bool)
    for start, stop in always:
        free[start:stop] = False
    starts = np.arange(0, measured.size, GRAIN)
    means = np.add.reduceat(np.where(free, measured, 0.0), starts) / np.maximum(np.add.reduceat(free, starts), 1)
    for number in np.argsort(-means, kind="stable"):
        start = int(starts[number])
        for piece in _runs(free, start, min(start + GRAIN, measured.size)):
            if room <= 0:
                return
            taken = ParameterRange(piece.start, min(piece.stop, piece.start + room))
            room -= taken.stop - taken.start
            yield taken


def _runs(free: npt.NDArray[np.bool_], start: int, stop: int) -> Iterable[ParameterRange]:
    """Yield the runs of free values in [start, stop)."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], free[start:stop].view(np.int8), [0]))))
    for first, last in edges.reshape(-1, 2):
        yield ParameterRange(start + int(first), start + int(last))


def share_of(ranges: Ranges, layout: Layout) -> float:
    """Return which part of a layout's values the ranges cover."""
    return size(ranges) / layout.size
