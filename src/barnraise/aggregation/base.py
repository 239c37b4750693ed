"""What every aggregation rule is: which rows go on, and how a block of their columns becomes one row.

Two facts keep the rules small, fast and lean. What Krum, nearest-neighbour mixing and their kin choose depends on
inner products alone, so they see the Gram matrix [n, n] and answer with weights over the rows (`mix`). What trimmed
mean and median do, they do to each coordinate, so they see a block of columns at a time (`reduce`). No rule holds a
second copy of the updates, and a chain of rules reads them twice.

Blocks are of fixed width and reduced in index order: the result does not depend on the number of threads.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from barnraise.core.errors import InputError

from .catalog import CATALOG, require_member
from .gram import columns, gram_matrix

Array: TypeAlias = NDArray[Any]
BLOCK = 1 << 15  # columns


class Rule(ABC):
    """One rule. A subclass names itself as in the catalog and overrides `mix`, `reduce` or both."""

    name: ClassVar[str]
    uses_gram: bool = False

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.minimum: int = CATALOG.entry(self.name).declares.minimum(options)

    @property
    def weighted(self) -> bool:
        """Whether the weights given to the rule matter."""
        return bool(CATALOG.entry(self.name).declares.weighted)

    def __call__(self, updates: Tensor | Sequence[Tensor], weights: Sequence[float] | None = None) -> Tensor:
        """Aggregate n updates into one, on the CPU, leaving them as they are.

        `updates`: a floating tensor [n, d], or n tensors [d]. The result [d] is float64 for float64, else float32.
        `weights`: n numbers >= 0, for rules that declare `weighted`; the others count each update alike.
        NaN and infinity in at most f updates never reach the result of a rule that withstands f.
        OptionError for too few updates, InputError for ones that are no such tensors.
        """
        rows = _rows(updates)
        self.require(len(rows))
        shares = _shares(weights, len(rows)) if self.weighted else None
        gram = gram_matrix(rows) if self.uses_gram else None
        mixing = self.mix(gram, shares)
        out = np.empty(rows[0].numel(), np.float64 if rows[0].dtype == torch.float64 else np.float32)
        for start, block in _blocks(rows, mixing, out.dtype):
            self.reduce(block, out[start : start + block.shape[1]])
        return torch.from_numpy(out)

    def require(self, num_updates: int) -> None:
        """OptionError, with the limit and a remedy, when there are too few updates."""
        require_member(CATALOG.entry(self.name), self.options, num_updates)

    def mix(self, gram: Array | None, shares: Array | None) -> Array | None:
        """Weights [m, n] of the n updates in each of the m rows that go on to `reduce`; None for the updates as such.

        `gram` [n, n] float64 when the rule `uses_gram`; `shares` [n] float64, summing to 1, when it is weighted.
        """
        return None

    def reduce(self, block: Array, out: Array) -> None:
        """Reduce `block` [m, c], which is scratch, into `out` [c]. By default m is 1."""
        assert block.shape[0] == 1
        out[:] = block[0]


def mean_rows(rows: Sequence[Array] | Array, out: Array) -> None:
    """The mean of m rows [c] into `out` [c], summed in order."""
    out[:] = rows[0]
    for row in rows[1:]:
        out += row
    if len(rows) > 1:
        out /= len(rows)


def _rows(updates: Tensor | Sequence[Tensor]) -> list[Tensor]:
    if isinstance(updates, Tensor) and updates.ndim != 2:
        raise InputError(f"updates must be a tensor [n, d], got shape {list(updates.shape)}")
    rows = [row.detach() for row in updates]
    if not rows:
        raise InputError("there are no updates to aggregate")
    if any(row.shape != rows[0].shape or row.ndim != 1 for row in rows):
        raise InputError(f"updates must be vectors of one length, got shapes {sorted({tuple(r.shape) for r in rows})}")
    if any(row.dtype != rows[0].dtype or not row.dtype.is_floating_point for row in rows):
        raise InputError(f"updates must be of one floating type, got {sorted({str(row.dtype) for row in rows})}")
    return rows


def _shares(weights: Sequence[float] | None, num_updates: int) -> Array:
    given = np.ones(num_updates) if weights is None else np.array([float(w) for w in weights])
    if given.shape != (num_updates,) or not np.isfinite(given).all() or (given < 0).any() or not given.any():
        raise InputError(f"weights must be {num_updates} finite numbers >= 0, not all 0, got {given.tolist()}")
    shares: Array = given / given.sum()
    return shares


def _blocks(rows: list[Tensor], mixing: Array | None, dtype: np.dtype[Any]) -> Iterator[tuple[int, Array]]:
    """Blocks [m, c] of the mixed rows, each with its first column. The memory is reused.

    A row of weight zero is not read: zero times infinity is no number.
    """
    if mixing is None:
        mixing = np.eye(len(rows))
    used = np.flatnonzero(mixing.any(axis=0))
    rows, weights = [rows[i] for i in used], mixing[:, used].astype(dtype)
    selected = _selection(weights)
    size = rows[0].numel()
    scratch = np.empty((max(len(rows), 2), min(BLOCK, size)), dtype)
    for start in range(0, size, BLOCK):
        block = scratch[:, : size - start]
        if selected is None and len(weights) == 1:
            yield start, _weighted_sum(rows, weights[0], start, block)
            continue
        block = block[: len(rows)]
        for target, row in zip(block, rows, strict=True):
            target[:] = columns(row, start, block.shape[1])
        yield start, block[selected] if selected is not None else _product(weights, block)


def _selection(weights: Array) -> list[int] | slice | None:
    """Which row each row of `weights` takes with weight 1; None when it mixes."""
    if not ((weights == 1).sum(axis=1) == 1).all() or (weights != 0).sum() != len(weights):
        return None
    chosen = weights.argmax(axis=1).tolist()
    return slice(None) if chosen == list(range(weights.shape[1])) else chosen


def _weighted_sum(rows: list[Tensor], weights: Array, start: int, scratch: Array) -> Array:
    """One mixed row [1, c], summed in order, which a matrix product would not promise."""
    total, term = scratch[0], scratch[1]
    np.multiply(columns(rows[0], start, total.size), weights[0], out=total)
    for row, weight in zip(rows[1:], weights[1:], strict=True):
        np.multiply(columns(row, start, total.size), weight, out=term)
        total += term
    return scratch[:1]


def _product(weights: Array, block: Array) -> Array:
    """The mixed rows [m, c]: einsum sums in one order, where a matrix product's hangs on the number of threads."""
    product: Array = np.einsum("ij,jk->ik", weights, block)
    return product
