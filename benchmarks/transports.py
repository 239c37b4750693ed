"""Measure the transports: ZMQ against XML-RPC for one contribution, and against a bare ZMQ socket for its rate.

    python benchmarks/transports.py                    both, side by side and in turns
    python benchmarks/transports.py --contributions 50 --rounds 11

First, 5 MB contributions (dense float32) from the offer to the durable acknowledgement, at a real controller in a
process of its own that listens on both transports: one node on each, in turns. Second, messages with a 1 MiB raw frame
over loopback from another process: our ZMQ transport, and bare pyzmq DEALER and ROUTER sockets with CURVE too.
Targets: ZMQ takes >= 33% less wall time than XML-RPC; our transport moves >= 80% of what the bare sockets do.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import multiprocessing
import os
import statistics
import tempfile
import time
from typing import Any

import numpy as np
import torch
import zmq
from controller import controller_process

from barnraise import compression, transport
from barnraise.core.types import KINDS, Blob, Contribution, NodeProfile
from barnraise.transport import Connection, Keys
from barnraise.transport.base import parse
from barnraise.wire.blobs import chunks
from barnraise.wire.frames import decode_from_controller, encode
from barnraise.wire.messages import (
    INLINE_BYTES,
    PROTOCOL_VERSION,
    Ack,
    Assign,
    Heartbeat,
    Hello,
    Message,
    Offer,
    PayloadChunk,
    RequestTask,
    SendPayload,
    Welcome,
)  # fmt: skip

NUM_PARAMETERS = 1_250_000
FRAME = 1 << 20
WARM_UP = 3


async def expect(connection: Connection, kind: type[Message]) -> Any:
    while True:
        for frames in await connection.receive_many():
            message, _ = decode_from_controller(frames)
            if isinstance(message, kind):
                return message


class Node:
    """One node with ready-made work, so that all its time is that of its transport."""

    async def open(self, uri: str, server_key: str, keys: Keys, payload: memoryview) -> None:
        self.payload = payload
        self.blob = Blob(hashlib.sha256(payload).hexdigest(), len(payload))
        self.connection = transport.create(parse(uri).scheme).connection()
        await self.connection.open(uri, server_key, keys)
        await self.connection.send(
            encode(Hello(PROTOCOL_VERSION, 1, 1, NodeProfile(1000.0), have=-1, kinds=tuple(KINDS)))
        )
        await expect(self.connection, Welcome)

    async def contribute(self) -> float:
        """Seconds from the offer to the acknowledgement."""
        await self.connection.send(encode(RequestTask(0)))
        task = (await expect(self.connection, Assign)).task
        began = time.perf_counter()
        offer = Contribution.of(task, self.blob, codec=task.rung, steps=task.local_steps, loss=1.0, seconds=0.1)
        inline = self.payload if len(self.payload) <= INLINE_BYTES else None
        await self.connection.send(encode(Offer(offer), inline))
        if inline is None:
            start = (await expect(self.connection, SendPayload)).offset
            for offset, chunk in chunks(self.payload, start=start):
                await self.connection.send(encode(PayloadChunk(task.id, offset), chunk))
        answer = await expect(self.connection, Ack)
        seconds = time.perf_counter() - began
        assert answer.accepted, answer.reason
        return seconds


async def contributions(uri: str, server_key: str, pairs: list[tuple[str, str]], payload: memoryview, num: int) -> None:
    schemes = ("zmq", "xmlrpc")
    nodes = {scheme: Node() for scheme in schemes}
    for scheme, address, pair in zip(schemes, uri.split(), pairs, strict=False):
        await nodes[scheme].open(address, server_key, Keys(*pair), payload)
    seconds: dict[str, list[float]] = {scheme: [] for scheme in schemes}
    for turn in range(num + WARM_UP):
        for scheme in schemes if turn % 2 else reversed(schemes):
            found = await nodes[scheme].contribute()
            if turn >= WARM_UP:
                seconds[scheme].append(found)
            for node in nodes.values():  # both keep their leases
                await node.connection.send(encode(Heartbeat(time.monotonic())))
    for node in nodes.values():
        await node.connection.close()
    medians = {scheme: statistics.median(found) for scheme, found in seconds.items()}
    print(f"{len(payload) / 1e6:.1f} MB contribution, offer to durable acknowledgement, {num} each in turns")
    for scheme in schemes:
        low, high = min(seconds[scheme]), max(seconds[scheme])
        name = {"zmq": "ZMQ", "xmlrpc": "XML-RPC over HTTP"}[scheme]
        print(f"  {name:<18} median {1e3 * medians[scheme]:7.1f} ms   ({1e3 * low:.1f} to {1e3 * high:.1f})")
    less = 1 - medians["zmq"] / medians["xmlrpc"]
    print(f"  ZMQ takes {less:.0%} less wall time (target: at least 33% less)", flush=True)


def end_to_end(num: int) -> None:
    vector = torch.from_numpy(np.random.default_rng(0).normal(0, 1e-3, NUM_PARAMETERS).astype(np.float32))
    payload = compression.create("none").encode(vector).payload
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=controller_process,
            args=(folder, NUM_PARAMETERS, "none", {}, theirs, "zmq://127.0.0.1:0 xmlrpc://127.0.0.1:0"),
        )
        process.start()
        uri, server_key, pairs = ours.recv()
        asyncio.run(contributions(uri, server_key, pairs, payload, num))
        ours.send("stop")
        process.join(30)
        process.terminate()


# The rate of our transport, and of bare sockets


def send_ours(uri: str, server_key: str, keys: Keys, num: int) -> None:
    async def send() -> None:
        connection = transport.create("zmq").connection()
        await connection.open(uri, server_key, keys)
        data = os.urandom(FRAME)
        for _ in range(num):
            await connection.send([b"header", data])
        await connection.receive()  # the last one has arrived
        await connection.close()

    asyncio.run(send())


def send_bare(port: int, server_key: str, keys: Keys, num: int) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.curve_secretkey, socket.curve_publickey = keys.secret.encode(), keys.public.encode()
        socket.curve_serverkey = server_key.encode()
        socket.connect(f"tcp://127.0.0.1:{port}")
        data = os.urandom(FRAME)
        for _ in range(num):
            socket.send_multipart([b"header", data])
        socket.recv()


def ours(server: Keys, client: Keys, num: int) -> float:
    async def receive() -> float:
        listener = transport.create("zmq").listener()
        uri = await listener.bind("zmq://127.0.0.1:0", server)
        process = start(send_ours, uri, server.public, client, num)
        batch = await listener.receive_many()
        began, count = time.perf_counter(), len(batch)
        first = count
        while count < num:
            batch = await listener.receive_many()
            count += len(batch)
        seconds = time.perf_counter() - began
        listener.send(batch[-1].peer, [b"done"])
        while process.is_alive():
            await asyncio.sleep(0.01)
        await listener.close()
        return (count - first) / seconds

    return asyncio.run(receive())


def bare(server: Keys, client: Keys, num: int) -> float:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.curve_server, socket.curve_secretkey = True, server.secret.encode()
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        process = start(send_bare, port, server.public, client, num)
        socket.recv_multipart(copy=False)
        began = time.perf_counter()
        for _ in range(num - 1):
            frames = socket.recv_multipart(copy=False)
        seconds = time.perf_counter() - began
        socket.send_multipart([frames[0].bytes, b"done"])
        process.join()
        return (num - 1) / seconds


def start(target: Any, *arguments: Any) -> Any:
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
    process.start()
    return process


def rates(rounds: int, num: int) -> None:
    server, client = Keys.generate(), Keys.generate()
    found: dict[str, list[float]] = {"ours": [], "bare": []}
    for turn in range(rounds):
        for name, measure in (("ours", ours), ("bare", bare)) if turn % 2 else (("bare", bare), ("ours", ours)):
            found[name].append(measure(server, client, num))
    medians = {name: statistics.median(values) for name, values in found.items()}
    print(f"1 MiB frames over loopback with CURVE, {num} a round, {rounds} rounds each in turns")
    for name, text in (("bare", "bare DEALER, ROUTER"), ("ours", "our ZMQ transport")):
        low, high = min(found[name]), max(found[name])
        print(f"  {text:<20} median {medians[name]:6.0f} MiB/s   ({low:.0f} to {high:.0f})")
    print(f"  ours moves {medians['ours'] / medians['bare']:.0%} of it (target: at least 80%)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contributions", type=int, default=30, metavar="N", help="contributions over each transport")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="rounds of frames over each")
    parser.add_argument("--frames", type=int, default=400, metavar="N", help="1 MiB frames a round")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.contributions, arguments.rounds, arguments.frames = 2, 1, 20
    end_to_end(arguments.contributions)
    rates(arguments.rounds, arguments.frames)


if __name__ == "__main__":
    main()
