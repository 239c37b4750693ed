"""The base of aggregation rules: which rows are kept, and how a block of their columns becomes one row.

Two facts keep the rules small, fast and lean. Krum, nearest-neighbour mixing and similar rules depend on inner products
alone, so they get the Gram matrix [n, n] and return weights over the rows (`mix`). Trimmed mean and median work on each
coordinate, so they get a block of columns at a time (`reduce`). So no rule needs the updates as a whole: they are read
span by span, twice where a rule uses inner products.

A rule that needs more than the updates gets their `Context`: their nodes, their ages, and vectors kept from earlier
versions. Kept vectors are rows, too, behind the updates.

Columns are reduced each for itself, mixed in tiles that begin at fixed ones, and inner products summed in index order:
the result depends neither on the spans nor on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from barnraise.core.errors import InputError
from barnraise.core.threads import Crew, spans

from .catalog import CATALOG, Inputs, inputs, require_members
from .context import Context
from .gram import Read, columns, gram_matrix, one_thread
from .shares import Member, fewest

Array: TypeAlias = NDArray[Any]
_BLOCK = 1 << 15  # columns that are reduced at a time; fewer for many rows
_ELEMENTS = 1 << 20  # elements of rows in a block, or one tile of them
_TILE = 1 << 12  # columns that are mixed at a time; _BLOCK is a multiple, as the place in a tile affects the last bits
_PRODUCTS = 8  # products in a tile, so that threads share products, and never a sum
_ROWS = 8  # rows are padded to a multiple of four, or the last bits would depend on the number of threads
_FLOAT32 = np.dtype(np.float32)
_AS_THEY_ARE = (torch.float32, torch.float64)


class Rule:
    """Base class of aggregation rules.

    A subclass names itself as in the catalog and overrides `mix`, `reduce` or both.
    """

    name: ClassVar[str]
    uses_gram: bool = False

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.entry = CATALOG.entry(self.name)

    @property
    def parts(self) -> Sequence[Member]:
        """Return the members of a chain, or the rule itself."""
        return [(self.entry, self.options)]

    @property
    def minimum(self) -> int:
        """Return the fewest updates that it takes."""
        return fewest(self.parts)

    @property
    def weighted(self) -> bool:
        """Return whether the rule uses the weights given to it."""
        return bool(self.entry.declares.weighted)

    @property
    def needs(self) -> Inputs:
        """Return whether the rule needs the updates as rows, or can work from their weighted sum."""
        return inputs(self.parts)

    @property
    def keeps(self) -> tuple[str, ...]:
        """Return the vectors that it keeps from version to version, as declared."""
        return tuple(self.entry.declares.keeps)

    def __call__(
        self,
        updates: Tensor | Sequence[Tensor],
        weights: Sequence[float] | None = None,
        context: Context | None = None,
    ) -> Tensor:
        """Aggregate n updates into one, on the CPU, without changing them.

        `updates`: a floating tensor [n, d], or n tensors [d]. The result [d] is float64 for float64, else float32.
        `weights`: n numbers >= 0, for rules that declare `weighted`; the others count each update alike. `context`:
        metadata of the updates; without it they are those of a first version. NaN and infinity in at most f updates
        never reach the result of a rule that withstands f. OptionError for too few updates, InputError for invalid
        tensors.
        """
        rows = _rows(updates)
        out = np.empty(rows[0].numel(), np.float64 if rows[0].dtype == torch.float64 else np.float32)

        plain = {place: row.numpy() for place, row in enumerate(rows) if row.is_cpu and row.dtype in _AS_THEY_ARE}

        def read(row: int, start: int, out: Array) -> None:
            there = plain.get(row)
            out[:] = columns(rows[row], start, out.size) if there is None else there[start : start + out.size]

        combination = Combination(self, read, len(rows), out.size, weights, dtype=out.dtype, context=context)
        for span in spans(out.size):
            combination.into(span.start, out[span])
        return torch.from_numpy(out)

    def require(self, num_updates: int) -> None:
        """Raise OptionError, with the limit and a remedy, when there are too few updates."""
        require_members(self.parts, num_updates)

    def among(self, num_updates: int) -> Rule:
        """Return the rule for `num_updates` updates, with options given as a share turned into whole numbers."""
        return self

    def mix(self, gram: Array | None, shares: Array | None) -> Array | None:
        """Return weights [m, n] of the n updates in each of the m rows for `reduce`; None leaves them unmixed.

        `gram` [n, n] float64 when the rule `uses_gram`; `shares` [n] float64, summing to 1, when it is weighted.
        """
        return None

    def mix_knowing(self, gram: Array | None, shares: Array | None, context: Context) -> Array | None:
        """Run `mix` for a rule that uses the context.

        The rows are the n updates and, behind them, the k vectors that it keeps (`gram` [n+k, n+k], weights [m, n+k]).
        """
        return self.mix(gram, shares)

    def keep(self, context: Context, read: Callable[[int, Array], None], out: Array) -> None:
        """Write the spans [c] of the vectors that the rule keeps to the context's `kept`.

        `out` [c] is the span of the version's aggregate; `read` reads that span of an update, as received, into an
        array [c].
        """

    def bound_kept(self, largest: Array, out: float) -> float:
        """Return an upper bound of the elements that the rule keeps.

        No element of a row is larger than its `largest` [n+k], and no element of the result is larger than `out`.
        """
        return out

    def reduce(self, block: Array, out: Array) -> None:
        """Reduce `block` [m, c], which is scratch, into `out` [c].

        By default m is 1.
        """
        assert block.shape[0] == 1
        out[:] = block[0]

    def bound(self, largest: Array) -> float:
        """Return an upper bound of all numbers in `reduce`, for rows with elements up to `largest` [m]."""
        assert len(largest) == 1
        return float(largest[0])


class Combination:
    """The aggregate of n updates [size] by `rule`, span by span; the mixing weights are fixed by then.

    `read` gives spans of updates, float32 or of another `dtype`. The `crew` takes the inner products. OptionError for
    too few updates, InputError for invalid `weights`.
    """

    def __init__(
        self,
        rule: Rule,
        read: Read,
        num_updates: int,
        size: int,
        weights: Sequence[float] | None,
        *,
        dtype: np.dtype[Any] = _FLOAT32,
        crew: Crew | None = None,
        context: Context | None = None,
    ) -> None:
        rule.require(num_updates)
        rule = rule.among(num_updates)
        context = context or Context.first(rule.keeps, num_updates, size, dtype)
        context = replace(context, fresh=frozenset(name for name, kept in context.kept.items() if not kept.any()))
        self._rule, self._dtype, self._context, self.kept = rule, dtype, context, context.kept
        self._read = _with(read, num_updates, list(context.kept.values())) if context.kept else read
        num_rows = num_updates + len(context.kept)
        shares = _shares(weights, num_updates) if rule.weighted else None
        gram = gram_matrix(self._read, num_rows, size, dtype, crew) if rule.uses_gram else None
        mixing = rule.mix_knowing(gram, shares, context)
        if mixing is None:
            mixing = np.eye(num_updates, num_rows)
        # other rows are not read: zero times infinity is NaN
        self._used = np.flatnonzero(mixing.any(axis=0)).tolist()
        self._shares = mixing[:, self._used]
        self._weights = self._shares.astype(dtype)
        self._taken = _taken(self._weights)
        # most weights are 0: skipping them is quicker, and non-finite rows do not spread
        many = 2 * np.count_nonzero(self._weights) > self._weights.size
        self._dense = many and self._taken is None and len(self._weights) > 1
        if self._dense:
            self._weights = np.pad(self._weights, [(0, -length % _ROWS) for length in self._weights.shape])

    def bound(self, largest: Array) -> float:
        """Return an upper bound of all intermediate results, for rows with elements up to their `largest` [n+k]."""
        with np.errstate(invalid="ignore"):
            mixed = np.abs(self._shares) @ largest[self._used]
        return self._rule.bound(np.nan_to_num(mixed, nan=np.inf))

    def bounds(self, largest: Array) -> tuple[float, float]:
        """Return `bound`, and the bound of the vectors that the rule keeps."""
        out = self.bound(largest)
        return out, self._rule.bound_kept(largest, out) if self.kept else 0.0

    def into(self, start: int, out: Array) -> None:
        """Write the elements from `start` on into `out`.

        Any thread may ask for any span, but only once where the rule keeps vectors, which change with it.
        """
        self._combine(start, out)
        if self.kept:
            kept = {name: vector[start : start + out.size] for name, vector in self.kept.items()}
            self._rule.keep(replace(self._context, kept=kept), lambda row, values: self._read(row, start, values), out)

    def _combine(self, start: int, out: Array) -> None:
        if len(self._weights) == 1:
            self._rule.reduce(self._weighted_sum(start, out.size), out)
            return
        begin, stop = start - start % _TILE if self._dense else start, start + out.size
        num_mixed, num_rows = (0, len(self._used)) if self._taken else self._weights.shape
        length = max(min(_BLOCK, _ELEMENTS // num_rows) // _TILE, 1) * _TILE
        width = min(length, -(-(stop - begin) // _TILE) * _TILE)
        scratch, mixed = np.zeros((num_rows, width), self._dtype), np.empty((num_mixed, width), self._dtype)
        for first in range(begin, stop, width):
            last, lead = min(first + width, stop), max(start - first, 0)
            block = scratch[: len(self._used), : last - first]
            for row, values in zip(self._used, block, strict=True):
                self._read(row, first, values)
            if self._taken is not None:
                rows = _scaled(block, self._taken)
            else:
                (_multiply if self._dense else _add_up)(self._weights, scratch, mixed, last - first)
                rows = mixed[: len(self._shares), : last - first]
            self._rule.reduce(rows[:, lead:], out[first + lead - start : last - start])

    def _weighted_sum(self, start: int, width: int) -> Array:
        """Sum the one mixed row [1, c] in order, which a matrix product would not promise."""
        total, term = np.zeros((1, width), self._dtype), np.empty(width, self._dtype)
        for number, (row, weight) in enumerate(zip(self._used, self._weights[0], strict=True)):
            self._read(row, start, term if number else total[0])
            if number:
                term *= weight
                total += term
            else:
                total *= weight
        return total


def _with(read: Read, num_updates: int, kept: Sequence[Array]) -> Read:
    """Return a reader with the vectors `kept` as rows behind the updates."""

    def both(row: int, start: int, out: Array) -> None:
        if row < num_updates:
            read(row, start, out)
        else:
            out[:] = kept[row - num_updates][start : start + out.size]

    return both


def mean_rows(rows: Sequence[Array] | Array, out: Array) -> None:
    """Write the mean of m rows [c], summed in order, into `out` [c]."""
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


def _taken(weights: Array) -> tuple[Any, Array | None] | None:
    """Return the row that each row of `weights` takes, and factors [m, 1] if any is not 1.

    None when a row takes several.
    """
    if not weights.size or (np.count_nonzero(weights, axis=1) > 1).any():
        return None
    rows = np.abs(weights).argmax(axis=1).tolist()
    factors = weights.sum(axis=1, keepdims=True)
    all_in_order = rows == list(range(weights.shape[1]))
    return slice(None) if all_in_order else rows, None if (factors == 1).all() else factors


def _scaled(block: Array, taken: tuple[Any, Array | None]) -> Array:
    rows, factors = taken
    found: Array = block[rows]
    if factors is not None:
        found *= factors  # scratch memory, like the block
    return found


def _multiply(weights: Array, block: Array, out: Array, width: int) -> None:
    """Write the product [m, n] [n, c] into `out` [m, c], `width` columns and the rest of their last tile."""
    width = -(-width // _TILE) * _TILE
    tiles, target = (
        torch.from_numpy(each[:, :width]).view(len(each), -1, _TILE // _PRODUCTS).transpose(0, 1)
        for each in (block, out)
    )
    with one_thread():
        torch.bmm(torch.from_numpy(weights).expand(len(tiles), -1, -1), tiles, out=target)


def _add_up(weights: Array, block: Array, out: Array, width: int) -> None:
    """Write the same product without the weights that are 0."""
    term = np.empty_like(block[0, :width])
    for row, total in zip(weights, out[:, :width], strict=True):
        total[:] = 0
        for place in np.flatnonzero(row):
            np.multiply(block[place, :width], row[place], out=term)
            total += term
