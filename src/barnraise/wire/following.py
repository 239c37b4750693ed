"""Messages between a standby and the controller that it follows.

    standby -> controller                           controller -> standby
    Follow   asks to follow, with its last row      Followed   confirms it
    Copy     all rows up to one are durable, asks   Rows       the next rows; none after a while without any
             for the next
    Survey   asks for the list of files             Inventory  the list
    Fetch    asks for bytes of a file or payload    Chunk      bytes of it
                                                    Gone       it is no longer kept
                                                    Stop       the run is over, or the standby is excluded

The standby requests everything, and so decides how much is on its way; a `Copy` also says which rows are safe.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeAlias

import msgspec

from barnraise.core.types import Blob, Count, Digest, Seconds, Text
from barnraise.wire.frames import Decode, decoder
from barnraise.wire.messages import (
    ENROL_LIMIT,
    HEADER_LIMIT,
    Chunk,
    Fetch,
    Gone,
    Greeting,
    Message,
    Raw,
    Stop,
    Term,
)

MOST_FILES = 4096
"""Files of a run that a standby accepts, at most."""

ROWS_BYTES = 1 << 16
"""Approximate bytes of rows in one message."""

Value: TypeAlias = int | float | str | None
CopiedRow: TypeAlias = tuple[Value, ...]


class Follow(Greeting, frozen=True, tag=True):
    """Asks to follow a run.

    `uri` is where workers will find this standby, `after` and `tail` the last row of its copy and a digest of it. Sent
    by a controller that has taken over, its `term` ends the term before.
    """

    uri: Text
    term: Term = Term()
    after: Count = 0
    tail: Digest | None = None


class Followed(Message, frozen=True, tag=True):
    """Confirms that the standby follows `run`; it takes over after `lease` seconds of silence."""

    run: Annotated[str, msgspec.Meta(max_length=200)]
    term: Term
    lease: Seconds


class Copy(Message, frozen=True, tag=True):
    """Acknowledges all rows up to `after` as durable, with their payloads.

    The copy can take over with the rows up to `safe`.
    """

    after: Count
    safe: Count = 0


class Rows(Message, frozen=True, tag=True):
    """Carries the rows from `after` on, in the raw frame (`encode_rows`); `newest` is the controller's last row."""

    raw: ClassVar[Raw] = Raw.ALWAYS
    after: Count
    newest: Count


class Survey(Message, frozen=True, tag=True):
    """Asks which files the run has."""


class CopiedFile(msgspec.Struct, frozen=True):
    """A file of a run directory, by its path there."""

    path: Annotated[
        str, msgspec.Meta(max_length=1024, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*){0,3}\Z")
    ]
    blob: Blob


class Inventory(Message, frozen=True, tag=True):
    """The files of a run that a copy needs besides ledger and payloads; of checkpoints only the newest."""

    files: Annotated[tuple[CopiedFile, ...], msgspec.Meta(max_length=MOST_FILES)]


FromStandby = Follow | Copy | Survey | Fetch
ToStandby = Followed | Rows | Inventory | Chunk | Gone | Stop

decode_from_standby: Decode[FromStandby] = decoder(FromStandby, ENROL_LIMIT)
decode_to_standby: Decode[ToStandby] = decoder(ToStandby, HEADER_LIMIT)

_rows = msgspec.msgpack.Decoder(tuple[CopiedRow, ...])
_encoder = msgspec.msgpack.Encoder()


def encode_rows(rows: tuple[CopiedRow, ...]) -> bytes:
    """Return the raw frame of a `Rows` message."""
    return _encoder.encode(rows)


def decode_rows(raw: memoryview) -> tuple[CopiedRow, ...]:
    """Decode the raw frame of a `Rows` message.

    Raises one of `core.decoding.MALFORMED`.
    """
    return _rows.decode(raw)
