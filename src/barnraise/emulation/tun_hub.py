"""A wide-area network in one process: network namespaces whose packets pass through here, each on its own link.

Run as `python -m barnraise.emulation.tun_hub` by `lab`, as root. The first line of its standard input is a JSON
`HubOrder`, each later one a `Disturbance`; its standard output has a JSON report a line: {"ready": true}, then twice a
second the counters. When its standard input ends, it kills the processes in the namespaces, deletes them and ends:
nothing outlives a lab that crashed. Signals of the terminal are for the lab.

A packet passes the sender's lane up and the receiver's lane down; a port without a link passes at once. Times are exact
to the millisecond of epoll. Queues hold a round trip of the link's rate, 256 KiB at least, and drop further packets.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import random
import select
import signal
import socket
import time
from collections.abc import Callable

import msgspec

from barnraise.core.errors import BarnraiseError
from barnraise.emulation import namespaces
from barnraise.emulation.lane import Lane
from barnraise.emulation.packets import spoiled
from barnraise.transport.links.link import Link, Outages

REPORT_SECONDS = 0.5
BURST = 64
"""Packets read from one namespace before the next."""

PRIORITY = -15
"""Niceness of the emulator."""

LARGEST = 2048
"""Bytes read of a packet; the MTU is 1500."""

LATEST = 0.2
"""Seconds by which a packet is late, at most, that others overtake."""


class Port(msgspec.Struct, frozen=True):
    """A namespace to make: its name and address, and its link (None: unlimited)."""

    namespace: str
    address: str
    link: Link | None = None


class HubOrder(msgspec.Struct, frozen=True):
    """The hub's configuration: its ports and their namespaces."""

    ports: list[Port]
    seed: int = 0


class Disturbance(msgspec.Struct, frozen=True):
    """The disturbance of one port's packets from now on, in both directions.

    The shares that are lost, come two times, come late, and are corrupted.
    """

    namespace: str
    lost: tuple[float, float] = (0.0, 0.0)
    twice: tuple[float, float] = (0.0, 0.0)
    late: tuple[float, float] = (0.0, 0.0)
    spoiled: tuple[float, float] = (0.0, 0.0)


class Counters(msgspec.Struct):
    """Counters of one direction of one port.

    Bytes are those of IP packets, headers included, that entered the lane; `dropped` ones found its queue full and are
    not among them, `lost` ones are.
    """

    bytes: int = 0
    packets: int = 0
    dropped: int = 0
    lost: int = 0


class HubReport(msgspec.Struct):
    """A report of the hub.

    `ports` are (up, down) in the order of the configuration's.
    """

    ready: bool = False
    error: str = ""
    seconds: float = 0.0
    ports: list[tuple[Counters, Counters]] = []


Event = tuple[float, int, bool, int, bytes]
"""Time, a number, whether the lane down is still before it, port, packet."""


class Hub:
    """Moves packets between the ports.

    `descriptors` are their TUN devices.
    """

    def __init__(self, order: HubOrder, descriptors: list[int], now: Callable[[], float] = time.monotonic) -> None:
        self.descriptors, self.now = descriptors, now
        self._began = now()
        self._ports = {socket.inet_aton(port.address): index for index, port in enumerate(order.ports)}
        self._lanes = [_lanes(port, random.Random(f"{order.seed} {port.namespace}")) for port in order.ports]
        self._free = [(Counters(), Counters()) for _ in order.ports]  # counters of ports without a link
        self._places = {port.namespace: index for index, port in enumerate(order.ports)}
        self._disturbed: dict[int, Disturbance] = {}
        self._rng = random.Random(f"{order.seed} disturbances")
        self._events: list[Event] = []
        self._count = 0

    def wait(self) -> float:
        """Return the seconds until a packet is due."""
        return max(0.0, self._events[0][0] - self._clock()) if self._events else REPORT_SECONDS

    def _clock(self) -> float:
        return self.now() - self._began

    def take(self, port: int) -> None:
        """Read the packets that the namespace sends."""
        descriptor, lanes = self.descriptors[port], self._lanes[port]
        for _ in range(BURST):
            try:
                packet = os.read(descriptor, LARGEST)
            except BlockingIOError:
                return
            target = self._ports.get(packet[16:20]) if packet[0] >> 4 == 4 else None
            if target is None:
                continue  # multicast, IPv6: no receiver
            now, packet = self._clock(), self._carried(port, 0, packet)
            for later in self._delays(port, 0):
                if lanes is None:
                    _count(self._free[port][0], packet)
                    self._plan(now + later, True, target, packet)
                elif (out := lanes[0].send(now, len(packet))) >= 0.0:
                    self._plan(out + later, True, target, packet)
                    if lanes[0].twice():
                        self._plan(out + later, True, target, packet)

    def disturb(self, disturbance: Disturbance) -> None:
        """Apply a disturbance from now on; an empty one ends it."""
        place = self._places[disturbance.namespace]
        self._disturbed[place] = disturbance
        if not any((*disturbance.lost, *disturbance.twice, *disturbance.late, *disturbance.spoiled)):
            del self._disturbed[place]

    def _delays(self, port: int, way: int) -> tuple[float, ...]:
        """Return the delays of a port's packet, usually one of 0; one for each time it comes."""
        found = self._disturbed.get(port)
        if found is None:
            return (0.0,)
        if self._rng.random() < found.lost[way]:
            return ()
        later = self._rng.uniform(0.0, LATEST) if self._rng.random() < found.late[way] else 0.0
        return (later, later + self._rng.uniform(0.0, LATEST)) if self._rng.random() < found.twice[way] else (later,)

    def _carried(self, port: int, way: int, packet: bytes) -> bytes:
        """Return a packet's bytes, corrupted or not."""
        found = self._disturbed.get(port)
        strikes = found is not None and self._rng.random() < found.spoiled[way]
        return spoiled(packet, self._rng) if strikes else packet

    def _plan(self, at: float, before: bool, target: int, packet: bytes) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, self._count, before, target, packet))

    def _arrive(self, now: float, target: int, packet: bytes) -> None:
        """Handle a packet in the middle of the network."""
        lanes, packet = self._lanes[target], self._carried(target, 1, packet)
        for later in self._delays(target, 1):
            if lanes is None:
                _count(self._free[target][1], packet)
                self._plan(now + later, False, target, packet)
            elif (out := lanes[1].send(now, len(packet))) >= 0.0:
                self._plan(out + later, False, target, packet)
                if lanes[1].twice():
                    self._plan(out + later, False, target, packet)

    def _deliver(self, target: int, packet: bytes) -> None:
        with contextlib.suppress(OSError):  # the device is down or its queue is full, as with real ones
            os.write(self.descriptors[target], packet)

    def move(self) -> None:
        """Move the packets that are due."""
        events, now = self._events, self._clock()
        while events and events[0][0] <= now:
            at, _, before, target, packet = heapq.heappop(events)
            if before:
                self._arrive(at, target, packet)
            else:
                self._deliver(target, packet)

    def report(self) -> HubReport:
        """Return the counters so far."""
        ports = [_counters(lanes) if lanes else free for lanes, free in zip(self._lanes, self._free, strict=True)]
        return HubReport(ready=True, seconds=self._clock(), ports=ports)


def _lanes(port: Port, rng: random.Random) -> tuple[Lane, Lane] | None:
    link = port.link
    if link is None:
        return None
    dark = Outages(link.brown_outs, rng) if link.brown_outs else None
    return Lane(link.up, link.round_trip, dark, rng), Lane(link.down, link.round_trip, dark, rng)


def _counters(lanes: tuple[Lane, Lane]) -> tuple[Counters, Counters]:
    up, down = (Counters(lane.num_bytes, lane.packets, lane.dropped, lane.lost) for lane in lanes)
    return up, down


def _count(counters: Counters, packet: bytes) -> None:
    counters.bytes += len(packet)
    counters.packets += 1


def run(order: HubOrder, say: Callable[[HubReport], None]) -> None:
    """Make the namespaces and move packets until standard input ends."""
    descriptors = [namespaces.make(port.namespace, port.address) for port in order.ports]
    hub = Hub(order, descriptors)
    poll = select.epoll()
    poll.register(0, select.EPOLLIN | select.EPOLLHUP)
    ports = {descriptor: index for index, descriptor in enumerate(descriptors)}
    for descriptor in descriptors:
        poll.register(descriptor, select.EPOLLIN)
    say(HubReport(ready=True))
    told, heard = time.monotonic(), b""
    while True:
        for descriptor, _ in poll.poll(min(hub.wait(), REPORT_SECONDS)):
            if descriptor != 0:
                hub.take(ports[descriptor])
            elif said := os.read(0, 1 << 16):
                *lines, heard = (heard + said).split(b"\n")
                for line in lines:
                    hub.disturb(msgspec.json.decode(line, type=Disturbance))
            else:
                say(hub.report())
                return
        hub.move()
        if time.monotonic() - told >= REPORT_SECONDS:
            told = time.monotonic()
            say(hub.report())


def serve(emulate: Callable[[HubOrder, Callable[[HubReport], None]], None]) -> None:
    """Run as an emulator process: read the order, `emulate` it, clean up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    line = b""
    while not line.endswith(b"\n"):
        chunk = os.read(0, 1 << 16)
        if not chunk:
            return
        line += chunk
    with contextlib.suppress(OSError):  # packets do not wait for training
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    order = msgspec.json.decode(line, type=HubOrder)
    os.set_blocking(1, False)
    names = [port.namespace for port in order.ports]
    try:
        namespaces.refuse_stale(names)
        try:
            emulate(order, _say)
        finally:
            namespaces.remove(names)
    except (BarnraiseError, OSError) as error:
        _say(HubReport(error=str(error)))


def _say(report: HubReport) -> None:
    with contextlib.suppress(BlockingIOError, BrokenPipeError):  # the next report has it all
        os.write(1, msgspec.json.encode(report) + b"\n")


def main() -> None:
    """Run the packet emulator's process."""
    serve(run)


if __name__ == "__main__":
    main()
