"""A run that exchanges some of the parameters, at a real controller over real sockets; the rest is fetched once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from barnraise.account.account import MANIFEST, manifest
from barnraise.assembly import parts
from barnraise.assembly.addresses import listen
from barnraise.assembly.exporting import export_model
from barnraise.assembly.hosting import open_host
from barnraise.assembly.preparing import prepare
from barnraise.config.load import load
from barnraise.controller.state.events import Admitted
from barnraise.core.errors import DataError
from barnraise.data.shards import Dataset
from barnraise.ledger import Checkpoints, Ledger, RunDirectory, VersionMade, notes
from barnraise.models.build import build
from barnraise.models.exchange.record import Exchange
from barnraise.models.memory import model_size
from barnraise.models.vectors import digest
from barnraise.plan.purpose import SERVE
from barnraise.plan.resolve import Plan, resolve
from barnraise.transport import Keys
from barnraise.verification.verify import verify
from barnraise.worker.building import build_executor
from barnraise.worker.options import WorkerOptions
from barnraise.worker.runtime import WorkerRuntime

from ..exchanges import PART, freeze, second_kind
from .test_report import MODEL

PREFIX = "transformer.h.1."
STATELESS = {"tasks": "stateless", "compression": "int8", "error_feedback": False, "merge_lerp": 0.0}


@pytest.fixture(autouse=True)
def kinds() -> Iterator[None]:
    with second_kind():
        yield


def planned(folder: Path, **training: Any) -> Plan:
    (folder / "text.txt").write_text("a barn is raised by many hands.\n" * 200)
    content: dict[str, Any] = {
        "run": {"name": "barn"},
        "model": MODEL,
        "data": {"kind": "text", "files": [str(folder / "text.txt")], "context": 32},
        "controller": {"evaluation_rows": 8, "keep_payloads": True},
        "training": {"tokens": 12_000, "batch_size": 4, "local_steps": 4, "auto_tune": False} | training,
    }
    return resolve(load(content), purpose=SERVE, nodes=2)


def prepared(folder: Path, plan: Plan) -> tuple[RunDirectory, Exchange]:
    """A run directory as `train` prepares it, but for what its manifest names and its version 0."""
    run = RunDirectory.create("barn", folder)
    prepare(plan, run, lambda text: None)
    model = manifest(run).model
    exchange = plan.exchange(model, freeze(build(model), PREFIX, run.data))
    run.write(run.path / MANIFEST, parts.manifest_of(model, Dataset.open(run.data), exchange))
    tensors = parts.initial_state(plan, model, exchange, run.data)
    Checkpoints(run.checkpoints).save(
        0, ledger_id=0, parameters_digest=digest(tensors["parameters"]), state=b"", tensors={"parameters": tensors}
    )
    return run, exchange


async def play(run: RunDirectory, plan: Plan) -> None:
    """The run to its end, with controller and two workers in one process."""
    host = open_host(run, plan, lambda text: None)
    uri = await listen(host.server, run, plan, "serve")

    async def work(name: str) -> None:
        keys = Keys.generate()
        host.server.post(Admitted(name, keys.public))
        while keys.public not in host.machine.state.roster.keys:
            await asyncio.sleep(0.01)
        options = WorkerOptions(uri, host.server.enrolment.keys.public, name, keys, run.path / name)
        await WorkerRuntime(options, build=build_executor).run()

    workers = [asyncio.ensure_future(work(name)) for name in ("ann", "bob")]
    try:
        async with asyncio.timeout(120):
            await host.server.run(host.first)
            await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await host.close()


@pytest.mark.parametrize("training", [{}, STATELESS], ids=["stateful", "stateless"])
def test_a_run_that_trains_one_layer(training: dict[str, Any], tmp_path: Path) -> None:
    plan = planned(tmp_path, **training)
    run, exchange = prepared(tmp_path, plan)
    asyncio.run(play(run, plan))
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        decisions = [decision for _, decision in ledger.replay()]
    assert any(isinstance(decision, VersionMade) for decision in decisions)
    told = [decision.note for decision in decisions if hasattr(decision, "note")]
    losses = [note.loss for note in told if isinstance(note, notes.Evaluated) and note.loss is not None]
    assert losses[-1] < losses[0]

    checkpoint = Checkpoints(run.checkpoints).load_latest().checkpoint
    assert checkpoint is not None
    vector = checkpoint.tensors("parameters")["parameters"]
    assert len(vector) == exchange.exchanged
    assert exchange.trained < model_size(manifest(run).model)
    for name in ("ann", "bob"):
        assert (run.path / name / PART).read_bytes() == (run.data / PART).read_bytes()

    exported = export_model(run)
    assert exported.model_size == model_size(manifest(run).model)
    tensors = load_file(run.model / "model.safetensors")
    for name, kept in load_file(run.data / PART).items():
        assert torch.equal(tensors[name], kept)
    for leaf in exchange.layout.leaves:
        assert torch.equal(tensors[leaf.name], vector[leaf.place].view(leaf.shape))

    certificate = verify(run)
    assert {finding.file for finding in certificate.findings} <= {"seal.json"}, "what `train` writes at the end"
    figures = {part.name: part.figures for part in certificate.parts}
    assert figures["versions"]["made again"] == figures["versions"]["versions"] > 0
    assert "version" in figures["model"]

    host = open_host(run, plan, lambda text: None)  # again, as `resume` does
    assert host.resumed
    assert host.exchange == exchange
    asyncio.run(host.close())

    (run.data / PART).write_bytes(b"no tensors")
    with pytest.raises(DataError, match=r"holds frozen parameters; put it back from a copy"):
        open_host(run, plan, lambda text: None)
    assert [finding.file for finding in verify(run).findings if PART in finding.file]
