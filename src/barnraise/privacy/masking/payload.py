"""The payload of a masked update, little-endian:

    bytes           field
    28              header    tag, bits of a word, trustees, seeds, values, support: fixed by the run's terms
    32              ephemeral X25519 key of this update
    32 a seed       commitments
    share a trustee sealed shares, in the trustees' order
    64              signature of the member over the update's base, terms, commitments and words
    b / 8 a word    words, packed (see `packing`)

All sizes follow from the terms, so a receiver compares the length before it reads or allocates anything. A payload
without masks has the header and the words only.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from numpy.typing import NDArray

from barnraise.core.errors import PayloadError
from barnraise.trust.signatures import Signer, masked, verified

from . import packing
from .expand import add_streams
from .sealing import KEY_BYTES, committed, draw_seeds, seal, share_bytes
from .terms import DIGEST_BYTES, HEADER, SIGNATURE_BYTES, MaskTerms

Array: TypeAlias = NDArray[Any]


class UpdateOrigin(NamedTuple):
    """The node and task that an update is of: its base version, and the digest of that version as the node has it."""

    node: str
    assignment: int
    base: int
    model: str


@dataclass(frozen=True)
class MaskedUpdate:
    """A checked payload: `shares` are those of the trustees, `words` the packed words.

    `commitments` and `signature` are empty for a payload without masks.
    """

    terms: MaskTerms
    commitments: bytes
    shares: tuple[bytes, ...]
    signature: str
    words: memoryview

    def read(self) -> Array:
        """Return the words; PayloadError for bytes that no words have."""
        ring = self.terms.ring
        return packing.unpack(self.words, self.terms.num_words, ring.bits, ring.dtype)

    @cached_property
    def words_digest(self) -> str:
        return hashlib.sha256(self.words).hexdigest()

    def refuse_signature(self, origin: UpdateOrigin, public: str) -> str:
        """Say why the node's key `public` did not sign this update for `origin`, or return ""."""
        told = told_by(self.terms, origin, self.commitments, self.words_digest)
        return "" if verified(told, self.signature, public) else f"a masked update that {origin.node} did not sign"


def told_by(terms: MaskTerms, origin: UpdateOrigin, commitments: bytes, words_digest: str) -> bytes:
    """Return the statement that a member signs for its masked update."""
    work = origin.assignment, origin.base, origin.model
    parts = hashlib.sha256(commitments).hexdigest(), words_digest
    return masked(terms.run, origin.node, work, terms.digest, parts)


def mask(terms: MaskTerms, origin: UpdateOrigin, words: Array, signer: Signer) -> bytes:
    """Return the payload of `words`, which are masked in place with fresh seeds."""
    committee = terms.committee
    assert committee is not None
    assert words.size == terms.num_words
    seeds = draw_seeds(committee)
    add_streams(words, seeds, terms.ring.mask)
    packed = packing.pack(words, terms.ring.bits)
    ephemeral, sealed = seal(committee, seeds, terms.binding(*origin))
    commitments = committed(seeds)
    signature = signer.sign(told_by(terms, origin, commitments, hashlib.sha256(packed).hexdigest()))
    return b"".join((terms.header, ephemeral, commitments, *sealed, bytes.fromhex(signature), packed))


def plain(terms: MaskTerms, words: Array) -> bytes:
    """Return the payload of `words` without masks; `terms` have no committee."""
    assert terms.committee is None
    assert words.size == terms.num_words
    return terms.header + packing.pack(words, terms.ring.bits)


def parse(payload: bytes | bytearray | memoryview, terms: MaskTerms) -> MaskedUpdate:
    """Check a payload against the run's terms and return its parts, which are views of it.

    PayloadError for another length or header. The signature and the shares are not looked at.
    """
    view = memoryview(payload).cast("B")
    if view.nbytes != terms.payload_bytes:
        raise PayloadError(f"masks: a payload of {view.nbytes} bytes, but those of this run have {terms.payload_bytes}")
    if bytes(view[: HEADER.size]) != terms.header:
        raise PayloadError(
            f"masks: the payload's header is {HEADER.unpack(view[: HEADER.size])}, that of this run is "
            f"{HEADER.unpack(terms.header)}"
        )
    committee = terms.committee
    if committee is None:
        return MaskedUpdate(terms, b"", (), "", view[HEADER.size :])
    lengths = [
        KEY_BYTES,
        len(committee.subsets) * DIGEST_BYTES,
        *[share_bytes(committee)] * committee.size,
        SIGNATURE_BYTES,
    ]
    pieces, start = [], HEADER.size
    for length in lengths:
        pieces.append(bytes(view[start : start + length]))
        start += length
    ephemeral, commitments, *sealed, signature = pieces
    return MaskedUpdate(terms, commitments, tuple(ephemeral + one for one in sealed), signature.hex(), view[start:])
