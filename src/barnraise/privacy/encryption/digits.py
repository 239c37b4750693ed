"""A sum of ciphertexts as a vector of float32 numbers: the published parameters of a run whose updates are encrypted.

A residue of 48 bits is two digits of 24 bits, which float32 holds exactly, as it does their differences. So versions,
deltas, snapshots, checkpoints and digests of a model hold ciphertexts as they hold parameters elsewhere. The last
number is that of the updates in the sum; float32 counts to 2^24. A run begins with zeros, the sum of no update.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from barnraise.core.errors import PayloadError

from .envelope import Agreement, Ciphertext
from .residues import Residues
from .scheme import DEGREE, MODULUS, MODULUS_BITS, num_blocks

Digits: TypeAlias = npt.NDArray[np.float32]

_BITS = MODULUS_BITS // 2
_BASE = 1 << _BITS


def num_digits(num_values: int) -> int:
    """Return the length of the vector for a sum of `num_values` values.

    >>> num_digits(4096)
    32769
    """
    return 2 * 2 * DEGREE * num_blocks(num_values) + 1


def terms_of(digits: Digits) -> int:
    """Return the number of updates in a sum."""
    return int(digits[-1])


def to_digits(ciphertext: Ciphertext) -> Digits:
    """Return the vector of a sum."""
    flat = ciphertext.residues.reshape(-1)
    found = np.empty(2 * flat.size + 1, dtype=np.float32)
    found[:-1:2] = flat >> np.uint64(_BITS)
    found[1:-1:2] = flat & np.uint64(_BASE - 1)
    found[-1] = ciphertext.header.terms
    return found


def from_digits(digits: Digits, agreement: Agreement) -> Ciphertext | None:
    """Return the sum in a vector, None for that of no update; PayloadError when it is no sum under the agreement."""
    needed = num_digits(agreement.values)
    if digits.size != needed:
        raise PayloadError(f"a version of {digits.size} digits, but encrypted sums of this run have {needed}")
    if not ((digits >= 0) & (digits < _BASE) & (digits == np.floor(digits))).all():
        raise PayloadError(f"a version has digits that are no whole numbers from 0 to {_BASE - 1}: it is no ciphertext")
    terms = terms_of(digits)
    if not terms:
        return None
    if terms > agreement.budget.parties:
        raise PayloadError(f"a version is the sum of {terms} updates, at most {agreement.budget.parties} are allowed")
    high, low = digits[:-1:2].astype(np.uint64), digits[1:-1:2].astype(np.uint64)
    residues: Residues = ((high << np.uint64(_BITS)) | low).reshape(-1, 2, DEGREE)
    if int(residues.max()) >= MODULUS:
        raise PayloadError(f"a residue of {int(residues.max())} is not below the modulus {MODULUS}")
    return Ciphertext(agreement.header(terms), residues)
