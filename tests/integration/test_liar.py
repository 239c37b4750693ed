"""A member that attacks, beside honest ones, at a real controller over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from barnraise.account.account import read
from barnraise.assembly.addresses import listen
from barnraise.assembly.hosting import open_host
from barnraise.assembly.preparing import prepare
from barnraise.config.load import load
from barnraise.controller.state.events import Admitted
from barnraise.data.meta import Meta
from barnraise.data.shards import Dataset
from barnraise.emulation.attacks.executor import making
from barnraise.ledger import Judged, Ledger, RunDirectory, notes
from barnraise.plan.purpose import SERVE
from barnraise.plan.resolve import Plan, resolve
from barnraise.transport import Keys
from barnraise.wire.manifest import Manifest
from barnraise.wire.messages import WorkerSettings
from barnraise.worker.building import build_executor, make_executor
from barnraise.worker.options import WorkerOptions
from barnraise.worker.runtime import WorkerRuntime
from barnraise.worker.task_executor import TaskExecutor

from ..campaigns import some
from .test_report import MODEL

HONEST = ("ann", "bob", "cat")
LIAR = "liar"
LIE = {"kind": "sign_flip", "factor": 10.0}


def planned(folder: Path, **changes: dict[str, Any]) -> Plan:
    """Rounds of all four."""
    (folder / "text.txt").write_text("a barn is raised by many hands.\n" * 200)
    content: dict[str, Any] = {
        "run": {"name": "barn"},
        "model": MODEL,
        "data": {"kind": "text", "files": [str(folder / "text.txt")], "context": 32},
        "controller": {"use_async_training": False, "sync_window": 20.0, "evaluation_rows": 8},
        "training": {"tokens": 20_000, "batch_size": 4, "local_steps": 4, "auto_tune": False},
    }
    return resolve(
        load({key: section | changes.get(key, {}) for key, section in content.items()}), purpose=SERVE, nodes=4
    )


async def play(run: RunDirectory, plan: Plan, attack: dict[str, Any]) -> None:
    """Play the run to its end, with controller and workers in one process."""
    host = open_host(run, plan, lambda text: None)
    uri = await listen(host.server, run, plan, "serve")
    rooms: dict[str, int] = {}

    async def work(name: str) -> None:
        keys = Keys.generate()
        host.server.post(Admitted(name, keys.public))
        while keys.public not in host.machine.state.roster.keys:
            await asyncio.sleep(0.01)
        options = WorkerOptions(uri, host.server.enrolment.keys.public, name, keys, run.path / name)
        make = making(attack, LIAR) if name == LIAR else make_executor

        def build(
            manifest: Manifest,
            meta: Meta,
            settings: WorkerSettings,
            options: WorkerOptions,
            room: int,
            /,
            *,
            own: Dataset | None,
        ) -> TaskExecutor:
            rooms[name] = room
            return build_executor(manifest, meta, settings, options, room, make, own=own)

        await WorkerRuntime(options, build=build).run()

    workers = [asyncio.ensure_future(work(name)) for name in (*HONEST, LIAR)]
    try:
        async with asyncio.timeout(120):
            await host.server.run(host.first)
            await asyncio.gather(*workers)
        told = {name: host.machine.state.nodes[name].session.profile.memory_bytes for name in rooms}
        assert rooms == told, "a worker trains by the memory that it told of"
        assert len(rooms) == len(workers)
    finally:
        for worker in workers:
            worker.cancel()
        await host.close()


def outcome(folder: Path, attack: dict[str, Any] = LIE, **changes: dict[str, Any]) -> tuple[list[Judged], list[float]]:
    """Return the verdicts, and the measured losses."""
    plan = planned(folder, **changes)
    run = RunDirectory.create("barn", folder)
    prepare(plan, run, lambda text: None)
    asyncio.run(play(run, plan, attack))
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        decisions = [decision for _, decision in ledger.replay()]
    judged = [decision for decision in decisions if isinstance(decision, Judged)]
    told = [decision.note for decision in decisions if hasattr(decision, "note")]
    return judged, [note.loss for note in told if isinstance(note, notes.Evaluated) and note.loss is not None]


@pytest.mark.parametrize("f", some([0.25], [1, 0.25]))
def test_a_liar_is_outvoted_by_a_robust_rule(f: float, tmp_path: Path) -> None:
    judged, losses = outcome(tmp_path, training={"aggregation_rule": "trimmed_mean", "aggregation_f": f})
    lies = [one for one in judged if one.node == LIAR and one.verdict == "accepted"]
    assert lies
    honest = median(one.norm for one in judged if one.node in HONEST)
    assert median(one.norm for one in lies) > 5.0 * honest
    assert losses[-1] < losses[0] - 0.2
    (ledger,) = tmp_path.glob("**/ledger.sqlite")
    found = read(RunDirectory(ledger.parent)).merging
    assert found.nodes > 0
    assert found.f == (f if f >= 1 else int(f * found.nodes)), "the last version may be of fewer than four"


def test_a_liar_is_refused_where_updates_have_a_limit(tmp_path: Path) -> None:
    judged, losses = outcome(tmp_path, controller={"max_update_norm": 1.5})
    lies = [one for one in judged if one.node == LIAR]
    assert {one.verdict for one in lies} == {"refused"}
    assert all("max_update_norm" in one.reason for one in lies)
    assert not [one for one in judged if one.node in HONEST and one.verdict == "refused"]
    assert losses[-1] < losses[0] - 0.2


@pytest.mark.parametrize("kind", some(["nan"], ["nan", "inf"]))
def test_non_finite_updates_are_refused_and_harm_no_honest_node(kind: str, tmp_path: Path) -> None:
    judged, losses = outcome(tmp_path, {"kind": kind})
    lies = [one for one in judged if one.node == LIAR]
    assert lies
    assert all(one.verdict == "refused" and "NaN" in one.reason for one in lies)
    assert not [one for one in judged if one.node in HONEST and one.verdict == "refused"]
    assert losses[-1] < losses[0] - 0.2
