"""Corruption of packets that checksums below the frames do not detect."""

from __future__ import annotations

import random

TRIES = 4
"""Pairs of words that are drawn until two differ."""


def spoiled(packet: bytes, rng: random.Random) -> bytes:
    """Swap two words (16 bits) of an IPv4 packet's TCP payload; unchanged if no two differ.

    The checksum of TCP is a sum of words, so it stays right: the kernel passes the bytes on, and their reader has to
    detect the change. Such errors are real: Stone and Partridge (2000) counted one in a few thousand to a few million
    packets that only the link's own checks can have let through.
    """
    start = _payload(packet)
    words = (len(packet) - start) // 2
    if not start or words < 2:
        return packet
    for _ in range(TRIES):
        one, other = (start + 2 * place for place in sorted(rng.sample(range(words), 2)))
        if packet[one : one + 2] != packet[other : other + 2]:
            between = packet[one + 2 : other]
            swapped = packet[other : other + 2] + between + packet[one : one + 2]
            return packet[:one] + swapped + packet[other + 2 :]
    return packet


def _payload(packet: bytes) -> int:
    """Return where the bytes begin that TCP carries; 0 for other packets."""
    if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != 6:
        return 0
    header = (packet[0] & 15) * 4
    return header + (packet[header + 12] >> 4) * 4 if header + 12 < len(packet) else 0
