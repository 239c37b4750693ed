"""`barnraise doctor`: what this machine has and lacks, with remedies."""

from __future__ import annotations

import importlib
import importlib.util
import platform
import resource
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from barnraise.cli import console
from barnraise.core.units import bytes_text, count_text

MIN_PYTHON = (3, 11)
MIN_MEMORY = 2 * 10**9
MIN_DISK = 10**9
MIN_FILES = 1024
"""Open files: a controller holds one socket for all workers, but epoll, logs and shards add up."""


@dataclass(frozen=True)
class SystemCheck:
    """One check of this machine.

    Only some uses need a check that is not `required`; `remedy` is for when it fails.
    """

    name: str
    ok: bool
    found: str
    remedy: str = ""
    required: bool = True


def doctor(json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False) -> None:
    """Say what this machine has and lacks, with remedies.

    Exit code 1 when something needed is missing.
    """
    findings = list(examine())
    healthy = all(finding.ok for finding in findings if finding.required)
    if json:
        rows = [asdict(finding) | {"remedy": "" if finding.ok else finding.remedy} for finding in findings]
        console.emit_json({"ok": healthy, "checks": rows})
    else:
        for finding in findings:
            console.say(_line(finding))
        console.say("everything needed is here" if healthy else "something needed is missing: see above")
    raise typer.Exit(0 if healthy else 1)


def examine() -> Iterator[SystemCheck]:
    """Examine this machine; takes seconds, since it imports torch and transformers."""
    version = platform.python_version()
    needed = ".".join(map(str, MIN_PYTHON))
    yield SystemCheck("python", sys.version_info >= MIN_PYTHON, version, f"install Python {needed} or newer")
    yield _package("torch", "pip install torch", _torch_build)
    yield _package("transformers", "pip install transformers", lambda module: "")
    yield _package("zmq", "pip install pyzmq", _curve, distribution="pyzmq")
    yield _gpu()
    yield from _machine()
    yield _loopback()
    yield _namespaces()
    yield _ns3()


def _package(name: str, remedy: str, detail: Callable[[Any], str], distribution: str = "") -> SystemCheck:
    """Check that a package imports, not only that it is installed."""
    try:
        module = importlib.import_module(name)
        found = f"{metadata.version(distribution or name)} {detail(module)}".strip()
    except Exception as error:  # a broken installation raises anything
        return SystemCheck(name, False, f"{type(error).__name__}: {str(error)[:200]}", remedy)
    return SystemCheck(name, True, found, remedy)


def _torch_build(torch: Any) -> str:
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    return f"({build}, {count_text(torch.get_num_threads(), 'thread')})"


def _curve(zmq: Any) -> str:
    if not zmq.has("curve"):
        raise RuntimeError("this build has no CURVE encryption")
    return f"(libzmq {zmq.zmq_version()} with CURVE)"


def _gpu() -> SystemCheck:
    remedy = "only for `device: cuda`: install the driver and a CUDA build of torch (pytorch.org/get-started)"
    try:
        import torch

        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        if not names and torch.backends.mps.is_available():
            names = ["Apple GPU (mps)"]
    except Exception as error:  # a broken installation raises anything
        return SystemCheck("gpu", False, str(error)[:200], remedy, required=False)
    return SystemCheck("gpu", bool(names), ", ".join(names) or "none", remedy, required=False)


def _machine() -> Iterator[SystemCheck]:
    import psutil

    from barnraise.core.processes import usable_cores
    from barnraise.models.memory import available_bytes

    cores = usable_cores()
    yield SystemCheck(
        "cores", cores >= 2, count_text(cores, "core"), "one worker per core is a good start", required=False
    )
    total, free = psutil.virtual_memory().total, available_bytes()
    found = f"{bytes_text(free)} available of {bytes_text(total)}"
    yield SystemCheck("memory", free >= MIN_MEMORY, found, f"free some: a small run takes {bytes_text(MIN_MEMORY)}")
    disk = shutil.disk_usage(Path.cwd()).free
    remedy = f"free some, or set run.dir elsewhere: a small run takes up to {bytes_text(MIN_DISK)}"
    yield SystemCheck("disk", disk >= MIN_DISK, f"{bytes_text(disk)} free in {Path.cwd()}", remedy)
    files, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = files == resource.RLIM_INFINITY
    limit = hard if hard not in (resource.RLIM_INFINITY, files) else 65536
    found = "unlimited" if unlimited else f"{files} a process"
    yield SystemCheck("open files", unlimited or files >= MIN_FILES, found, f"raise it: ulimit -n {limit}")


def _loopback() -> SystemCheck:
    remedy = "bring the loopback interface up (ip link set lo up), or leave the sandbox that forbids sockets"
    try:
        with socket.socket() as listener, socket.socket() as dialler:
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            dialler.settimeout(5)
            dialler.connect(listener.getsockname())
    except OSError as error:
        return SystemCheck("loopback", False, error.strerror or str(error), remedy)
    return SystemCheck("loopback", True, "a program can dial another here", remedy)


def _namespaces() -> SystemCheck:
    """Check what only a lab, and tests of two machines in one, need."""
    from barnraise.emulation import namespaces

    lack, _, remedy = namespaces.missing().partition(": ")
    if lack:
        return SystemCheck("network lab", False, lack, f"only for `barnraise lab`: {remedy}", required=False)
    return SystemCheck("network lab", True, f"root, ip and {namespaces.TUN}", required=False)


def _ns3() -> SystemCheck:
    there = importlib.util.find_spec("ns") is not None
    found = metadata.version("ns3") if there else "not installed"
    return SystemCheck("ns-3", there, found, "only for `barnraise lab --ns3`: pip install ns3", required=False)


def _line(finding: SystemCheck) -> str:
    state = "ok" if finding.ok else ("MISSING" if finding.required else "none")
    remedy = f"\n{'':29}{finding.remedy}" if finding.remedy and not finding.ok else ""
    return f"{state:<8} {finding.name:<19} {finding.found}{remedy}"
