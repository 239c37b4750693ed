"""Ciphertexts as bytes: a header that names run, key and bounds, then packed residues; no library is needed.

    4 bytes "BRCT", 1 byte format, 2 bytes length of the header (little-endian), header (MessagePack), blocks

A reader knows the only size that a ciphertext can have. It compares every field of the header with the run's terms
before it reads the blocks, so a foreign or stale ciphertext costs it neither memory nor a call into the library.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import InputError, PayloadError
from barnraise.core.ranges import fault, size
from barnraise.core.text import printable
from barnraise.core.types import Ranges

from . import residues
from .scheme import MOST_VALUES, NAME, SumBudget, num_blocks

MAGIC, FORMAT = b"BRCT", 1
_PREFIX = struct.Struct("<4sBH")

HEADER_LIMIT = 1024
"""Most bytes of a header."""

_Text = Annotated[str, msgspec.Meta(max_length=200)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=MOST_VALUES)]


class CiphertextHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The terms under which a ciphertext was made, and `terms`, the number of updates in its sum."""

    run: _Text
    key: _Text
    scheme: _Text
    ranges: _Text
    values: _Count
    parties: _Count
    bound: float
    reach: float
    terms: _Count


@dataclass(frozen=True)
class Agreement:
    """The terms of a run's ciphertexts, known to the host too: its name, the key's id, the bounds, the ranges.

    `ranges` are the parameters that travel encrypted. A ciphertext under other terms is refused.
    """

    run: str
    key: str
    budget: SumBudget
    ranges: Ranges

    def __post_init__(self) -> None:
        if not self.ranges or fault(self.ranges, max(self.ranges)):
            raise InputError(f"ranges to encrypt {list(self.ranges)[:8]} do not ascend in pairs; choose them again")
        if size(self.ranges) > MOST_VALUES:
            raise InputError(f"{size(self.ranges)} values to encrypt, at most {MOST_VALUES}; encrypt a smaller share")

    @property
    def values(self) -> int:
        """Return the number of encrypted values of an update."""
        return size(self.ranges)

    @property
    def most_bytes(self) -> int:
        """Return the size in bytes that no ciphertext under these terms exceeds."""
        return _PREFIX.size + HEADER_LIMIT + num_blocks(self.values) * residues.BLOCK_BYTES

    def header(self, terms: int) -> CiphertextHeader:
        """Return the header of a sum of `terms` updates."""
        return CiphertextHeader(
            run=self.run,
            key=self.key,
            scheme=NAME,
            ranges=digest_of(self.ranges),
            values=self.values,
            parties=self.budget.parties,
            bound=self.budget.bound,
            reach=self.budget.reach,
            terms=terms,
        )


@dataclass(frozen=True)
class Ciphertext:
    """An encrypted update, or a sum of `header.terms` of them."""

    header: CiphertextHeader
    residues: residues.Residues


def digest_of(ranges: Ranges) -> str:
    """Return a short digest of ranges, which tells two selections apart."""
    return hashlib.sha256(",".join(map(str, ranges)).encode()).hexdigest()[:16]


def encode(ciphertext: Ciphertext) -> bytes:
    """Return the bytes of a ciphertext."""
    header = msgspec.msgpack.encode(ciphertext.header)
    return _PREFIX.pack(MAGIC, FORMAT, len(header)) + header + residues.pack(ciphertext.residues)


def decode(payload: bytes | memoryview, agreement: Agreement, sender: str, *, fresh: bool) -> Ciphertext:
    """Return the ciphertext that `sender` sent; PayloadError with the sender, the value and the limit otherwise.

    A `fresh` one is a single update; any other is a sum of at most as many as the terms allow.
    """
    try:
        return _decoded(memoryview(payload), agreement, fresh)
    except PayloadError as error:
        raise PayloadError(f"ciphertext of {printable(sender, 80)}: {error}") from error


def _decoded(payload: memoryview, agreement: Agreement, fresh: bool) -> Ciphertext:
    if len(payload) > agreement.most_bytes:
        raise PayloadError(f"{len(payload)} bytes, at most {agreement.most_bytes} hold {agreement.values} values")
    if len(payload) < _PREFIX.size:
        raise PayloadError(f"{len(payload)} bytes, but the prefix alone has {_PREFIX.size}")
    magic, form, length = _PREFIX.unpack(payload[: _PREFIX.size])
    if magic != MAGIC:
        raise PayloadError("the bytes do not begin as a ciphertext; its sender encrypts nothing, or something else")
    if form != FORMAT:
        raise PayloadError(f"format {form}, but this machine reads format {FORMAT}; use the same barnraise everywhere")
    if length > HEADER_LIMIT:
        raise PayloadError(f"a header of {length} bytes, at most {HEADER_LIMIT}")
    start = _PREFIX.size + length
    try:
        header = msgspec.msgpack.decode(payload[_PREFIX.size : start], type=CiphertextHeader)
    except MALFORMED as error:
        raise PayloadError(f"its header cannot be read: {printable(str(error), 200)}") from error
    _compare(header, agreement, fresh)
    blocks = num_blocks(agreement.values)
    if len(payload) - start != blocks * residues.BLOCK_BYTES:
        raise PayloadError(f"{len(payload) - start} bytes of blocks, but {blocks} have {blocks * residues.BLOCK_BYTES}")
    return Ciphertext(header, residues.unpack(payload[start:]))


def _compare(header: CiphertextHeader, agreement: Agreement, fresh: bool) -> None:
    """Raise PayloadError for the first field that is not the run's."""
    most = 1 if fresh else agreement.budget.parties
    if header.terms > most:
        raise PayloadError(f"a sum of {header.terms} updates, at most {most}")
    expected = agreement.header(header.terms)
    for name in header.__struct_fields__:
        found, right = getattr(header, name), getattr(expected, name)
        if found != right:
            raise PayloadError(
                f"its {name} is {printable(str(found), 80)}, but the run has {printable(str(right), 80)}"
            )


def total(parts: Sequence[Ciphertext], agreement: Agreement) -> Ciphertext:
    """Return the sum of ciphertexts, which needs no key; PayloadError when it has more updates than its noise allows.

    The host calls this. The sum has the same bits in any order.
    """
    terms = sum(part.header.terms for part in parts)
    if terms > agreement.budget.parties:
        raise PayloadError(
            f"a sum of {terms} encrypted updates, at most {agreement.budget.parties} keep its noise and its values "
            "apart; close the version with fewer"
        )
    return Ciphertext(agreement.header(terms), residues.add(part.residues for part in parts))
