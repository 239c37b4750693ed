"""Network namespaces for a lab, each with one TUN or TAP device: made, entered, and removed with their processes.

Needs root, iproute2 and /dev/net/tun (Linux).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from barnraise.core.errors import InputError

DEVICE = "wan0"
"""The only network device of a namespace."""

PLACE = Path("/run/netns")
TUN = Path("/dev/net/tun")
MTU = 1500
QUEUE = 2000
"""Packets that the kernel keeps for a busy emulator."""

PREFIX_BITS = 16

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_TAP, _IFF_NO_PI = 0x0001, 0x0002, 0x1000
_CLONE_NEWNET = 0x40000000


def missing() -> str:
    """Return what this machine lacks for a lab, with the remedy; empty when nothing is missing."""
    if not TUN.exists():
        return f"{TUN} is not there: load the module (modprobe tun), or give the container that device"
    if shutil.which("ip") is None:
        return "the program `ip` is not there: install iproute2"
    if os.geteuid() != 0:
        return "network namespaces need root: run it with sudo"
    return ""


def require() -> None:
    """Raise InputError when this machine cannot make a lab."""
    if lack := missing():
        raise InputError(f"a lab cannot be made here: {lack} (`--network` with `train` emulates links without)")


def address(index: int) -> str:
    """Return the address of namespace number `index` of a lab.

    >>> address(0), address(1), address(250)
    ('10.77.0.1', '10.77.0.2', '10.77.1.1')
    """
    return f"10.77.{index // 250}.{index % 250 + 1}"


def refuse_stale(names: Sequence[str]) -> None:
    """Raise InputError when one of `names` is taken: by another lab, or by one that could not clean up."""
    taken = [name for name in names if (PLACE / name).exists()]
    if not taken:
        return
    busy = sorted({pid for name in taken for pid in pids(name)})
    listed = ", ".join(taken[:4]) + (f" and {len(taken) - 4} more" if len(taken) > 4 else "")
    why = f"processes run in them: {' '.join(map(str, busy))}" if busy else "left by a lab that was killed"
    remedy = (
        "wait until that lab has ended, or set another run.name"
        if busy
        else f"remove them: for n in {' '.join(taken)}; do ip netns delete $n; done"
    )
    raise InputError(f"network namespaces of that name are there already ({listed}; {why}): {remedy}")


def pids(name: str) -> list[int]:
    """Return the processes in a namespace."""
    found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


def make(name: str, own_address: str, *, tap: bool = False) -> int:
    """Make a namespace with the device up and an address of 10.77.0.0/16, and return its file descriptor.

    The descriptor does not block. Raises InputError when the kernel refuses.
    """
    _ip(["netns", "add", name])
    with _inside(name):
        descriptor = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
        kind = (_IFF_TAP if tap else _IFF_TUN) | _IFF_NO_PI
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), kind))
    _ip(["-n", name, "address", "add", f"{own_address}/{PREFIX_BITS}", "dev", DEVICE])
    _ip(["-n", name, "link", "set", DEVICE, "up", "mtu", str(MTU), "txqueuelen", str(QUEUE)])
    _ip(["-n", name, "link", "set", "lo", "up"])
    return descriptor


def remove(names: Sequence[str], patience: float = 2.0) -> None:
    """Kill the processes in the namespaces but this one and its parent, and delete them.

    A namespace that cannot be deleted is left.
    """
    names = [name for name in names if (PLACE / name).exists()]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in _others(names):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + patience
        while _others(names) and time.monotonic() < deadline:
            time.sleep(0.05)
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _others(names: Sequence[str]) -> set[int]:
    return {pid for name in names for pid in pids(name)} - {os.getpid(), os.getppid()}


def enter(name: str) -> None:
    """Move this thread, and all threads and processes that it starts, into a namespace."""
    descriptor = os.open(PLACE / name, os.O_RDONLY)
    try:
        _setns(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def coming_back() -> Iterator[None]:
    """Return this thread in any case to its present namespace after the body."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        yield
    finally:
        _setns(before)
        os.close(before)


@contextlib.contextmanager
def _inside(name: str) -> Iterator[None]:
    with coming_back():
        enter(name)
        yield


def _setns(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot enter a network namespace: {os.strerror(number)}")


def _ip(arguments: Sequence[str]) -> None:
    found = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise InputError(f"`ip {' '.join(arguments)}` failed: {found.stderr.strip()}")
