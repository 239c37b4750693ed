"""A worker leaves a run and comes back with its replica, whatever the run exchanges."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from barnraise.account.account import manifest
from barnraise.assembly.addresses import listen
from barnraise.assembly.hosting import open_host
from barnraise.controller.state.events import Admitted, InterruptRequested
from barnraise.transport import Keys
from barnraise.worker.options import WorkerOptions
from barnraise.worker.runtime import WorkerRuntime

from .test_exchange import ADAPTERS, LAYER, STATELESS, planned, prepared

FULL: dict[str, Any] = {}


@pytest.mark.parametrize(
    "training",
    [FULL, FULL | STATELESS, LAYER, ADAPTERS | STATELESS],
    ids=["full", "full, stateless", "layer", "adapters, stateless"],
)
def test_a_worker_that_left_comes_back_with_its_replica(training: dict[str, Any], tmp_path: Path) -> None:
    plan = planned(tmp_path, **training, tokens=10_000_000)
    run = prepared(tmp_path, plan)
    told = manifest(run)
    exchange = plan.exchange(told.model, told.exchange)
    said, keys, folder = list[str](), Keys.generate(), tmp_path / "replica"
    sizes = list[int]()

    async def main() -> None:
        host = open_host(run, plan, lambda text: None)
        uri = await listen(host.server, run, plan, "serve")
        serving = asyncio.ensure_future(host.server.run(host.first))
        host.server.post(Admitted("ann", keys.public))
        while keys.public not in host.machine.state.roster.keys:
            await asyncio.sleep(0.01)
        options = WorkerOptions(uri, host.server.enrolment.keys.public, "ann", keys, tmp_path / "cache", replica=folder)
        try:
            for _ in range(2):
                totals, worker = host.machine.state.totals, WorkerRuntime(options, say=said.append)
                enough, working = totals.accepted + 2, asyncio.ensure_future(worker.run())
                while host.machine.state.totals.accepted < enough:
                    assert not working.done(), working
                    await asyncio.sleep(0.01)
                worker.leave("a pause")
                assert (await working).left
                sizes.extend(path.stat().st_size for path in folder.iterdir())
        finally:
            host.server.post(InterruptRequested("enough"))
            await serving
            await host.close()

    async def within() -> None:
        async with asyncio.timeout(120):
            await main()

    asyncio.run(within())
    assert len(sizes) == 2
    assert all(4 * exchange.exchanged < size < 4 * exchange.exchanged + 1000 for size in sizes)
    assert len([text for text in said if text.endswith("is on this disk: only what differs is fetched")]) == 1
    assert not [text for text in said if "is not used" in text]
