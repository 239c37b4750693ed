"""Messages as frames: a MessagePack header, and for some messages a frame of raw bytes.

`PayloadChunk` and `Chunk` always have raw bytes, `Offer`, `Assign` and `Newer` may have. All input is treated as
hostile. The number of frames and their sizes are checked before a byte is decoded; the schema of `messages` bounds
every list, map, text and number while it is decoded, and unknown keys are skipped without building them, so that a
header costs a small multiple of its size at the most. Any defect raises WireError, with the defect and the limit; no
other exception leaves this module.

Numbers are finite, with one exception: `Result.loss` is NaN or infinite when a worker's training diverges, and is
accepted here, so that admission can refuse the contribution with a reason and the worker gets its answer.

Not covered: the meaning of a well-formed message, and whether its sender may send it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import WireError
from barnraise.wire.following import Follow, FromStandby, Rows, ToStandby
from barnraise.wire.messages import (
    ENROL_LIMIT,
    FRAME_LIMIT,
    HEADER_LIMIT,
    PROTOCOL_VERSION,
    WORKER_HEADER_LIMIT,
    Assign,
    Chunk,
    Enrol,
    FromController,
    FromWorker,
    Message,
    Newer,
    Offer,
    PayloadChunk,
)
from barnraise.wire.observing import Observe, Observed, ToObserver

Buffer = bytes | bytearray | memoryview
"""Types of a frame: contiguous bytes."""

_encoder = msgspec.msgpack.Encoder()
_from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
_from_stranger: msgspec.msgpack.Decoder[Enrol | Follow | Observe] = msgspec.msgpack.Decoder(Enrol | Follow | Observe)
_from_controller: msgspec.msgpack.Decoder[FromController] = msgspec.msgpack.Decoder(FromController)
_from_standby: msgspec.msgpack.Decoder[FromStandby] = msgspec.msgpack.Decoder(FromStandby)
_to_standby: msgspec.msgpack.Decoder[ToStandby] = msgspec.msgpack.Decoder(ToStandby)
_to_observer: msgspec.msgpack.Decoder[ToObserver] = msgspec.msgpack.Decoder(ToObserver)


class _Greeting(msgspec.Struct):
    """The fields that all protocol versions share: messages that open a session name their version."""

    t: str
    protocol: int


_greeting = msgspec.msgpack.Decoder(_Greeting)


def encode(message: Message, raw: Buffer | None = None) -> list[Buffer]:
    """Return the frames of `message`, with `raw` bytes for the kinds of messages that carry them.

    Raises WireError when the other side would refuse them: no or too many raw bytes, or a header over HEADER_LIMIT.
    """
    header = _encoder.encode(message)
    _check_size("header", len(header), HEADER_LIMIT)
    _check_raw(message, raw)
    return [header] if raw is None else [header, raw]


def decode_from_worker(
    frames: Sequence[Buffer], *, enrolled: bool = True
) -> tuple[FromWorker | Follow | Observe, memoryview | None]:
    """Decode a worker's message, and return the raw bytes behind a `PayloadChunk` or `Offer` as a view.

    A key that is not `enrolled` may send only an `Enrol`, a `Follow` or an `Observe` of at most ENROL_LIMIT bytes.
    """
    if enrolled:
        return _decode(frames, _from_worker, WORKER_HEADER_LIMIT)
    _check_size("message from a key that is not enrolled", sum(map(num_bytes, frames)), ENROL_LIMIT)
    return _decode(frames, _from_stranger, ENROL_LIMIT)


def decode_from_controller(frames: Sequence[Buffer]) -> tuple[FromController, memoryview | None]:
    """Decode a controller's message, and return the raw bytes behind a `Chunk`, `Assign` or `Newer` as a view."""
    return _decode(frames, _from_controller, HEADER_LIMIT)


def decode_from_standby(frames: Sequence[Buffer]) -> tuple[FromStandby, memoryview | None]:
    """Decode a standby's message, which never has a raw frame."""
    return _decode(frames, _from_standby, ENROL_LIMIT)


def decode_to_standby(frames: Sequence[Buffer]) -> tuple[ToStandby, memoryview | None]:
    """Decode a message to a standby, and return the raw bytes behind a `Chunk` or `Rows` as a view."""
    return _decode(frames, _to_standby, HEADER_LIMIT)


def decode_to_observer(frames: Sequence[Buffer]) -> tuple[ToObserver, memoryview | None]:
    """Decode a message to an observer, and return the raw bytes behind an `Observed` as a view."""
    return _decode(frames, _to_observer, ENROL_LIMIT)


def num_bytes(frame: Buffer) -> int:
    """Return the size of a frame in bytes, for any item size of a memoryview."""
    return frame.nbytes if isinstance(frame, memoryview) else len(frame)


def _decode(
    frames: Sequence[Buffer], decoder: msgspec.msgpack.Decoder[Any], limit: int
) -> tuple[Any, memoryview | None]:
    if not 1 <= len(frames) <= 2:
        raise WireError(f"{len(frames)} frames, but a message has 1 or 2")
    _check_size("header", num_bytes(frames[0]), limit)
    try:
        message = decoder.decode(frames[0])
    except MALFORMED as error:
        raise WireError(_other_version(frames[0]) or f"header: {_printable(error)}") from None
    raw = memoryview(frames[1]).cast("B") if len(frames) == 2 else None
    _check_raw(message, raw)
    return message, raw


def _check_raw(message: Message, raw: Buffer | None) -> None:
    name = type(message).__name__
    wanted, allowed = (
        isinstance(message, PayloadChunk | Chunk | Rows | Observed),
        isinstance(message, PayloadChunk | Chunk | Rows | Observed | Offer | Assign | Newer),
    )
    if (wanted and raw is None) or (raw is not None and not allowed):
        raise WireError(f"{name} {'lacks its raw frame' if raw is None else 'has a raw frame, but carries none'}")
    if raw is not None:
        if num_bytes(raw) == 0:
            raise WireError(f"raw frame of {name} is empty, but must have at least 1 byte")
        _check_size(f"raw frame of {name}", num_bytes(raw), FRAME_LIMIT)


def _check_size(what: str, size: int, limit: int) -> None:
    if size > limit:
        raise WireError(f"{what} has {size} bytes, but at most {limit} are allowed")


def _other_version(header: Buffer) -> str:
    """Return a message if the header is a greeting of another protocol version, whose fields are unknown here."""
    try:
        greeting = _greeting.decode(header)
    except MALFORMED:
        return ""
    if greeting.t not in ("Enrol", "Follow", "Hello", "Observe") or greeting.protocol == PROTOCOL_VERSION:
        return ""
    return (
        f"protocol version {greeting.protocol} is not spoken here, only {PROTOCOL_VERSION}: "
        "install the same barnraise version on both sides"
    )


def _printable(error: Exception) -> str:
    """Return the error in one short, printable line: it may quote untrusted input."""
    return ascii(str(error))[1:-1][:200]
