"""Measure the bytes and the transfer time of a gradient of GPT-2 small over a slow link: plain and compressed.

    python benchmarks/gradient.py                  measures the first 12 MB of what is larger: about a minute
    python benchmarks/gradient.py --whole          all of it: 400 s for the uncompressed gradient at 10 Mbit/s

124,439,808 parameters, tied weights once. Computed: bytes over bandwidth, plus the delay. Measured: real payloads of a
random gradient through this project's ZMQ transport behind an emulated link, until the other side has the last byte.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

import torch

from barnraise import compression, transport
from barnraise.transport import Keys
from barnraise.transport.links.presets import parse
from barnraise.transport.links.shaped import ShapedConnection
from barnraise.wire.blobs import chunks
from barnraise.wire.frames import num_bytes

PARAMETERS = 124_439_808
PART = 12_000_000
CODECS: list[tuple[str, str, dict[str, Any]]] = [
    ("uncompressed", "none", {}),
    ("top-k 1%", "topk", {"ratio": 0.01}),
    ("top-k 1%, half values", "topk", {"ratio": 0.01, "half_values": True}),
    ("8 bits", "int8", {}),
    ("4 bits", "int4", {}),
    ("chunked top-k 64/4096", "chunked_topk", {}),
    ("sparse_loco 64/4096", "sparse_loco", {}),
]


async def send(payload: memoryview, link: str) -> float:
    """Seconds until `payload` is on the other side of the link."""
    network, server = transport.create("zmq"), Keys.generate()
    listener, connection = network.listener(), ShapedConnection(network.connection(), parse(link))
    uri = await listener.bind("zmq://127.0.0.1:0", server)
    await connection.open(uri, server.public, Keys.generate())
    await connection.ready(10.0)
    received = 0

    async def receive() -> None:
        nonlocal received
        while received < payload.nbytes:
            for message in await listener.receive_many():
                received += num_bytes(message.frames[1])

    receiving = asyncio.ensure_future(receive())
    began = time.perf_counter()
    for _, chunk in chunks(payload):
        await connection.send([b"part", chunk])
    await receiving
    seconds = time.perf_counter() - began
    await connection.close()
    await listener.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=float, default=10.0)
    parser.add_argument("--delay-ms", type=float, default=25.0, help="one way")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    size = PARAMETERS // 500 if options.quick else PARAMETERS
    link, rate = f"{options.mbit:g}mbit/{options.delay_ms:g}ms", options.mbit * 1e6 / 8
    torch.set_num_threads(1)
    gradient = torch.randn(size, generator=torch.Generator().manual_seed(0))
    print(f"a gradient of {size:,} parameters over {link}")
    print(f"{'':<24}{'MB':>9}{'smaller':>9}{'computed':>11}{'measured':>11}{'encoding':>10}")
    for label, name, codec_options in CODECS:
        codec = compression.create(name, **codec_options)
        began = time.perf_counter()
        payload = codec.encode(gradient).payload
        encoding = time.perf_counter() - began
        whole = options.whole or payload.nbytes <= PART
        measured = asyncio.run(send(payload if whole else payload[:PART], link))
        if not whole:
            measured *= payload.nbytes / PART
        print(
            f"{label:<24}{payload.nbytes / 1e6:9.2f}{4 * size / payload.nbytes:8.1f}x"
            f"{payload.nbytes / rate + options.delay_ms / 1000:9.1f} s{measured:9.1f} s{' ' if whole else '*'}"
            f"{encoding:8.2f} s",
            flush=True,
        )
    print("* from the first 12 MB")


if __name__ == "__main__":
    main()
