"""The kinds of attempts by name; imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnraise.core.registry import Catalog, Entry

if TYPE_CHECKING:
    from .base import Attempt  # it imports what attempts are made of

_HERE = "tests.intrude.kit"

CATALOG = Catalog(
    "attempt",
    "barnraise.attempts",
    [
        Entry("unknown_key", f"{_HERE}.keys:UnknownKey", "says with a fresh key what members say"),
        Entry("wrong_server_key", f"{_HERE}.keys:WrongServerKey", "dials as if the controller had another key"),
        Entry("stolen_public_key", f"{_HERE}.keys:StolenPublicKey", "has a member's public key without its secret"),
        Entry("revoked_key", f"{_HERE}.keys:RevokedKey", "goes on after it was revoked while connected"),
        Entry("null_mechanism", f"{_HERE}.mechanisms:NullMechanism", "encrypts and proves nothing"),
        Entry("plain_mechanism", f"{_HERE}.mechanisms:PlainMechanism", "logs in with a password"),
        Entry("transport_downgrade", f"{_HERE}.mechanisms:TransportDowngrade", "speaks older ZMTP, HTTP, handshakes"),
        Entry("protocol_downgrade", f"{_HERE}.mechanisms:ProtocolDowngrade", "asks for an older protocol version"),
        Entry(
            "replayed_token", f"{_HERE}.tokens:ReplayedToken", "has an invite that is used up, expired or taken back"
        ),
        Entry("forged_proof", f"{_HERE}.tokens:ForgedProof", "lacks an invite's secret, or has another's proof"),
        Entry("enrolment_flood", f"{_HERE}.tokens:EnrolmentFlood", "keeps newcomers out with many wrong proofs"),
        Entry("replayed_message", f"{_HERE}.replays:ReplayedMessage", "sends again what it recorded, still sealed"),
        Entry("tampered_frame", f"{_HERE}.replays:TamperedFrame", "changes a byte on its way"),
        Entry("replayed_contribution", f"{_HERE}.replays:ReplayedContribution", "hands in again what was accepted"),
        Entry("forged_route", f"{_HERE}.roles:ForgedRoute", "takes another's address within the transport"),
        Entry("foreign_assignment", f"{_HERE}.roles:ForeignAssignment", "hands in work on another's task"),
        Entry("foreign_role", f"{_HERE}.roles:ForeignRole", "speaks as the controller or as a standby"),
        Entry("oversize_frame", f"{_HERE}.sizes:OversizeFrame", "sends more than is ever accepted"),
        Entry("unfinished_message", f"{_HERE}.sizes:UnfinishedMessage", "begins a message that never ends"),
        Entry("msgpack_bomb", f"{_HERE}.bombs:MsgpackBomb", "nests and multiplies in MessagePack"),
        Entry("decompression_bomb", f"{_HERE}.bombs:DecompressionBomb", "sends zeros, well compressed"),
        Entry("xml_bomb", f"{_HERE}.bombs:XmlBomb", "has XML entities multiply, or fetched from elsewhere"),
        Entry("slow_loris", f"{_HERE}.slow:SlowLoris", "says a byte at a time"),
        Entry("connection_flood", f"{_HERE}.slow:ConnectionFlood", "opens connections and says nothing"),
    ],
)


def kind_of(name: str) -> type[Attempt]:
    """The class of a kind; UnknownNameError when there is none."""
    kind: type[Attempt] = CATALOG.load(name)
    return kind
