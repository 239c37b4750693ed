"""Measure the load that one controller bears: 64 connections, each contribution durable before its acknowledgement.

    python benchmarks/controller.py                  dense and small contributions, a few thousand each
    python benchmarks/controller.py --flat 100000    memory and disk over that many small contributions

The controller is the real one (state machine, admission, ledger with group commits, aggregation) in a process of its
own; the load is 64 real CURVE connections in another, which skip the training: each asks for a task, offers a ready
payload, waits for the acknowledgement, and asks again. Beside it stands the floor: the same bytes over bare CURVE
sockets, and fdatasync of the same bytes. Targets: >= 80 MB/s dense, >= 1,000 small a second, memory and disk flat.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import multiprocessing
import os
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from barnraise import aggregation, compression, matching, staleness, training, transport
from barnraise.controller.machine import Controller
from barnraise.controller.shell.enrolment import Enrolment
from barnraise.controller.shell.server import Server
from barnraise.controller.state.events import Admitted, StopRequested
from barnraise.controller.state.settings import (
    EngineSettings,
    EvaluationSettings,
    LeaseSettings,
    PayloadSettings,
    RowNeeds,
    TaskSettings,
    VersionSettings,
)
from barnraise.controller.tensors.blobs import BlobStore
from barnraise.controller.tensors.executor import ControllerExecutor
from barnraise.controller.tensors.parameter_server import ParameterServer
from barnraise.core.types import KINDS, Blob, Contribution, NodeProfile, ParameterRange
from barnraise.data import shards
from barnraise.data.meta import Format
from barnraise.ledger import Checkpoints, Ledger
from barnraise.models.vectors import digest
from barnraise.transport import Connection, Keys
from barnraise.trust.signatures import RunId
from barnraise.wire.blobs import chunks
from barnraise.wire.frames import decode_from_controller, encode
from barnraise.wire.messages import (
    INLINE_BYTES,
    PROTOCOL_VERSION,
    Ack,
    Assign,
    Downlink,
    Heartbeat,
    Hello,
    Inner,
    Offer,
    PayloadChunk,
    RequestTask,
    SendPayload,
    Stop,
    Uplink,
    Welcome,
    WorkerSettings,
)  # fmt: skip

CONNECTIONS = 64


class NoEvaluation:
    """An evaluation that does nothing, so that held-out data does not slow the controller under load."""

    def build(self) -> None:
        """Nothing."""

    def model_of(self, parameters: torch.Tensor) -> None:
        """Nothing."""

    def loss(self, module: None) -> float:
        return 0.0


def settings(num_parameters: int, codec: str, options: dict[str, Any], payload_bytes: int) -> EngineSettings:
    told = WorkerSettings(
        uplink=Uplink(
            codec=codec, options=options, ratios=(), last="", error_feedback=False, decay=1.0, keep=0.0, clip=None,
            normalize_steps=0,
        ),
        downlink=Downlink(codec="none", options={}, merge_lerp=0.0, version_momentum=0.0),
        inner=Inner(batch_size=8, optimizer="adamw", options={}, gradient_clip=None, proximal=0.0, precision="float32"),
        fragments=1, overlap=True,
    )  # fmt: skip
    return EngineSettings(
        run=RunId("bench"), tokens=2**52, asynchronous=True, worker=told, manifest=Blob("0" * 64, 1),
        leases=LeaseSettings(heartbeat=0.25, lease=60.0, longest=60.0),
        payloads=PayloadSettings(
            exchanged=num_parameters, partitions=((ParameterRange(0, num_parameters),),), rungs=(payload_bytes,),
            last=0, delta=payload_bytes, most=payload_bytes, memory=1 << 30, max_norm=None,
        ),
        tasks=TaskSettings(
            rows=shards.RowIndex([10_000], lengths=[128]), context=128, needs=RowNeeds(2, {}), batch_size=8,
            local_steps=20,
            max_local_steps=100,
            pace="fixed", tune=False, learning_rate=1e-3, rate_multiplier=lambda done, total: 1.0, seed=0,
            scheduler=partial(matching.create, "fifo"),
        ),
        versions=VersionSettings(
            staleness=staleness.create("fixed", max_staleness=10**6), participation=True, outer_rate=1.0,
            buffer_size=CONNECTIONS // 2, minimum_nodes=1, flush=False, sync_window=60.0, sync_longest_wait=600.0,
            checkpoint_seconds=5.0,
        ),
        evaluations=EvaluationSettings(times=1, rows=1, row_tokens=128, file=1, by_workers=False),
    )  # fmt: skip


async def control(
    folder: Path, num_parameters: int, codec: str, options: dict[str, Any], pipe: Any, uri: str = "zmq://127.0.0.1:0"
) -> None:
    """The controller's process: listen, admit the load's keys, run until told to stop."""
    torch.set_num_threads(1)
    form = Format(kind="text", tokenizer="bytes", context=128, vocab_size=258)
    rows = np.zeros((16, 128), np.uint16)
    shards.write(folder / "data", form, [rows], rows)
    encoder = compression.create(codec, **options)
    told = settings(num_parameters, codec, options, encoder.max_bytes(num_parameters))
    parameters = ParameterServer(
        torch.zeros(num_parameters), 0, rule=aggregation.create("mean"), codecs=[encoder],
        downlink=compression.create("none"), outer=training.create("sgd"),
    )  # fmt: skip
    ledger, checkpoints = Ledger(folder / "ledger.sqlite", run="bench"), Checkpoints(folder / "checkpoints")
    machine = Controller(told)
    keys = Keys.generate()
    blobs = BlobStore(shards.Dataset.open(folder / "data"), "0" * 64, b"x")
    server = Server(
        machine, ledger, Enrolment(keys, lambda: None), keep_checkpoints=2, clock=time.monotonic, warn=print,
        make_executor=lambda report, failed: ControllerExecutor(
            parameters, blobs, NoEvaluation(), ledger, checkpoints, report=report, failed=failed
        ),
    )  # fmt: skip
    uri = await server.bind(uri)
    workers = [Keys.generate() for _ in range(CONNECTIONS)]
    for index, pair in enumerate(workers):
        server.post(Admitted(f"n{index}", pair.public))
    pipe.send((uri, keys.public, [(pair.public, pair.secret) for pair in workers]))
    asyncio.get_running_loop().add_reader(pipe.fileno(), lambda: server.post(StopRequested("done")))
    await server.run(machine.start(digest(parameters.parameters), time.monotonic()))
    ledger.close()


def controller_process(folder: str, num_parameters: int, codec: str, options: dict[str, Any], *more: Any) -> None:
    asyncio.run(control(Path(folder), num_parameters, codec, options, *more))


async def client(uri: str, server_key: str, keys: Keys, payload: memoryview, count: list[int], limit: int) -> None:
    """One connection: task, offer, acknowledgement, and again until `limit` are acknowledged by all together."""
    connection = transport.create("zmq").connection()
    try:
        await connection.open(uri, server_key, keys)
        await ask(connection, payload, count, limit)
    finally:
        await connection.close()


async def ask(connection: Connection, payload: memoryview, count: list[int], limit: int) -> None:
    """`client`, over its connection."""
    blob = Blob(hashlib.sha256(payload).hexdigest(), len(payload))
    await connection.send(encode(Hello(PROTOCOL_VERSION, 1, 1, NodeProfile(1000.0), have=-1, kinds=tuple(KINDS))))
    heard = time.monotonic()
    while count[0] < limit:
        for frames in await connection.receive_many():
            message, _ = decode_from_controller(frames)
            if isinstance(message, Welcome):
                await connection.send(encode(RequestTask(0)))
            elif isinstance(message, Assign):
                task = message.task
                offer = Contribution.of(task, blob, codec=task.rung, steps=task.local_steps, loss=1.0, seconds=0.1)
                inline = payload if len(payload) <= INLINE_BYTES else None
                await connection.send(encode(Offer(offer), inline))
            elif isinstance(message, SendPayload):
                for offset, chunk in chunks(payload, start=message.offset):
                    await connection.send(encode(PayloadChunk(message.assignment, offset), chunk))
            elif isinstance(message, Ack):
                assert message.accepted, message.reason
                count[0] += 1
                await connection.send(encode(RequestTask(0)))
            elif isinstance(message, Stop):
                return
        if time.monotonic() - heard > 1.0:
            heard = time.monotonic()
            await connection.send(encode(Heartbeat(heard)))


async def load(
    uri: str, server_key: str, pairs: list[tuple[str, str]], payload: memoryview, limit: int, watch: Any
) -> float:
    count = [0]
    clients = [asyncio.ensure_future(client(uri, server_key, Keys(*pair), payload, count, limit)) for pair in pairs]
    while count[0] < CONNECTIONS:  # warm: the controller has served every connection once
        await asyncio.sleep(0.01)
    first, began = count[0], time.monotonic()
    while count[0] < limit:
        watch(count[0])
        await asyncio.sleep(0.02)
    rate = (count[0] - first) / (time.monotonic() - began)
    for task in clients:
        task.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    return rate


def disk_bytes(folder: Path) -> tuple[int, int]:
    """Bytes in segments, and in the ledger."""
    segments = sum(f.stat().st_size for f in (folder / "segments").glob("*") if f.is_file())
    return segments, sum(f.stat().st_size for f in folder.glob("ledger.sqlite*"))


def measure(
    name: str, num_parameters: int, codec: str, options: dict[str, Any], limit: int, report_every: int = 0
) -> None:
    vector = torch.from_numpy(np.random.default_rng(0).normal(0, 1e-3, num_parameters).astype(np.float32))
    payload = compression.create(codec, **options).encode(vector).payload
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=controller_process, args=(folder, num_parameters, codec, options, theirs))
        process.start()
        uri, server_key, pairs = ours.recv()
        running, next_report = psutil.Process(process.pid), [0]

        def watch(done: int) -> None:
            if report_every and done >= next_report[0]:
                next_report[0] += report_every
                segments, ledger = (size / 2**20 for size in disk_bytes(Path(folder)))
                memory = running.memory_info().rss / 2**20
                print(
                    f"  {done:>7,} acknowledged: memory {memory:6.0f} MiB, segments {segments:6.1f} MiB, "
                    f"ledger {ledger:6.1f} MiB",
                    flush=True,
                )

        rate = asyncio.run(load(uri, server_key, pairs, payload, limit, watch))
        ours.send("stop")
        process.join(30)
        process.terminate()
    print(
        f"{name}: {rate:8,.0f} contributions/s of {len(payload):,} bytes = {rate * len(payload) / 1e6:6.1f} MB/s",
        flush=True,
    )


def sync_floor(size: int, total: int) -> None:
    """fdatasync of groups of 16 payloads of `size` bytes, the disk's own floor."""
    data = os.urandom(size)
    with tempfile.TemporaryFile(dir=os.environ.get("BENCH_DIR")) as file:
        began = time.monotonic()
        for _ in range(total // (16 * size)):
            for _ in range(16):
                file.write(data)
            file.flush()
            os.fdatasync(file.fileno())
        seconds = time.monotonic() - began
    print(f"floor, disk alone (16 payloads a sync): {total / seconds / 1e6:.0f} MB/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flat", type=int, default=0, metavar="N", help="watch memory and disk over N contributions")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    arguments = parser.parse_args()
    if arguments.quick:
        sync_floor(4 * 400_000, 1 << 25)
        measure("dense (1.6 MB, float32)", 400_000, "none", {}, 100)
        measure("small (1 kB, top-k 1%)", 12_500, "topk", {"ratio": 0.01}, 300)
        return
    if arguments.flat:
        measure("small", 12_500, "topk", {"ratio": 0.01}, arguments.flat, report_every=arguments.flat // 10)
        return
    sync_floor(4 * 400_000, 1 << 29)
    measure("dense (1.6 MB, float32)", 400_000, "none", {}, 2_000)
    measure("small (1 kB, top-k 1%)", 12_500, "topk", {"ratio": 0.01}, 10_000)


if __name__ == "__main__":
    main()
