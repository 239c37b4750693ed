"""Inner products of updates, and the geometry that robust rules read from them.

Products of float32 are taken in float32, which is three times as quick, over a few hundred columns, and these add up in
float64: accurate to 1e-6 of two updates' lengths. That is negligible for distances of unlike updates, but a common part
1000 times the differences drowns it. So each block of columns is checked: where distances cancel in its products, they
are taken again of the differences from one of the updates, and where that is not enough, in float64, which needs no
centre. The usual remedy, centring on the mean, lets one row of 1e8 ruin all distances; a centre here is one that passed
the check, and an attacker's input costs time at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
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
_BLOCK = 1 << 20  # elements of updates that are read at a time
_DEPTH = 1 << 9  # columns of a product
_TOGETHER = 1 << 12  # columns of products at a time, so that threads share products, and never a sum
_ROWS = 8  # rows that the library multiplies quickly; others are multiplied alone
_CANCELLED = 1 / 16  # remainder of two squares below which a distance is inaccurate
_TINY = 1e-27  # a square below which products may underflow in float32


def gram_matrix(read: Read, n: int, size: int, dtype: np.dtype[Any], crew: Crew | None = None) -> Array:
    """Return X X^T [n, n] in float64, symmetric, of n vectors [size]; NaN or infinite where a row is not finite.

    The sum of the sums over fixed chunks, in index order.
    """
    length = max(min(_BLOCK // n, _CHUNK) // _TOGETHER, 1) * _TOGETHER

    def chunk_sum(chunk: int) -> Array:
        total, block, way = np.zeros((n, n)), np.empty((n, min(length, size)), dtype), 0
        for start in range(chunk, min(chunk + _CHUNK, size), length):
            part = block[:, : size - start]
            for row, values in enumerate(part):
                read(row, start, values)
            products, way = _products(part, way)  # the block before needed at least this
            total += products
        return total

    with np.errstate(over="ignore", invalid="ignore"):
        return _symmetric(sum((crew or Crew()).each(chunk_sum, range(0, size, _CHUNK)), np.zeros((n, n))))


def _plain(block: Array) -> Array | None:
    """Return X X^T of some columns [n, c] in float32; None where that is too inaccurate."""
    if block.dtype != np.float32 or block.shape[1] % _DEPTH:
        return None  # the few columns behind the last whole block do not average errors out
    gram = _summed(block)
    return gram if _serve(gram, gram, block) else None


def _centred(block: Array) -> Array | None:
    """Return the same of the differences from the row of median length."""
    if block.dtype != np.float32 or block.shape[1] % _DEPTH:
        return None
    centre = int(np.argsort(np.einsum("ij,ij->i", block, block), kind="stable")[len(block) // 2])
    moved = block - block[centre]
    moved[centre] = block[centre]  # instead of zeros
    back = np.eye(len(block))
    back[:, centre] = 1.0
    products = _summed(moved)
    gram = mixed_gram(back, products)
    products[centre, centre], moved[centre] = 0.0, 0.0
    return gram if _serve(gram, products, moved) else None


def _exact(block: Array) -> Array | None:
    return _summed(block.astype(np.float64))


_WAYS: Sequence[Callable[[Array], Array | None]] = (_plain, _centred, _exact)


def _products(block: Array, way: int) -> tuple[Array, int]:
    """Return X X^T of some columns by the first accurate method, from number `way` on, and the method's number."""
    while (products := _WAYS[way](block)) is None:
        way += 1
    return products, way


def _summed(block: Array) -> Array:
    n, width = block.shape
    if width % _TOGETHER:
        block = np.pad(block, ((0, 0), (0, -width % _TOGETHER)))
    factors = torch.from_numpy(block).view(n, -1, _DEPTH).transpose(0, 1)
    whole, gram = n - n % _ROWS, np.empty((n, n))
    even, rest = factors[:, :whole], factors[:, whole:]
    with one_thread():
        gram[:whole, :whole] = torch.bmm(even, even.mT).sum(0, dtype=torch.float64)
        gram[whole:] = torch.bmm(rest, factors.mT).sum(0, dtype=torch.float64)
    gram[:whole, whole:] = gram[whole:, :whole].T
    return gram


class _Alone:
    """The number of callers within `one_thread`, and torch's number of threads without them."""

    lock, inside, usual = Lock(), 0, 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Restrict torch to the caller's thread in the body.

    The summation order of its matrix library depends on the number of threads, and on the processor. A crew's threads
    share the work instead. The number is the whole process's, so the last caller restores it, and other torch
    computations have one thread meanwhile.
    """
    with _Alone.lock:
        if not _Alone.inside:
            _Alone.usual = torch.get_num_threads()
        _Alone.inside += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _Alone.lock:
            _Alone.inside -= 1
            if not _Alone.inside:
                torch.set_num_threads(_Alone.usual)


def _serve(gram: Array, products: Array, rows: Array) -> bool:
    """Return whether distances and squares are accurate in a Gram matrix of the float32 `products` of `rows`."""
    squares = np.diagonal(products)
    far = squared_distances(gram) >= _CANCELLED * (squares[:, None] + squares)
    np.fill_diagonal(far, np.isfinite(squares))
    return bool(far.all()) and not rows[squares < _TINY].any()


def columns(row: Tensor, start: int, width: int) -> Array:
    """Return `width` columns of a row from `start` on, as float64 if they are, else as float32; read-only."""
    found = row[start : start + width]
    if found.dtype not in (torch.float32, torch.float64):
        found = found.float()
    array: Array = found.cpu().numpy()
    return array


def finite_rows(gram: Array) -> Array:
    """Return which updates [n] are finite (and small enough to square)."""
    finite: Array = np.isfinite(np.diagonal(gram))
    return finite


def squared_distances(gram: Array) -> Array:
    """Return ||x_i - x_j||^2 [n, n]; infinite to and from every update that is not finite, itself included."""
    finite = finite_rows(gram)
    both = np.outer(finite, finite)
    gram = np.where(both, gram, 0.0)
    squares = np.diagonal(gram)
    distances: Array = np.maximum(squares[:, None] + squares[None, :] - 2 * gram, 0.0)
    np.fill_diagonal(distances, 0.0)
    distances[~both] = np.inf
    return distances


def mixed_gram(mixing: Array, gram: Array) -> Array:
    """Return the Gram matrix W G W^T of mixed rows W X, with `mixing` W [m, n]; NaN where a non-finite row enters."""
    finite = finite_rows(gram)
    gram = np.where(np.outer(finite, finite), gram, 0.0)
    # einsum, not matmul: it sums in one order for any number of threads
    product = _symmetric(np.einsum("ij,kj->ik", np.einsum("ij,jk->ik", mixing, gram), mixing))
    spoiled = mixing[:, ~finite].any(axis=1)
    product[spoiled, :] = np.nan
    product[:, spoiled] = np.nan
    return product


def _symmetric(square: Array) -> Array:
    """Mirror the upper triangle: rounding may differ below, and pairs of equal distance must tie."""
    upper: Array = np.triu(square)
    return upper + np.triu(square, 1).T
