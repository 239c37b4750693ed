"""Packets that are spoiled so that TCP does not see it."""

from __future__ import annotations

import random
import struct

import pytest

from barnraise.emulation.packets import spoiled


def checksum(data: bytes) -> int:
    """The Internet's (RFC 1071); 0 over what holds a right one."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def pseudo(packet: bytes) -> bytes:
    """Return the bytes that TCP's checksum covers."""
    segment = packet[20:]
    return packet[12:20] + struct.pack("!BBH", 0, 6, len(segment)) + segment


def tcp(payload: bytes, options: bytes = b"") -> bytes:
    header = struct.pack("!HHIIBBHHH", 1, 2, 3, 4, (5 + len(options) // 4) << 4, 16, 1000, 0, 0) + options
    total = 20 + len(header) + len(payload)
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, total, 1, 0, 64, 6, 0, b"\x0a\x4d\0\x01", b"\x0a\x4d\0\x02")
    packet = ip + header + payload
    return packet[:36] + struct.pack("!H", checksum(pseudo(packet))) + packet[38:]


@pytest.mark.parametrize("length", [4, 5, 1000, 1399])
@pytest.mark.parametrize("options", [b"", b"\1" * 12])
def test_the_payload_is_another_and_the_checksum_is_right(length: int, options: bytes) -> None:
    packet = tcp(random.Random(length).randbytes(length), options)
    assert checksum(pseudo(packet)) == 0
    found = spoiled(packet, random.Random(1))
    start = 40 + len(options)
    assert found[:start] == packet[:start]
    assert found != packet
    assert sorted(found) == sorted(packet)
    assert checksum(pseudo(found)) == 0


@pytest.mark.parametrize(
    "packet", [b"", b"\x45" * 10, tcp(b""), tcp(b"abc"), tcp(bytes(100)), b"\x60" + bytes(99), b"\x45" + bytes(99)]
)
def test_packets_that_cannot_be_corrupted_are_unchanged(packet: bytes) -> None:
    assert spoiled(packet, random.Random(1)) == packet
