"""Measure the accuracy of links in the emulator of `barnraise lab`: one TCP stream each way, and its round trip.

    sudo python benchmarks/wan.py [--ns3] [--seconds 8] [--json] [LINK ...]

Each link joins two network namespaces. Rates are those of payload over the last half of each transfer, as a share of
the link's: 1448 of 1500 bytes are payload, so 96.5% is the maximum. With --ns3 the benchmark measures each link over
ns-3 too, in the same run. `free` has no link: it shows the highest rate of the emulator itself.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator

import msgspec

from barnraise.assembly.lab_workers import BACKENDS
from barnraise.emulation import namespaces
from barnraise.emulation.tun_hub import HubOrder, HubReport, Port
from barnraise.transport.links.presets import MBIT, described, parse

LINKS = ["10mbit/50ms", "2mbit/10mbit/25ms", "100mbit/10ms", "10mbit/50ms/0ms/0.1%", "free"]

COMMON = """
import socket, sys, time
def late(peer, seconds):
    marks, total = [], 0
    while data := peer.recv(1 << 16):
        total += len(data)
        marks.append((time.monotonic(), total))
        if seconds and marks[-1][0] - marks[0][0] > seconds:
            break
    half = [mark for mark in marks if mark[0] > (marks[0][0] + marks[-1][0]) / 2]
    return (half[-1][1] - half[0][1]) / (half[-1][0] - half[0][0])
def push(peer, seconds):
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        peer.sendall(bytes(1 << 16))
    peer.close()
"""
SERVER = """
with socket.create_server(("0.0.0.0", 5000)) as listener:
    print("listening", flush=True)
    echo, _ = listener.accept()
    for _ in range(20):
        echo.sendall(echo.recv(1))
    print(late(listener.accept()[0], 0), flush=True)
    push(listener.accept()[0], SECONDS)
"""
CLIENT = """
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
print(sorted(trips)[10], flush=True)
push(dial(), SECONDS)
print(late(dial(), 0), flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("links", nargs="*", default=LINKS, metavar="LINK")
    parser.add_argument("--ns3", action="store_true")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if lack := namespaces.missing():
        sys.exit(f"this benchmark cannot run here: {lack}" if not options.quick else print(f"skipped: {lack}"))
    if options.quick:
        options.links, options.seconds = ["10mbit/50ms"], 1.0
    backends = ["tun", "ns3"] if options.ns3 else ["tun"]
    rows = [measure(link, backend, options.seconds) for link in options.links for backend in backends]
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{'link':28}{'by':>5}{'round trip, ms':>17}{'set':>7}{'up, Mbit/s':>13}{'share':>8}{'down':>9}{'share':>8}")
    for row in rows:
        print("".join(texts(row)))


def texts(row: dict[str, object]) -> Iterator[str]:
    """A row's columns."""
    yield f"{row['link']!s:28}{row['backend']!s:>5}{row['round_trip_ms']:>17.1f}{row['round_trip_set_ms']:>7.0f}"
    for way, width in (("up", 13), ("down", 9)):
        share = row[f"{way}_share"]
        yield f"{row[f'{way}_mbps']:>{width}.2f}{f'{share:.1%}' if share else '-':>8}"


def measure(text: str, backend: str, seconds: float) -> dict[str, object]:
    """One link between two namespaces."""
    link = None if text == "free" else parse(text)
    names = [f"bench-{os.getpid()}-{number}" for number in range(2)]
    order = HubOrder([Port(names[0], namespaces.address(0)), Port(names[1], namespaces.address(1), link)])
    hub = subprocess.Popen(
        [sys.executable, "-m", BACKENDS[backend]],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert hub.stdin is not None
    assert hub.stdout is not None
    try:
        hub.stdin.write(msgspec.json.encode(order) + b"\n")
        hub.stdin.flush()
        report = msgspec.json.decode(hub.stdout.readline() or b'{"error": "it ended"}', type=HubReport)
        if not report.ready:
            sys.exit(f"the emulator did not start: {report.error}")
        server = inside(names[0], SERVER, seconds)
        line(server)
        client = inside(names[1], CLIENT, seconds)
        round_trip, up, down = float(line(client)), float(line(server)), float(line(client))
    finally:
        hub.stdin.close()
        hub.stdout.read()
        hub.wait(20)
    return {
        "link": text,
        "described": described(link) if link else "no limit",
        "backend": backend,
        "round_trip_ms": 1000 * round_trip,
        "round_trip_set_ms": 1000 * link.round_trip if link else 0.0,
        "up_mbps": up / MBIT,
        "down_mbps": down / MBIT,
        "up_share": up / link.up.rate if link else None,
        "down_share": down / link.down.rate if link else None,
    }


def line(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints."""
    assert process.stdout is not None
    return process.stdout.readline()


def inside(name: str, code: str, seconds: float) -> subprocess.Popen[str]:
    """A Python process in a namespace."""
    script = f"SECONDS = {seconds}\n{COMMON}{code}"
    return subprocess.Popen(
        ["ip", "netns", "exec", name, sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    )


if __name__ == "__main__":
    main()
