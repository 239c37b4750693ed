"""Messages as frames: a MessagePack header, and for some messages a frame of raw bytes.

A message declares whether raw bytes follow it (`Message.raw`). All input is treated as hostile. The number and sizes of
the frames are checked before a byte is decoded; the schema of `messages` bounds every list, map, text and number while
it is decoded, and unknown keys are skipped without building them, so that a header costs a small multiple of its size
at the most. Any defect raises WireError, with the defect and the limit; no other exception leaves this module.

Numbers are finite, with one exception: `Result.loss` is NaN or infinite when a worker's training diverges, and is
accepted here, so that admission can refuse the contribution with a reason and the worker gets its answer.

Not covered: the meaning of a well-formed message, and whether its sender may send it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import WireError
from barnraise.wire.messages import (
    ENROL_LIMIT,
    FRAME_LIMIT,
    HEADER_LIMIT,
    PROTOCOL_VERSION,
    WORKER_HEADER_LIMIT,
    FromController,
    FromWorker,
    Message,
    Raw,
)

Buffer = bytes | bytearray | memoryview
"""Types of a frame: contiguous bytes."""

M = TypeVar("M")
Decode = Callable[[Sequence[Buffer]], tuple[M, memoryview | None]]
"""Decodes the frames of a message, and returns the raw bytes behind its header as a view."""

_encoder = msgspec.msgpack.Encoder()


class _Opening(msgspec.Struct):
    """The fields that all protocol versions share: messages that open a session name their version."""

    t: str
    protocol: int


_opening = msgspec.msgpack.Decoder(_Opening)


def encode(message: Message, raw: Buffer | None = None) -> list[Buffer]:
    """Return the frames of `message`, with `raw` bytes for the kinds of messages that carry them.

    Raises WireError when the other side would refuse them: no or too many raw bytes, or a header over HEADER_LIMIT.
    """
    header = _encoder.encode(message)
    _check_size("header", len(header), HEADER_LIMIT)
    _check_raw(message, raw)
    return [header] if raw is None else [header, raw]


def decoder(messages: Any, limit: int) -> Decode[Any]:
    """Return the function that decodes `messages`, a union of classes, with headers of at most `limit` bytes.

    The function raises WireError.
    """
    schema: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(messages)
    return lambda frames: _decode(frames, schema, limit)


def decoder_for_strangers(greetings: Any) -> Decode[Any]:
    """Return the function that decodes `greetings`, which have at most ENROL_LIMIT bytes in all."""
    decode = decoder(greetings, ENROL_LIMIT)

    def decode_greeting(frames: Sequence[Buffer]) -> tuple[Any, memoryview | None]:
        _check_size("message from a key that is not enrolled", sum(map(num_bytes, frames)), ENROL_LIMIT)
        return decode(frames)

    return decode_greeting


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
    if raw is None and message.raw is Raw.ALWAYS:
        raise WireError(f"{name} lacks its raw frame")
    if raw is not None and message.raw is Raw.NEVER:
        raise WireError(f"{name} has a raw frame, but carries none")
    if raw is not None:
        if num_bytes(raw) == 0:
            raise WireError(f"raw frame of {name} is empty, but must have at least 1 byte")
        _check_size(f"raw frame of {name}", num_bytes(raw), FRAME_LIMIT)


def _check_size(what: str, size: int, limit: int) -> None:
    if size > limit:
        raise WireError(f"{what} has {size} bytes, but at most {limit} are allowed")


def _other_version(header: Buffer) -> str:
    """Return a message if the header opens a session in another protocol version, whose fields are unknown here."""
    try:
        opening = _opening.decode(header)
    except MALFORMED:
        return ""
    if opening.protocol == PROTOCOL_VERSION:
        return ""
    return (
        f"protocol version {opening.protocol} is not spoken here, only {PROTOCOL_VERSION}: "
        "install the same barnraise version on both sides"
    )


def _printable(error: Exception) -> str:
    """Return the error in one short, printable line: it may quote untrusted input."""
    return ascii(str(error))[1:-1][:200]


decode_from_worker: Decode[FromWorker] = decoder(FromWorker, WORKER_HEADER_LIMIT)
decode_from_controller: Decode[FromController] = decoder(FromController, HEADER_LIMIT)
