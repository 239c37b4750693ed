"""The same network with ns-3 in the middle: the back end of `lab --ns3`, for a few workers of up to 100 Mbit/s.

Takes the order and gives the reports of `tun_hub`. Each namespace's device is a TAP that ns-3 reads and writes; behind
it lies a point-to-point line to a switch in the middle. ns-3 runs in real time, in a process of its own that dies with
this one. Counters are the kernel's, of the namespaces' devices: packets with their Ethernet headers, and down only
those that got through. Needs the package `ns3` (its compiler takes half a minute to start).

Not covered: brown-outs and duplication (refused) and jitter (left out, with a warning): ns-3's lines do not have them.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import select
import signal
import subprocess
from collections.abc import Callable
from typing import Any

from barnraise.core.errors import InputError
from barnraise.emulation import namespaces
from barnraise.emulation.lane import SHORTEST_QUEUE
from barnraise.emulation.tun_hub import REPORT_SECONDS, Counters, HubOrder, HubReport, Port, serve
from barnraise.transport.links.link import Link, LinkDirection

LONGEST_SECONDS = 30 * 24 * 3600.0
UNLIMITED = 1.25e9
"""Bytes a second of a line without a link."""

_DIE_WITH_PARENT = 1  # prctl PR_SET_PDEATHSIG


def require() -> None:
    """Raise InputError when ns-3 is not installed."""
    if importlib.util.find_spec("ns") is None:
        raise InputError("--ns3 needs the package ns3, which is not installed: pip install ns3 (or leave --ns3 out)")


def run(order: HubOrder, say: Callable[[HubReport], None]) -> None:
    """Make the namespaces and let ns-3 carry their packets until standard input ends."""
    require()
    for port in order.ports:
        if port.link is not None and (port.link.brown_outs or port.link.up.duplication or port.link.down.duplication):
            raise InputError("ns-3 has no brown-outs and no duplication: leave them out of the links, or --ns3")
    taps = [namespaces.make(port.namespace, port.address, tap=True) for port in order.ports]
    ready, child = _start(order, taps)
    select.select([ready, 0], [], [])
    if not os.read(ready, 1):
        raise InputError("ns-3 ended before it was ready: see links.log in the run directory")
    ended = False
    say(HubReport(ready=True))
    seconds = 0.0
    while not ended:
        readable, _, _ = select.select([0, ready], [], [], REPORT_SECONDS)
        ended = bool(readable) and (ready in readable or not os.read(0, 4096))
        seconds += REPORT_SECONDS
        say(HubReport(ready=True, seconds=seconds, ports=[_counters(port) for port in order.ports]))
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _counters(port: Port) -> tuple[Counters, Counters]:
    command = ["ip", "-n", port.namespace, "-s", "-j", "link", "show", namespaces.DEVICE]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        return Counters(), Counters()
    counted = json.loads(found.stdout)[0]["stats64"]
    up, down = (Counters(counted[way]["bytes"], counted[way]["packets"]) for way in ("tx", "rx"))
    return up, down


def _start(order: HubOrder, taps: list[int]) -> tuple[int, int]:
    """Start ns-3 in a process of its own; return a pipe that reports readiness, and the process's id.

    The end of the pipe ends the process.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return reading, child
    code = 1
    try:
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        os.dup2(2, 1)  # its output belongs into the log
        _simulate(order, taps, lambda: os.write(writing, b"r"))
        code = 0
    finally:
        os._exit(code)


def _simulate(order: HubOrder, taps: list[int], ready: Callable[[], Any]) -> None:
    """Build the network in ns-3 and run it in real time."""
    from ns import ns

    ns.GlobalValue.Bind("SimulatorImplementationType", ns.StringValue("ns3::RealtimeSimulatorImpl"))
    ns.GlobalValue.Bind("ChecksumEnabled", ns.BooleanValue(True))
    ns.RngSeedManager.SetSeed(order.seed + 1)
    middle, leaves = ns.NodeContainer(), ns.NodeContainer()
    middle.Create(1)
    leaves.Create(len(order.ports))
    switch = ns.NetDeviceContainer()
    kept: list[Any] = []  # objects that ns-3 does not hold itself
    for index, (port, tap) in enumerate(zip(order.ports, taps, strict=True)):
        pair = ns.NodeContainer()
        pair.Add(leaves.Get(index))
        pair.Add(middle.Get(0))
        devices = _line(ns, port.link, pair, kept)
        switch.Add(devices.Get(1))
        os.set_blocking(tap, True)
        outside = ns.CreateObject[ns.FdNetDevice]()
        outside.SetAddress(ns.Mac48Address.Allocate().ConvertTo())
        leaves.Get(index).AddDevice(outside)
        outside.SetFileDescriptor(tap)
        bridged = ns.NetDeviceContainer()
        bridged.Add(outside)
        bridged.Add(devices.Get(0))
        ns.BridgeHelper().Install(leaves.Get(index), bridged)
        kept += [pair, devices, bridged]
    ns.BridgeHelper().Install(middle.Get(0), switch)
    ns.Simulator.Stop(ns.Seconds(LONGEST_SECONDS))
    ready()
    ns.Simulator.Run()


def _line(ns: Any, link: Link | None, pair: Any, kept: list[Any]) -> Any:
    """Create a full-duplex line between a leaf and the middle, each end with its direction's rate, queue and loss."""
    free = LinkDirection(UNLIMITED, 0.0)
    up, down = (link.up, link.down) if link else (free, free)
    helper = ns.SimpleNetDeviceHelper()
    helper.SetNetDevicePointToPointMode(True)
    helper.SetChannelAttribute("Delay", ns.TimeValue(ns.MicroSeconds(int((up.delay + down.delay) / 2 * 1e6))))
    queue = max(SHORTEST_QUEUE, max(up.rate, down.rate) * link.round_trip) if link else 1 << 24
    helper.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", ns.StringValue(f"{int(queue)}B"))
    devices = helper.Install(pair)
    for sender, receiver, way in ((0, 1, up), (1, 0, down)):
        devices.Get(sender).SetAttribute("DataRate", ns.StringValue(f"{int(8 * way.rate)}bps"))
        if way.loss:
            losing = ns.CreateObject[ns.RateErrorModel]()
            losing.SetAttribute("ErrorRate", ns.DoubleValue(way.loss))
            losing.SetAttribute("ErrorUnit", ns.StringValue("ERROR_UNIT_PACKET"))
            devices.Get(receiver).SetAttribute("ReceiveErrorModel", ns.PointerValue(losing))
            kept.append(losing)
    return devices


if __name__ == "__main__":
    serve(run)
