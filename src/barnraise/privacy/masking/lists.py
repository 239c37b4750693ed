"""The list of the members whose masked updates are added: it is what trustees endorse, and a member finds itself in it.

A list has one canonical form, msgpack arrays in the order of the fields below, and H(B) is the SHA-256 over it. An
entry holds all that its member signed, so each reader of a list can check each signature. Groups follow from the
entries, so the controller cannot place members; it can still choose whom to list.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import PayloadError
from barnraise.trust.signatures import RunId, endorsed, masked, verified

from .committee import MOST_SEEDS, Committee
from .groups import groups
from .payload import MaskedUpdate, UpdateOrigin
from .terms import DIGEST_BYTES

MOST_ENTRIES = 4096
MOST_LIST_BYTES = 64 << 20

Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z", max_length=64)]
Signed = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{128}\Z", max_length=128)]
Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
NodeName = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class MemberEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A member's masked update in a list.

    `model` is the digest of the base version, `words` that of the packed words. `commitments` are the SHA-256 of the
    seeds, and `signature` is the member's, over all of it and the run's terms.
    """

    assignment: Number
    node: NodeName
    base: Number
    model: Digest
    words: Digest
    commitments: Annotated[bytes, msgspec.Meta(max_length=MOST_SEEDS * DIGEST_BYTES)]
    signature: Signed

    @property
    def origin(self) -> UpdateOrigin:
        """Return the node and the task that the update is of."""
        return UpdateOrigin(self.node, self.assignment, self.base, self.model)

    def is_signed(self, run: RunId, terms: str, public: str) -> bool:
        """Return whether the holder of the key `public` signed this entry under the terms with this digest."""
        parts = hashlib.sha256(self.commitments).hexdigest(), self.words
        told = masked(run, self.node, (self.assignment, self.base, self.model), terms, parts)
        return verified(told, self.signature, public)


class MemberList(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A list B of updates that shall be added into `version`.

    `model` is the digest of version - 1. `nonce` is used for one list. `terms` is the digest of the terms, of which
    `support` may differ between lists. `group` is g, 0 for one group of all.
    """

    run: RunId
    version: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    model: Digest
    nonce: Digest
    terms: Digest
    support: Number
    group: Annotated[int, msgspec.Meta(ge=0, le=MOST_ENTRIES)]
    entries: Annotated[tuple[MemberEntry, ...], msgspec.Meta(min_length=1, max_length=MOST_ENTRIES)]

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return msgspec.msgpack.encode(self)

    @property
    def digest(self) -> str:
        """Return H(B), the SHA-256 of the canonical bytes."""
        return hashlib.sha256(self.encode()).hexdigest()

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Return the groups as places in `entries`; they follow from the version and the signed entries."""
        return groups_of(self.version, [(entry.assignment, entry.words) for entry in self.entries], self.group)

    def endorsers(self, signatures: Mapping[str, str], committee: Committee) -> set[int]:
        """Return the numbers of the trustees whose signature of this list is among `signatures`, by trustee's name."""
        digest, found = self.digest, set()
        for number, trustee in enumerate(committee.trustees):
            signature = signatures.get(trustee.name, "")
            if signature and verified(endorsed(self.run, trustee.name, digest), signature, trustee.signer):
                found.add(number)
        return found


def groups_of(version: int, updates: Sequence[tuple[int, str]], g: int) -> tuple[tuple[int, ...], ...]:
    """Return the groups of a version's updates as places; each has its assignment and the digest of its words."""
    names = [words.encode() + b"%d" % assignment for assignment, words in updates]
    seed = hashlib.sha256(b"barnraise groups 1" + b"%d|" % version + b"|".join(sorted(names))).digest()
    return groups(names, g, seed)


_decoder = msgspec.msgpack.Decoder(MemberList)


def decode_list(content: bytes | memoryview) -> MemberList:
    """Return the list in canonical bytes; PayloadError for any other bytes."""
    if len(content) > MOST_LIST_BYTES:
        raise PayloadError(f"masks: a list of {len(content)} bytes, at most {MOST_LIST_BYTES}")
    try:
        found = _decoder.decode(content)
    except MALFORMED as error:
        raise PayloadError(f"masks: bytes that are no list of members: {error}") from None
    if found.encode() != content:
        raise PayloadError("masks: a list that is not in its canonical form")
    return found


def entry_of(update: MaskedUpdate, origin: UpdateOrigin) -> MemberEntry:
    """Return the entry of a masked update; the controller has checked its signature."""
    node, assignment, base, model = origin
    return MemberEntry(
        assignment=assignment,
        node=node,
        base=base,
        model=model,
        words=update.words_digest,
        commitments=update.commitments,
        signature=update.signature,
    )


def counted(members: MemberList, own: MemberEntry, signatures: Mapping[str, str], committee: Committee) -> int:
    """Return the group in which `own` was added, for the member whose entry it is.

    PayloadError when the list does not hold exactly this entry, or too few trustees signed the list. The member
    compares the list's digest with the one on the ledger.
    """
    places = [place for place, entry in enumerate(members.entries) if entry == own]
    if not places:
        raise PayloadError(
            f"masks: assignment {own.assignment} of {own.node} is not in the list of version {members.version}"
        )
    if (found := len(members.endorsers(signatures, committee))) < committee.quorum:
        raise PayloadError(
            f"masks: {found} trustees signed the list of version {members.version}, {committee.quorum} must"
        )
    return next(number for number, group in enumerate(members.groups) if places[0] in group)
