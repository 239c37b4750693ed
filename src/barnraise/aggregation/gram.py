"""Inner products of updates, and the geometry that robust rules read from them.

Products accumulate in float64. In float32 a common part 1000 times the differences drowns the distances, and the
usual cure, centring on the mean, lets one row of 1e8 ruin them all; in float64 the products of honest rows are good to
1e-10 of their distances at that ratio without any centre, and an attacker's row touches its own distances only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from barnraise.core.threads import Crew

Array: TypeAlias = NDArray[Any]
Read: TypeAlias = Callable[[int, int, Array], None]
"""(i, start, out): the elements of update i from `start` on into `out`."""

_CHUNK = 1 << 18  # columns of a partial sum
_BLOCK = 1 << 15  # columns converted at a time
_DEPTH = 1 << 10  # columns a product: too short for the library to split the sum among threads


def gram_matrix(read: Read, n: int, size: int, dtype: np.dtype[Any], crew: Crew | None = None) -> Array:
    """X X^T [n, n] in float64, symmetric, of n vectors [size]; NaN or infinite where a row is not finite.

    The sum of the sums over fixed chunks, in index order.
    """

    def chunk_sum(chunk: int) -> Array:
        total, block = torch.zeros(n, n, dtype=torch.float64), np.empty((n, _BLOCK), dtype)
        for start in range(chunk, min(chunk + _CHUNK, size), _BLOCK):
            width = min(_BLOCK, size - start)
            for row in range(n):
                read(row, start, block[row, :width])
            block[:, width:] = 0
            factors = torch.from_numpy(block.astype(np.float64)).view(n, -1, _DEPTH).transpose(0, 1)
            total += torch.bmm(factors, factors.mT).sum(0)
        return total.numpy()

    return _symmetric(sum((crew or Crew()).each(chunk_sum, range(0, size, _CHUNK)), np.zeros((n, n))))


def columns(row: Tensor, start: int, width: int) -> Array:
    """`width` columns of a row from `start` on, as float64 if they are, else as float32; not to be written to."""
    found = row[start : start + width]
    if found.dtype not in (torch.float32, torch.float64):
        found = found.float()
    array: Array = found.cpu().numpy()
    return array


def finite_rows(gram: Array) -> Array:
    """Which updates [n] are finite (and small enough to square)."""
    finite: Array = np.isfinite(np.diagonal(gram))
    return finite


def squared_distances(gram: Array) -> Array:
    """||x_i - x_j||^2 [n, n]; infinite to and from every update that is not finite, itself included."""
    finite = finite_rows(gram)
    both = np.outer(finite, finite)
    gram = np.where(both, gram, 0.0)
    squares = np.diagonal(gram)
    distances: Array = np.maximum(squares[:, None] + squares[None, :] - 2 * gram, 0.0)
    np.fill_diagonal(distances, 0.0)
    distances[~both] = np.inf
    return distances


def mixed_gram(mixing: Array, gram: Array) -> Array:
    """The Gram matrix W G W^T of mixed rows W X, with `mixing` W [m, n]; NaN where a row that is not finite enters."""
    finite = finite_rows(gram)
    gram = np.where(np.outer(finite, finite), gram, 0.0)
    # einsum, not matmul: it sums in one order whatever the number of threads
    product = _symmetric(np.einsum("ij,kj->ik", np.einsum("ij,jk->ik", mixing, gram), mixing))
    spoiled = mixing[:, ~finite].any(axis=1)
    product[spoiled, :] = np.nan
    product[:, spoiled] = np.nan
    return product


def _symmetric(square: Array) -> Array:
    """Its upper triangle twice: rounding may differ below, and pairs of equal distance must tie."""
    upper: Array = np.triu(square)
    return upper + np.triu(square, 1).T
