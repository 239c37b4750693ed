"""Hostile frames of one kind of message after another: right in all but a field, wrong in a byte, or nonsense."""

from __future__ import annotations

import random

import msgspec
from tests.intrude.kit.bombs import LENGTHS_THAT_LIE, deep

from barnraise.wire.messages import FRAME_LIMIT, Offer, PayloadChunk

from .values import FROM_WORKER, Hostile, kinds_in_turn

HUGE = (1 << 14, 1 << 18, FRAME_LIMIT - 1, FRAME_LIMIT, FRAME_LIMIT + 1)


class Fuzzer:
    """Makes frames. `hostile` draws their values, and should be told of what is heard."""

    def __init__(self, hostile: Hostile) -> None:
        self.hostile, self.rng = hostile, hostile.rng
        self._kinds = kinds_in_turn(FROM_WORKER, self.rng)
        self._before: list[bytes] = [b"\xc0"]
        self._nothing = bytes(HUGE[-1])

    def frames(self) -> list[bytes]:
        """The next message: of each kind as often as of any other."""
        rng, kind = self.rng, next(self._kinds)
        strangeness = rng.choice((0.0, 0.03, 0.1, 0.4))
        values = self.hostile.plain(kind, strangeness, allowed=rng.random() < 0.4)
        if rng.random() < 0.05 and isinstance(values, dict):
            values = {**values, "t": self.hostile.anything(), "extra": self.hostile.anything()}
        header = msgspec.msgpack.encode(values)
        if rng.random() < 0.25:
            header = spoil(header, self._before[0], rng)
        frames = [header]
        if rng.random() < {PayloadChunk: 0.95, Offer: 0.3}.get(kind, 0.03):
            frames.append(self._raw())
        if rng.random() < 0.01:
            frames = frames * rng.choice((2, 3, 4, 20)) if rng.random() < 0.8 else [*self._before, *frames]
        if rng.random() < 0.02:
            return self._before  # the same once more
        self._before = frames
        return frames

    def _raw(self) -> bytes:
        rng, chance = self.rng, self.rng.random()
        if chance < 0.05:
            return b""
        if chance < 0.06:
            return self._nothing[: rng.choice(HUGE)]
        return rng.randbytes(rng.choice((1, 4, 40, 400, 4000)))


def spoil(header: bytes, other: bytes, rng: random.Random) -> bytes:
    """The header, damaged in one of many ways; `other` is what may be spliced in."""
    at = rng.randrange(len(header) + 1)
    match rng.randrange(9):
        case 0:
            changed = bytearray(header)
            for _ in range(rng.randrange(1, 6)):
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            return bytes(changed)
        case 1:
            return header[:at]
        case 2:
            return header + rng.randbytes(rng.randrange(1, 50))
        case 3:
            return header[:at] + rng.choice(LENGTHS_THAT_LIE) + header[at:]
        case 4:
            return header[:at] + other[rng.randrange(len(other) + 1) :]
        case 5:
            return header[:at] + header[at // 2 : at] * rng.choice((1, 2, 200)) + header[at:]
        case 6:
            return header[:at] + deep(rng.choice((10, 100, 1000, 8000)), lists=rng.random() < 0.5) + header[at:]
        case 7:
            return header[:at] + rng.randbytes(rng.randrange(1, 9)) + header[at:]
    return rng.randbytes(rng.choice((0, 1, 30, 400)))
