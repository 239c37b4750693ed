"""What a standby and the controller that it follows say to each other.

    standby -> controller                        controller -> standby
    Follow   I hold an invite for a standby,     Followed   this is the run
             and a copy up to this row
    Copy     I have all up to this row durably,  Rows       the next ones, or, after a while, that there are none
             and could take over with all up to
             that one: what comes next?
    Survey   which files are there?              Inventory  these
    Fetch    send me bytes of one of them, or    Chunk      here they are
             of a contribution's payload         Gone       that is no longer kept
                                                 Stop       you may not follow, or what you follow is over

All is asked for by the standby, which so decides how much is on its way; a `Copy` tells at the same time what is safe.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from barnraise.core.types import Blob, Count, Digest, NodeId, Seconds, Text
from barnraise.wire.messages import Chunk, Fetch, Gone, Hex32, Message, Name, Stop, Term

MOST_FILES = 4096
"""Files of a run that a standby takes."""

ROWS_BYTES = 1 << 16
"""Bytes of rows that travel in one message, about."""

Value: TypeAlias = int | float | str | None
CopiedRow: TypeAlias = tuple[Value, ...]


class Follow(Message, frozen=True, tag=True):
    """Asks to follow, like an `Enrol`; `uri` is where workers will find this standby, `after` and `tail` the last row
    of its copy and a digest of that. From a controller that has taken over, its `term` ends the one before."""

    protocol: Count
    token: Name
    name: NodeId
    nonce: Hex32
    proof: Hex32
    uri: Text
    term: Term = Term()
    after: Count = 0
    tail: Digest | None = None


class Followed(Message, frozen=True, tag=True):
    """You follow `run`; take over after `lease` seconds of silence."""

    run: Annotated[str, msgspec.Meta(max_length=200)]
    term: Term
    lease: Seconds


class Copy(Message, frozen=True, tag=True):
    """All rows up to `after` are durable here, with the payloads that they name; the copy can take over with those up
    to `safe`."""

    after: Count
    safe: Count = 0


class Rows(Message, frozen=True, tag=True):
    """Rows from `after` on, in the raw frame (`encode_rows`); `newest` is the last that the controller has."""

    after: Count
    newest: Count


class Survey(Message, frozen=True, tag=True):
    """Which files are there?"""


class CopiedFile(msgspec.Struct, frozen=True):
    """A file of a run directory, by its path there."""

    path: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*){0,3}\Z")]
    blob: Blob


class Inventory(Message, frozen=True, tag=True):
    """What a copy of the run has beside ledger and payloads; of checkpoints the newest."""

    files: Annotated[tuple[CopiedFile, ...], msgspec.Meta(max_length=MOST_FILES)]


FromStandby = Follow | Copy | Survey | Fetch
ToStandby = Followed | Rows | Inventory | Chunk | Gone | Stop

_rows = msgspec.msgpack.Decoder(tuple[CopiedRow, ...])
_encoder = msgspec.msgpack.Encoder()


def encode_rows(rows: tuple[CopiedRow, ...]) -> bytes:
    """The raw frame of a `Rows`."""
    return _encoder.encode(rows)


def decode_rows(raw: memoryview) -> tuple[CopiedRow, ...]:
    """What `encode_rows` made. Raises one of `core.decoding.MALFORMED`."""
    return _rows.decode(raw)
