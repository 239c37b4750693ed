"""Network namespaces for the workers, the same twice: over emulated links, and over the kernel's own speed.

Namespace 0 is the host's (a controller, if the peer has one), 1 to n the workers'. All have the device `wan0` and an
address of 10.77.0.0/16. Runs in barnraise's environment, as root.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import msgspec

from barnraise.emulation import namespaces
from barnraise.emulation.tun_hub import HubOrder, HubReport, Port
from barnraise.transport.links.link import Link

PREFIX = "brp-"
BRIDGE = f"{PREFIX}bridge"
"""Both a namespace and the bridge in it."""


def names(workers: int) -> list[str]:
    return [f"{PREFIX}{index}" for index in range(workers + 1)]


@contextlib.contextmanager
def linked(workers: int, link: Link, host: Link | None) -> Iterator[list[str]]:
    """Each worker behind `link`, the host behind `host` (None: nothing is in the way), emulated packet by packet."""
    made = names(workers)
    ports = [Port(name, namespaces.address(at), link if at else host) for at, name in enumerate(made)]
    with subprocess.Popen(
        [sys.executable, "-m", "barnraise.emulation.tun_hub"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as hub:
        assert hub.stdin is not None
        assert hub.stdout is not None
        hub.stdin.write(msgspec.json.encode(HubOrder(ports)) + b"\n")
        hub.stdin.flush()
        report = msgspec.json.decode(hub.stdout.readline() or b"{}", type=HubReport)
        if not report.ready:
            raise SystemExit(f"the links cannot be made: {report.error or 'the emulator ended'}")
        try:
            yield made
        finally:
            hub.stdin.close()  # the hub kills what is left and removes the namespaces


@contextlib.contextmanager
def unlinked(workers: int) -> Iterator[list[str]]:
    """The same namespaces on a bridge of the kernel: as fast as loopback, and its bytes are counted alike."""
    made = names(workers)
    namespaces.refuse_stale([*made, BRIDGE])
    try:
        _ip("netns", "add", BRIDGE)
        _ip("-n", BRIDGE, "link", "add", BRIDGE, "type", "bridge")
        _ip("-n", BRIDGE, "link", "set", BRIDGE, "up")
        for at, name in enumerate(made):
            _ip("netns", "add", name)
            device = namespaces.DEVICE
            _ip("-n", BRIDGE, "link", "add", f"port{at}", "type", "veth", "peer", "name", device, "netns", name)
            _ip("-n", BRIDGE, "link", "set", f"port{at}", "master", BRIDGE, "up")
            _ip("-n", name, "address", "add", f"{namespaces.address(at)}/{namespaces.PREFIX_BITS}", "dev", device)
            _ip("-n", name, "link", "set", device, "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield made
    finally:
        namespaces.remove([*made, BRIDGE])


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"`ip {' '.join(arguments)}` failed: {done.stderr.strip()}")
