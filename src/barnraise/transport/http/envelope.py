"""Batches of messages in an HTTP session, each sealed, numbered and answered once.

A session has two channels, each with one request under way at a time: `PUSH` carries messages up, `PULL` brings
messages down. A request is

    session (16 bytes) | channel (1) | number (8) | ChaCha20-Poly1305 of the content, the 25 bytes before as its header

and its reply is sealed under the same channel and number with the key of the other direction. Numbers run from 0
without a gap. The last request of a channel may come again, when its answer was lost: it is not carried out a second
time, and gets the same bytes as before. Every other number is refused, so nothing is repeated, left out or reordered,
and no nonce seals two contents.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag

from barnraise.core.errors import WireError
from barnraise.transport.http.noise import TAG_BYTES, Ciphers, nonce
from barnraise.wire.frames import Buffer, num_bytes
from barnraise.wire.messages import FRAME_LIMIT, HEADER_LIMIT

SESSION_BYTES = 16
PUSH, PULL = 1, 2
"""Channels, and the first part of their nonces."""

TAKEN, AGAIN = b"\x01", b"\x00"
"""Replies to a push: it was taken, or there was no room and it must be pushed again."""

BATCH = 1 << 20
"""Largest batch of several messages in bytes; one message may be larger."""

WANTED = struct.Struct(">I")
"""Content of a pull: the largest batch of several messages in bytes."""

MAX_MESSAGES = 2048
"""Messages in a batch, at most. Neither side keeps more waiting."""

MAX_FRAMES = 3
"""Frames of a message that are read: two are valid, and the third shows that there were too many."""

_LENGTH = struct.Struct(">I")
CONTENT_LIMIT = HEADER_LIMIT + FRAME_LIMIT + 1 + MAX_FRAMES * _LENGTH.size
"""Largest content in bytes: one message of the largest size."""

_HEADER = struct.Struct(f">{SESSION_BYTES}sBQ")
ENVELOPE_LIMIT = _HEADER.size + CONTENT_LIMIT + TAG_BYTES


def pack(messages: Sequence[Sequence[Buffer]]) -> bytes:
    """Return the content that holds `messages`.

    WireError for a message that is too large.
    """
    buffers: list[Buffer] = []
    for frames in messages:
        if packed_bytes(frames) > CONTENT_LIMIT or not 1 <= len(frames) <= 255:
            raise WireError(
                f"a message of {len(frames)} frames and {packed_bytes(frames)} bytes, but at most {CONTENT_LIMIT} "
                "bytes are carried"
            )
        buffers.append(bytes([len(frames)]))
        buffers += [_LENGTH.pack(num_bytes(frame)) for frame in frames]
        buffers += frames
    return b"".join(buffers)


class Pace:
    """Chooses the size of a batch so that it takes about SECONDS.

    On a slow link that is one message, so that heartbeats get through in between; on a fast one many, so that few round
    trips are needed.
    """

    SECONDS = 0.25

    def __init__(self) -> None:
        self.num_bytes = 1 << 17

    def note(self, num_bytes: int, seconds: float) -> None:
        """Record the seconds that a batch took; small batches are ignored."""
        if 2 * num_bytes >= self.num_bytes:
            self.num_bytes = min(BATCH, 2 * self.num_bytes) if seconds < self.SECONDS else max(1, self.num_bytes // 2)


def packed_bytes(frames: Sequence[Buffer]) -> int:
    """Return the bytes that a message takes in a content."""
    return 1 + sum(_LENGTH.size + num_bytes(frame) for frame in frames)


def unpack(content: bytes) -> list[list[Buffer]]:
    """Return the messages in `content`: headers as bytes of their own, the other frames as views.

    WireError when it is malformed.
    """
    view = memoryview(content)
    messages: list[list[Buffer]] = []
    at = 0
    while at < len(view):
        count = view[at]
        start = at + 1 + count * _LENGTH.size
        if len(messages) == MAX_MESSAGES:
            raise WireError(f"a batch of more than {MAX_MESSAGES} messages")
        if count == 0 or start > len(view):
            raise WireError(f"a batch of {len(view)} bytes with a message of {count} frames at {at}")
        lengths = [_LENGTH.unpack_from(view, at + 1 + index * _LENGTH.size)[0] for index in range(count)]
        if start + sum(lengths) > len(view):
            raise WireError(f"a message of {sum(lengths)} bytes at {at}, in a batch of {len(view)}")
        frames: list[Buffer] = []
        at = start
        for index, length in enumerate(lengths):
            if index < MAX_FRAMES:
                frames.append(bytes(view[at : at + length]) if index == 0 else view[at : at + length])
            at += length
        messages.append(frames)
    return messages


class Asker:
    """The client's end of one channel."""

    def __init__(self, session: bytes, channel: int, ciphers: Ciphers) -> None:
        self._session, self._channel, self._ciphers = session, channel, ciphers
        self._number = -1

    def seal(self, content: bytes) -> bytes:
        """Seal the next request.

        Send these very bytes again when no reply comes; never seal again for that.
        """
        self._number += 1
        self._header = _HEADER.pack(self._session, self._channel, self._number)
        return self._header + self._ciphers.send.encrypt(nonce(self._channel, self._number), content, self._header)

    def open(self, reply: bytes) -> bytes:
        """Open the reply to the last request, and return its content."""
        return _open(self._ciphers.receive, self._channel, self._number, reply, self._header)


class Answerer:
    """The controller's end of one channel."""

    def __init__(self, session: bytes, channel: int, ciphers: Ciphers) -> None:
        self._session, self._channel, self._ciphers = session, channel, ciphers
        self._number = -1
        self.last_reply = b""

    def open(self, envelope: bytes) -> bytes | None:
        """Open a request and return its content; None for the last one repeated, whose answer is `last_reply`."""
        header = envelope[: _HEADER.size]
        session, channel, number = split(envelope)
        if (session, channel) != (self._session, self._channel):
            raise WireError("an envelope of another session or channel")
        if number not in (self._number, self._number + 1) or number < 0:
            raise WireError(f"request {number} of a channel, but {self._number + 1} is next")
        content = _open(self._ciphers.receive, channel, number, envelope[_HEADER.size :], header)
        if number == self._number:
            return None
        self._number, self._header, self.last_reply = number, header, b""
        return content

    def seal(self, content: bytes) -> bytes:
        """Seal the reply to the request that was opened last.

        WireError for a second one.
        """
        if self.last_reply or self._number < 0:
            raise WireError("one reply for each request: a second would use its nonce again")
        sealed = self._ciphers.send.encrypt(nonce(self._channel, self._number), content, self._header)
        self.last_reply = sealed
        return sealed


def split(envelope: bytes) -> tuple[bytes, int, int]:
    """Return the session, channel and number that an envelope claims.

    WireError for a wrong length.
    """
    if not _HEADER.size + TAG_BYTES <= len(envelope) <= ENVELOPE_LIMIT:
        raise WireError(f"an envelope of {len(envelope)} bytes, but one has up to {ENVELOPE_LIMIT}")
    session, channel, number = _HEADER.unpack_from(envelope)
    if channel not in (PUSH, PULL):
        raise WireError(f"channel {channel}, but there are only {PUSH} and {PULL}")
    return session, channel, number


def _open(cipher: object, channel: int, number: int, sealed: bytes, header: bytes) -> bytes:
    try:
        content: bytes = cipher.decrypt(nonce(channel, number), sealed, header)  # type: ignore[attr-defined]
    except InvalidTag:
        raise WireError("an envelope that was altered, or sealed with another key") from None
    return content
