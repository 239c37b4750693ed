"""A running controller whose disk loses a payload before the version that it was to be in."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import torch

from barnraise.controller.versions.buffer import Buffer
from barnraise.ledger.decisions import Noted

from .test_server import SIZE, Client, Cluster, run, update


def test_a_version_is_made_without_what_the_disk_lost(tmp_path: Path) -> None:
    async def contribute(client: Client, value: float) -> None:
        await client.offer(await client.task(), update(value))

    async def scenario(cluster: Cluster) -> None:
        warnings: list[str] = []
        cluster.server.warn = warnings.append
        buffer = cluster.machine.parts[Buffer]
        buffer.versions = replace(buffer.versions, buffer_size=2, participation=False)
        first, second = await cluster.client(), await cluster.client()
        await first.hello()
        await second.hello()
        await contribute(first, -0.25)
        while not cluster.machine.state.totals.accepted:
            await asyncio.sleep(0.01)
        while 1 not in cluster.ledger.segments:
            await asyncio.sleep(0.01)
        (segment,) = (tmp_path / "segments").iterdir()
        content = bytearray(segment.read_bytes())
        content[-1] ^= 1
        segment.write_bytes(content)
        await contribute(second, -0.5)
        await cluster.reach(version=1)
        assert torch.equal(cluster.parameters.parameters, torch.full((SIZE,), 0.5))
        (void,) = [noted for noted in cluster.decisions(Noted) if noted.kind == "voided"]
        assert (void.note.assignment, void.note.judged) == (1, False)
        assert any("contribution 1 of n0 is void" in warning and segment.name in warning for warning in warnings)
        assert cluster.machine.state.totals.accepted == 1

    run(tmp_path, scenario)
