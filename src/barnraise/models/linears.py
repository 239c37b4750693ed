"""The linear layers of a model's blocks, beside which an adapter can be put.

Torch-free for the architectures of `ARCHITECTURES`; others are built without storage. Embeddings and the output layer
are not among them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barnraise.core.errors import ModelError, nearest
from barnraise.models.architectures import ARCHITECTURES
from barnraise.models.config import lookup
from barnraise.models.generic import linear_layers

ALL = "all-linear"
"""The name of all of them, as users of peft know it."""

_OUTSIDE = frozenset({"wte", "wpe", "embed_tokens", "embed_positions", "word_embeddings", "lm_head"})
"""Last names of modules with a matrix that are no linear layers of a block."""

TRANSPOSED = frozenset({"gpt2"})
"""Architectures whose linear layers keep their matrix as [inputs, outputs]."""


@dataclass(frozen=True)
class Linear:
    """A linear layer: the name of its module, and its widths."""

    name: str
    inputs: int
    outputs: int

    @property
    def last_name(self) -> str:
        """Return the last part of its name.

        >>> Linear("model.layers.0.self_attn.q_proj", 4, 4).last_name
        'q_proj'
        """
        return self.name.rpartition(".")[2]


def linears(config: Mapping[str, Any]) -> list[Linear]:
    """Return the linear layers of a whole config's blocks, in the order of `named_parameters()`."""
    kind = config["model_type"]
    if kind not in ARCHITECTURES:
        return [Linear(*layer) for layer in linear_layers(json.dumps(config))]
    return list(_known(lookup(kind).shapes(config), kind in TRANSPOSED))


def _known(shapes: Iterable[tuple[str, tuple[int, ...]]], transposed: bool) -> Iterator[Linear]:
    for name, shape in shapes:
        module, _, parameter = name.rpartition(".")
        if parameter == "weight" and len(shape) == 2 and module.rpartition(".")[2] not in _OUTSIDE:
            inputs, outputs = shape if transposed else shape[::-1]
            yield Linear(module, inputs, outputs)


def targeted(config: Mapping[str, Any], targets: Sequence[str]) -> list[Linear]:
    """Return the linear layers with these last names, or all for `ALL`; ModelError when a name is of no layer."""
    layers = linears(config)
    names = {layer.last_name: None for layer in layers}
    for target in targets:
        if target != ALL and target not in names:
            close = nearest(target, names)
            hint = f"; did you mean '{close}'?" if close else ""
            raise ModelError(
                f"adapter target '{target}' names no linear layer of a {config['model_type']}{hint} "
                f"(it has: {', '.join(names) or 'none'}; or all of them: {ALL})"
            )
    return [layer for layer in layers if ALL in targets or layer.last_name in targets]
