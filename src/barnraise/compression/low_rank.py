"""A low-rank approximation, as in PowerSGD (Vogels, Karimireddy and Jaggi, 2019, algorithm 1).

PowerSGD factorises each weight matrix and starts from the factor of the step before. A flat vector has no matrices and
a codec no memory, so here runs of `side` * `side` elements are the matrices, and two power iterations from fixed random
columns take the place of the warm start.
"""

from __future__ import annotations

import numpy as np

from barnraise.core.errors import PayloadError

from .base import Array, Codec, Header, Sections
from .fp16 import LARGEST_HALF, LOWEST_EXPONENT, check_half, largest_half, shared_exponent

_ITERATIONS = 2
_LARGEST_LEFT = 1.001
_HIGHEST_EXPONENT = 104  # the sum of `rank` products stays finite


class LowRank(Codec):
    """Body: for each matrix M [side, side] the factors P and Q [side, rank], float16; M is about P Q^T * 2**exponent.

    The last matrix is filled up with zeros. The header's count is the rank. P has orthonormal columns, so Q = M^T P is
    the best factor for it: the error is no larger than M in L2 norm, but for fp16's (and beyond 2**119, where Q is
    cut). Not bit for bit the same on every machine.
    """

    name = "low_rank"
    tag = b"rank"

    def __init__(self, rank: int, side: int) -> None:
        super().__init__(rank=rank, side=side)
        self.rank, self.side, self.multiple = rank, side, side * side

    def count(self, size: int, version: int) -> int:
        return self.rank

    def pack(self, values: Array, body: Array, count: int) -> int:
        coarse = shared_exponent(values)  # neither products nor sums of squares overflow
        factors = body.view("<f2").reshape(-1, 2, self.side, self.rank)
        rights = np.empty((len(factors), self.side, self.rank), np.float32)
        start = np.random.Generator(np.random.Philox(key=0)).standard_normal((self.side, self.rank), np.float32)
        for number, stored in enumerate(factors):
            matrix, right = self._matrix(values, number, coarse), start
            for _ in range(_ITERATIONS):
                left, _ = np.linalg.qr(matrix @ right)
                right = matrix.T @ left
            stored[0], rights[number] = left, right
        fine = shared_exponent(rights)
        exponent = min(max(coarse + fine, LOWEST_EXPONENT), _HIGHEST_EXPONENT)
        rights *= np.float32(2.0 ** (coarse - exponent))
        factors[:, 1] = np.clip(rights, -LARGEST_HALF, LARGEST_HALF)
        return exponent

    def _matrix(self, values: Array, number: int, exponent: int) -> Array:
        """Return matrix `number`, divided by 2**exponent."""
        area = self.side * self.side
        run = values[number * area : (number + 1) * area]
        if run.size < area:
            run = np.concatenate([run, np.zeros(area - run.size, np.float32)])
        return run.reshape(self.side, self.side) * np.float32(2.0**-exponent)

    def parse(self, header: Header, body: Array) -> Sections:
        halves = body.view("<f2")
        check_half(halves, header.exponent)
        lefts = halves.reshape(-1, 2, self.side, self.rank)[:, 0]
        if header.exponent > _HIGHEST_EXPONENT or (np.abs(lefts) > _LARGEST_LEFT).any():
            raise PayloadError("codec 'low_rank': columns that are not of unit length, or values that overflow")
        return halves, np.array(header.exponent)

    def load(self, sections: Sections, start: int, out: Array) -> None:
        out.fill(0)
        self.add(sections, start, out, np.float32(1))

    def add(self, sections: Sections, start: int, out: Array, weight: np.float32) -> None:
        halves, exponent = sections
        area = self.multiple
        factors = halves.reshape(-1, 2, self.side, self.rank)[start // area : -(-(start + out.size) // area)]
        for number, pair in enumerate(factors):
            left, right = pair.astype(np.float32)
            product = (left @ right.T).reshape(-1)
            product *= np.float32(2.0 ** int(exponent))
            product *= weight
            target = out[number * area : (number + 1) * area]
            target += product[: target.size]

    def largest(self, sections: Sections) -> float:
        halves, exponent = sections
        rights = halves.reshape(-1, 2, self.side, self.rank)[:, 1]
        return self.rank * _LARGEST_LEFT * largest_half(rights, int(exponent))
