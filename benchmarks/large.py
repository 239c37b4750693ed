"""Measure the cost of a large model for the controller and a worker beside training: seconds, memory, and their floor.

    python benchmarks/large.py             124 million parameters, on 1 and 2 threads
    python benchmarks/large.py --d 1e9     three versions of a billion, in less than 16 GB

The controller makes a version of four `sparse_loco` contributions, steps a Nesterov momentum, and sends the version as
`int4` with a residual. A worker's exchange lasts from the end of a task to the next start: the worker makes its update
and the residual, then applies a version. The controller writes a checkpoint alone, and while it makes versions. A
resume looks for the checkpoint, checks it and reads it, and makes a version. Beside it stands the floor: the bytes that
have to be read and written over the machine's bandwidth, those to be hashed over its rate of hashing, and for a
checkpoint over the disk's (that of temporary files; what a resume reads is in the system's cache). Memory is the
process's peak less what it had before and less what stays of it: parameters, moments and residual, and the deltas;
beside a checkpoint the delta of a version that is made meanwhile counts. Medians, the first time aside.
Targets at 124 million: a version in 1.5 s on two threads with 300 MB, an inspection in 0.1 s, an exchange in 2 s, a
checkpoint with 50 MB, and with those of a version where one is made meanwhile.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch

from barnraise import aggregation, compression, training
from barnraise.controller.state.actions import Held, Slot
from barnraise.controller.state.effects import Checkpoint, Checkpointed
from barnraise.controller.state.events import Event
from barnraise.controller.tensors.executor import ControllerExecutor
from barnraise.controller.tensors.parameter_server import Made, ParameterServer
from barnraise.core.digests import LEAF_BYTES
from barnraise.core.threads import Crew, spans
from barnraise.core.types import Blob, Contribution, News, ParameterRange, Update
from barnraise.ledger import Checkpoints
from barnraise.ledger.chain import Head
from barnraise.models.exchange.layout import Layout
from barnraise.training.transfers import DONE
from barnraise.wire.messages import Downlink, Inner, Uplink, WorkerSettings
from barnraise.worker.executor import WorkerExecutor
from barnraise.worker.stateful import StatefulSession

NODES = 4
UP, DOWN, OUTER = "sparse_loco", "int4", "nesterov"
SETTINGS = WorkerSettings(
    uplink=Uplink(
        codec=UP, options={}, ratios=(), last="", error_feedback=True, decay=1.0, keep=1.0, clip=None,
        normalize_steps=0,
    ),
    downlink=Downlink(codec=DOWN, options={}, merge_lerp=0.5, version_momentum=0.0),
    inner=Inner(batch_size=1, optimizer="adamw", options={}, gradient_clip=None, proximal=0.0, precision="float32"),
    fragments=1, overlap=True,
)  # fmt: skip


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def status(field: str) -> float:
    """Bytes of this process's memory: VmRSS now, VmHWM at the most since `peak` began."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith(field))


@contextmanager
def peak(found: list[float]) -> Iterator[None]:
    """Record the peak memory of the body."""
    Path("/proc/self/clear_refs").write_text("5")
    yield
    found.append(status("VmHWM"))


def updates(size: int) -> list[bytes]:
    """Return payloads of as many nodes, a different one for each."""
    codec, rng = compression.create(UP), np.random.default_rng(0)
    vector = torch.from_numpy(rng.standard_normal(size, np.float32)).mul_(1e-3)
    payloads = []
    for _ in range(NODES):
        payloads.append(codec.encode(vector).to_bytes())
        vector.mul_(-0.9)
    return payloads


def make_server(size: int, threads: int) -> ParameterServer:
    return ParameterServer(
        torch.zeros(size),
        0,
        rule=aggregation.create("mean"),
        codecs=[compression.create(UP)],
        downlink=compression.create(DOWN),
        outer=training.create(OUTER),
        threads=threads,
    )


def make_version(server: ParameterServer, payloads: Sequence[bytes]) -> Made:
    whole = ParameterRange(0, len(server.parameters))
    slots = [Slot(str(node), whole, (Held(node, 1.0, 0),)) for node in range(len(payloads))]
    return server.aggregate(server.version + 1, slots, payloads.__getitem__)


def bandwidth(threads: int, size: int) -> float:
    """Bytes a second, read and written, of a copy that fits no cache."""
    source, target, crew = np.ones(size, np.float32), np.zeros(size, np.float32), Crew(threads)

    def copy() -> None:
        crew.each(lambda span: np.copyto(target[span], source[span]), spans(size))

    return 8 * size / min(timed(copy) for _ in range(5))


def hashing(threads: int, num_bytes: int) -> float:
    """Bytes a second of SHA-256."""
    data, crew = memoryview(bytes(LEAF_BYTES)), Crew(threads)
    count = num_bytes // LEAF_BYTES

    def work() -> None:
        crew.each(lambda _: hashlib.sha256(data).digest(), range(count))

    return count * LEAF_BYTES / min(timed(work) for _ in range(3))


@dataclass(frozen=True)
class Machine:
    """The best rates of `threads` threads here: bytes a second that they read or write, and that they hash."""

    threads: int
    bandwidth: float
    hashing: float

    @property
    def title(self) -> str:
        return f"{self.threads} thread{'s' if self.threads > 1 else ''}"

    @classmethod
    def measured(cls, threads: int, size: int) -> Machine:
        found = cls(threads, bandwidth(threads, size), hashing(threads, 4 * size))
        told = f"bytes move at {found.bandwidth / 1e9:.1f} GB/s, and are hashed at {found.hashing / 1e9:.2f} GB/s"
        print(f"{found.title}: {told}", flush=True)
        return found


def versions(size: int, machine: Machine, payloads: Sequence[bytes], count: int, most_kept: int) -> list[Made]:
    """Make `count` versions, print the measurements, and return the last versions.

    The floor: each vector is read and written once, and the result read again.
    """
    before, most = status("VmRSS"), list[float]()
    server, made, seconds = make_server(size, machine.threads), list[Made](), list[float]()
    with peak(most):
        for _ in range(count):
            seconds.append(timed(lambda: made.append(make_version(server, payloads))))
            del made[:-most_kept]
    vectors, delta = 2 + len(server.outer.moments), made[-1].delta.num_bytes  # with parameters and residual
    kept, down = 4.0 * size * vectors, delta * min(count, most_kept + 1.0)
    moving, hashed = (2 * kept + delta) / machine.bandwidth, (4.0 * size + delta) / machine.hashing
    print(
        f"  version: {seconds[0]:.2f} s the first, then {statistics.median(seconds[1:]):.2f} s "
        f"(floor: {moving:.2f} s to move {(2 * kept + delta) / 1e9:.2f} GB, {hashed:.2f} s to hash)"
    )
    beside = (most[0] - before - kept - down) / 1e6
    told = f"{kept / 1e9:.2f} GB of vectors, {down / 1e6:.0f} MB of deltas, {beside:,.0f} MB beside"
    print(f"  memory: {told}; the process had {most[0] / 1e9:.2f} GB at most", flush=True)
    return made


def inspection(size: int, payload: bytes, repeats: int) -> None:
    server = make_server(1, 1)
    offer = Contribution(
        assignment=1,
        base=0,
        parameters=ParameterRange(0, size),
        payload=Blob("0" * 64, len(payload)),
        steps=1,
        loss=1.0,
        seconds=1.0,
        codec=0,
    )
    seconds = statistics.median(timed(lambda: server.inspect(payload, offer)) for _ in range(repeats))
    print(f"inspection of {len(payload) / 1e6:.1f} MB: {seconds:.3f} s", flush=True)


def writing(folder: Path, num_bytes: int) -> float:
    """Bytes a second that the disk under `folder` takes, until they are safe."""
    data, path = os.urandom(1 << 20), folder / "bandwidth"

    def write() -> None:
        with path.open("wb") as file:
            for _ in range(num_bytes >> 20):
                file.write(data)
            file.flush()
            os.fsync(file.fileno())

    seconds = timed(write)
    path.unlink()
    return (num_bytes >> 20 << 20) / seconds


def state_bytes(server: ParameterServer) -> int:
    return sum(tensor.nbytes for tensor in server.state().values())


def checkpoint(size: int, machine: Machine, payloads: Sequence[bytes], folder: Path) -> None:
    """Measure a checkpoint, alone and beside the making of a version, and a resume from it."""
    server, checkpoints = make_server(size, machine.threads), Checkpoints(folder)
    events = SimpleQueue[Event | BaseException]()
    blobs: Any = SimpleNamespace(freeze=lambda *_: None, publish=lambda *_: None, add_delta=lambda *_: None)
    executor = ControllerExecutor(
        server, blobs, cast("Any", None), cast("Any", None), checkpoints, report=events.put, failed=events.put
    )
    for _ in range(2):
        make_version(server, payloads)
    disk = writing(folder, max(1 << 20, state_bytes(server)))
    print(f"  a checkpoint of {state_bytes(server) / 1e9:.2f} GB; the disk takes {disk / 1e9:.2f} GB/s", flush=True)
    version, alone, written, before = list[float](), list[float](), list[float](), status("VmRSS")
    for meanwhile in (False, True):
        most = list[float]()
        os.sync()
        with peak(most):
            began = time.perf_counter()
            executor.checkpoint(Checkpoint(1, server.version), b"", Head(0, ""))
            while meanwhile and not written[1:] and events.empty():
                version.append(timed(executor._threads["version"].submit(make_version, server, payloads).result))
            told = events.get()
            assert isinstance(told, Checkpointed), told
            assert told.version == server.version - len(version)
            written.append(time.perf_counter() - began)
        alone.append((most[0] - before) / 1e6)
    executor.close()
    floor = state_bytes(server) / disk
    print(
        f"    written in {written[0]:.2f} s with {alone[0]:,.0f} MB beside (floor: {floor:.2f} s)\n"
        f"    while versions are made ({version[0]:.2f} s the first, median {statistics.median(version):.2f}) "
        f"in {written[1]:.2f} s with {alone[1]:,.0f} MB beside"
    )
    kept = state_bytes(server)
    del server, executor
    before, most = status("VmRSS"), list[float]()
    with peak(most):
        began = time.perf_counter()
        found = Checkpoints(folder).load_latest().checkpoint
        assert found is not None
        again = make_server(1, machine.threads)
        again.load(found.tensors("parameters"), found.manifest.version)
        seconds = time.perf_counter() - began
        assert again.digest == found.manifest.parameters_digest
        make_version(again, payloads)
    beside = (most[0] - before - kept) / 1e6
    hashed = kept / hashing(1, 1 << 26) + 4 * size / machine.hashing
    print(
        f"    a resume reads it in {seconds:.2f} s, and with a version has {beside:,.0f} MB beside "
        f"(floor: {hashed:.2f} s to hash, {2 * kept / machine.bandwidth:.2f} s to move)",
        flush=True,
    )


def exchange(size: int, machine: Machine, versions: Sequence[Made]) -> None:
    """Measure a worker's exchange by its parts, without training: one for each of `versions`, but for the first."""
    torch.set_num_threads(machine.threads)
    flat = SimpleNamespace(layout=Layout.of([("all", (size,))]))
    trainer: Any = SimpleNamespace(flat=flat, device=torch.device("cpu"), exchanges_on_device=False)
    executor, task = WorkerExecutor(trainer, cast("Any", None), SETTINGS), cast("Any", SimpleNamespace(local_steps=1))
    course = cast("StatefulSession", executor.course)
    reached = torch.from_numpy(np.random.default_rng(1).standard_normal(size, np.float32)).mul_(1e-3)
    start, free = torch.zeros(size), list[torch.Tensor]()
    executor.path.free = free.append
    seconds: dict[str, list[float]] = {"send": [], "take a version in": [], "merge": []}
    for made in versions:
        update = Update("delta", made.version, made.delta, made.digest, made.parameters)

        def send(number: int = made.version) -> None:
            course.sent(number, executor.path.send(free.pop().zero_() if free else torch.zeros(size), reached))

        def take(update: Update = update, made: Made = made) -> None:
            assert executor.update(News((update,), made.version - 1, 0.25), lambda _: made.delta_bytes) == made.version

        for name, work in (
            ("send", send),
            ("take a version in", take),
            ("merge", lambda: course._offset(start, reached, DONE, task)),
        ):
            seconds[name].append(timed(work))
    told = {name: statistics.median(several[1:]) for name, several in seconds.items()}
    parts = ", ".join(f"{name} {taken:.2f} s" for name, taken in told.items())
    print(f"  a worker's exchange: {sum(told.values()):.2f} s ({parts})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--d", type=float, default=124e6, help="parameters (124e6)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    size = 1_000_000 if options.quick else int(options.d)
    large = size > 500_000_000
    payloads = updates(size)
    print(f"{size:,} parameters, {NODES} contributions of {len(payloads[0]) / 1e6:.1f} MB, {DOWN} down, {OUTER}")
    inspection(size, payloads[0], 3)
    count, most_kept = 3 if large or options.quick else 5, 1 if large else 5
    for threads in options.threads[-1:] if large else options.threads:
        machine = Machine.measured(threads, min(size, 1 << 26))
        made = versions(size, machine, payloads, count, most_kept)
        if not large:
            exchange(size, machine, made)
            del made
            with tempfile.TemporaryDirectory() as folder:
                checkpoint(size, machine, payloads, Path(folder))


if __name__ == "__main__":
    main()
