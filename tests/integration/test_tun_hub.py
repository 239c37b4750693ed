"""The packet emulator carries real TCP at the rate and delay it was asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import IO

import msgspec
import pytest

from barnraise.emulation import namespaces
from barnraise.emulation.tun_hub import HubOrder, HubReport, Port
from barnraise.transport.links.presets import parse

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(namespaces.missing()), reason=f"no lab here: {namespaces.missing()}"),
]

SERVER = """
import socket, time
with socket.create_server(("0.0.0.0", 5000)) as listener:
    print("listening", flush=True)
    echo, _ = listener.accept()
    for _ in range(20):
        echo.sendall(echo.recv(1))
    bulk, _ = listener.accept()
    marks, total = [], 0
    while data := bulk.recv(1 << 16):
        total += len(data)
        marks.append((time.monotonic(), total))
    late = [mark for mark in marks if mark[0] > marks[-1][0] - 4]
    print((late[-1][1] - late[0][1]) / (late[-1][0] - late[0][0]), flush=True)
"""
CLIENT = """
import socket, sys, time
def dial():
    peer = socket.create_connection(("10.77.0.1", 5000))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer
echo, trips = dial(), []
for _ in range(20):
    began = time.monotonic()
    echo.sendall(b"x")
    echo.recv(1)
    trips.append(time.monotonic() - began)
print(min(trips), flush=True)  # a busy machine only makes them longer
bulk, began = dial(), time.monotonic()
while time.monotonic() - began < 6:
    bulk.sendall(bytes(1 << 16))
"""


@pytest.fixture
def names() -> Iterator[list[str]]:
    names = [f"hub-{os.getpid()}-{number}" for number in range(2)]
    yield names
    namespaces.remove(names)


def inside(name: str, code: str) -> subprocess.Popen[str]:
    command = ["ip", "netns", "exec", name, sys.executable, "-c", code]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().strip()


@pytest.mark.campaign
def test_rate_and_round_trip_are_right(names: list[str]) -> None:
    order = HubOrder(
        [Port(names[0], namespaces.address(0)), Port(names[1], namespaces.address(1), parse("10mbit/50ms"))]
    )
    hub = subprocess.Popen(
        [sys.executable, "-m", "barnraise.emulation.tun_hub"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert hub.stdin is not None
    assert hub.stdout is not None
    hub.stdin.write(msgspec.json.encode(order) + b"\n")
    hub.stdin.flush()
    first = msgspec.json.decode(hub.stdout.readline(), type=HubReport)
    assert first.ready, first.error
    server = inside(names[0], SERVER)
    assert line(server.stdout) == "listening"
    client = inside(names[1], CLIENT)
    round_trip, rate = float(line(client.stdout)), float(line(server.stdout))
    assert client.wait(10) == server.wait(10) == 0
    hub.stdin.close()
    last = msgspec.json.decode(hub.stdout.read().splitlines()[-1], type=HubReport)
    assert hub.wait(10) == 0
    assert 0.100 <= round_trip <= 0.105
    assert 0.85 <= 8 * rate / 10e6 <= 1.0  # benchmarks/wan.py: 0.965
    (_, host_down), (up, _) = last.ports
    assert up.bytes == pytest.approx(host_down.bytes, rel=0.01)
    assert not any((namespaces.PLACE / name).exists() for name in names)


def test_namespaces_of_another_are_refused(names: list[str]) -> None:
    subprocess.run(["ip", "netns", "add", names[0]], check=True)
    order = msgspec.json.encode(HubOrder([Port(names[0], namespaces.address(0))])) + b"\n"
    command = [sys.executable, "-m", "barnraise.emulation.tun_hub"]
    found = subprocess.run(command, input=order, stdout=subprocess.PIPE, timeout=30, check=False)
    assert "are there already" in msgspec.json.decode(found.stdout, type=HubReport).error
    assert (namespaces.PLACE / names[0]).exists(), "what is another's is left alone"
