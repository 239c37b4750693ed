"""A run that exchanges some of the parameters, at a real controller over real sockets; the rest is fetched once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from barnraise.account.account import manifest
from barnraise.assembly.addresses import listen
from barnraise.assembly.exporting import export_model
from barnraise.assembly.hosting import open_host
from barnraise.assembly.preparing import prepare
from barnraise.config.load import load
from barnraise.controller.state.events import Admitted
from barnraise.core.errors import DataError, InputError
from barnraise.ledger import Checkpoints, Ledger, RunDirectory, VersionMade, notes
from barnraise.models.build import build_exchanged
from barnraise.models.build import load as load_module
from barnraise.models.memory import model_size
from barnraise.plan.purpose import SERVE
from barnraise.plan.resolve import Plan, resolve
from barnraise.transport import Keys
from barnraise.verification.verify import verify
from barnraise.worker.building import build_executor
from barnraise.worker.options import WorkerOptions
from barnraise.worker.runtime import WorkerRuntime

from ..campaigns import campaign
from ..exchanges import PART
from .test_report import MODEL

STATELESS = {"tasks": "stateless", "compression": "int8", "error_feedback": False, "merge_lerp": 0.0}


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


def prepared(folder: Path, plan: Plan) -> RunDirectory:
    run = RunDirectory.create("barn", folder)
    prepare(plan, run, lambda text: None)
    return run


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
        outcome = await WorkerRuntime(options, build=build_executor).run()
        assert outcome.final, outcome.reason

    workers = [asyncio.ensure_future(work(name)) for name in ("ann", "bob")]
    try:
        async with asyncio.timeout(120):
            await asyncio.gather(host.server.run(host.first), *workers)
    finally:
        for worker in workers:
            worker.cancel()
        await host.close()


LAYER = {"train": {"layers": [-1]}}
ADAPTERS = {"adapter": {"rank": 4, "targets": ["q_proj", "c_fc"]}, "learning_rate": 0.02}
B_ONLY = {"adapter": {"rank": 4, "train": "b_only", "base": "bfloat16"}, "learning_rate": 0.02}


@pytest.mark.parametrize(
    ("part", "stateless"),
    [
        pytest.param(LAYER, False, id="layer-stateful"),
        pytest.param(ADAPTERS, True, id="adapters-stateless"),
        campaign(LAYER, True, id="layer-stateless"),
        campaign(ADAPTERS, False, id="adapters-stateful"),
        campaign(B_ONLY, False, id="b_only-stateful"),
        campaign(B_ONLY, True, id="b_only-stateless"),
    ],
)
def test_a_run_that_trains_a_part(part: dict[str, Any], stateless: bool, tmp_path: Path) -> None:
    plan = planned(tmp_path, **part, **(STATELESS if stateless else {}))
    run = prepared(tmp_path, plan)
    told = manifest(run)
    exchange = plan.exchange(told.model, told.exchange)
    asyncio.run(play(run, plan))
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        decisions = [decision for _, decision in ledger.replay()]
    assert any(isinstance(decision, VersionMade) for decision in decisions)
    noted = [decision.note for decision in decisions if hasattr(decision, "note")]
    losses = [note.loss for note in noted if isinstance(note, notes.Evaluated) and note.loss is not None]
    assert losses[-1] < losses[0]

    checkpoint = Checkpoints(run.checkpoints).load_latest().checkpoint
    assert checkpoint is not None
    vector = checkpoint.tensors("parameters")["parameters"]
    assert len(vector) == exchange.exchanged
    assert exchange.trained < model_size(told.model)
    for name in ("ann", "bob"):
        assert (run.path / name / PART).read_bytes() == (run.data / PART).read_bytes()

    exported = export_model(run)
    assert exported.model_size == model_size(told.model)
    module = build_exchanged(told.model, exchange.in_float32(), run.data)
    exchange.module_exchange().enter(module, vector)
    ids = torch.arange(32)[None]
    written = AutoModelForCausalLM.from_pretrained(run.model)
    found, expected = (each.eval()(input_ids=ids).logits for each in (written, module))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    if "adapter" in part:
        adapter = export_model(run, form="adapter").folder
        base = tmp_path / "base"
        base.mkdir()
        (base / "model.safetensors").symlink_to(run.data / PART)
        (base / "generation_config.json").write_text("{}")
        again = PeftModel.from_pretrained(load_module(base, told.model), str(adapter))
        torch.testing.assert_close(again.eval()(input_ids=ids).logits, expected, rtol=1e-4, atol=1e-4)
    else:
        with pytest.raises(InputError, match="the run trained the model itself and no adapters; export it as model"):
            export_model(run, form="adapter")

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


def test_a_download_of_the_base_continues_where_it_ended(tmp_path: Path) -> None:
    """Two thirds are there from before; what a worker's owner has elsewhere is not fetched at all."""
    plan = planned(tmp_path, **ADAPTERS)
    run = prepared(tmp_path, plan)
    content = (run.data / PART).read_bytes()
    for name in ("ann", "bob"):
        (run.path / name).mkdir()
    there = len(content) * 2 // 3
    (run.path / "ann" / f".{PART}.partial").write_bytes(content[:there])
    (run.path / "bob" / f".{PART}.partial").write_bytes(bytes(there))
    asyncio.run(play(run, plan))
    for name in ("ann", "bob"):
        assert (run.path / name / PART).read_bytes() == content
        assert not list((run.path / name).glob("*.partial"))
