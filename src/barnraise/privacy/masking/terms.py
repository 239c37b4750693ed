"""The terms of a run's secure aggregation: what all members of a list must share, so that their sum has a meaning."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property

from barnraise.core.errors import InputError
from barnraise.trust.signatures import RunId

from .committee import Committee
from .packing import packed_bytes
from .ring import Ring
from .sealing import KEY_BYTES, share_bytes

HEADER = struct.Struct("<4sHHIQQ")
"""Tag, bits of a word, trustees, seeds, values, support."""

MASKED, PLAIN = b"bmk1", b"brg1"
"""Tags of a payload with masks, and of one without: both are of format 1."""

SIGNATURE_BYTES, DIGEST_BYTES = 64, 32


@dataclass(frozen=True)
class MaskTerms:
    """The run, ring, number of values and trustees of a masked update.

    `support` distinguishes sets of elements that are sent: 0 for all of them, else the number of a shared choice.
    `committee` is None for updates without masks. Raises InputError for numbers that cannot be.
    """

    run: RunId
    ring: Ring
    size: int
    committee: Committee | None = None
    support: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.size < 1 << 40:
            raise InputError(f"masks: an update of {self.size} values, must have 1 to {(1 << 40) - 1}")
        if not 0 <= self.support <= 1 << 53:
            raise InputError(f"masks: support {self.support}, must be 0 to {1 << 53}")

    @property
    def num_words(self) -> int:
        """Return the words of an update: its weight, then its values."""
        return 1 + self.size

    @property
    def word_bytes(self) -> int:
        """Return the bytes of an update's words on the wire."""
        return packed_bytes(self.num_words, self.ring.bits)

    @property
    def share_bytes(self) -> int:
        """Return the bytes that the masks add to a payload, all trustees' shares included."""
        if self.committee is None:
            return 0
        sealed = self.committee.size * share_bytes(self.committee)
        return KEY_BYTES + len(self.committee.subsets) * DIGEST_BYTES + sealed + SIGNATURE_BYTES

    @property
    def payload_bytes(self) -> int:
        """Return the bytes of a payload; every payload of these terms has as many."""
        return HEADER.size + self.share_bytes + self.word_bytes

    @property
    def header(self) -> bytes:
        """Return the bytes with which a payload of these terms begins."""
        committee = self.committee
        tag, trustees = (PLAIN, 0) if committee is None else (MASKED, committee.size)
        seeds = 0 if committee is None else len(committee.subsets)
        return HEADER.pack(tag, self.ring.bits, trustees, seeds, self.size, self.support)

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the terms, which members sign."""
        ring = self.ring
        committee = "" if self.committee is None else self.committee.digest
        magnitudes = float(ring.clip).hex(), float(ring.deviation).hex()
        fields = (*self.run, ring.value_bits, ring.most_members, *magnitudes, self.size, self.support)
        parts = [str(field).encode() for field in (*fields, committee)]
        joined = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hashlib.sha256(b"barnraise terms 1" + joined).hexdigest()

    def binding(self, node: str, assignment: int, base: int, model: str) -> bytes:
        """Return the SHA-256 to which the shares of one update are bound."""
        parts = [part.encode() for part in (node, str(assignment), str(base), model, self.digest)]
        joined = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hashlib.sha256(b"barnraise binding 1" + joined).digest()
