"""Audits with real tensors: another worker repeats an honest update exactly, and a false one differs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from barnraise.assembly.simulation import simulate
from barnraise.assembly.simulation_report import Report
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.controller.state.actions import Journal
from barnraise.core.types import SKETCH_BYTES, SKETCH_SIZE, Audit, Sketched
from barnraise.data.batches import Batch
from barnraise.emulation import simulator
from barnraise.emulation.attacks.executor import making
from barnraise.ledger import notes
from barnraise.ledger.decisions import Noted
from barnraise.plan import Purpose, resolve
from barnraise.training.local import LocalTrainer
from barnraise.worker.device_session import DeviceSession
from barnraise.worker.executor import WorkerExecutor

from ..campaigns import some

Told = list[tuple[str, notes.Audited]]

convicted: list[str] = []
"""Nodes that were, since the test began, if it is told of audits."""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Collect the node and the note of each audit, while the simulation runs as usual."""
    found: Told = []
    journal = simulator._ACTIONS[Journal]

    def watched(simulator: simulator.Simulator, action: Journal) -> None:
        journal(simulator, action)
        if isinstance(action.decision, Noted) and isinstance(action.decision.note, notes.Audited):
            found.append((action.decision.node, action.decision.note))
        if isinstance(action.decision, Noted) and isinstance(action.decision.note, notes.Convicted):
            convicted.append(action.decision.node)

    convicted.clear()
    monkeypatch.setitem(simulator._ACTIONS, Journal, watched)
    return found


def play(folder: Path, executors: dict[str, Any] | None = None, asynchronous: bool = False, **training: Any) -> Report:
    """Return the run of a small model, trained without moments, in which half of the contributions is audited."""
    (folder / "story.txt").write_text("once upon a time there was a barn\n" * 300)
    run_file = load(
        {
            "model": {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
            "data": {"kind": "text", "files": [str(folder / "story.txt")], "context": 16},
            "training": {
                "tokens": 16_384, "batch_size": 4, "local_steps": 4, "inner_optimizer": "sgd", "learning_rate": 0.1,
                "overlap": False, "audits": 0.5, "auto_tune": False, "error_feedback": False,
            } | training,
            "controller": {"use_async_training": asynchronous, "sync_window": 20.0, "evaluations": 2},
            "workers": [{"name": name} for name in ("ann", "bob", "cat")],
        }
    )  # fmt: skip
    trial = Trial(3, real=True, tokens_per_second=1000.0)
    return simulate(resolve(run_file, purpose=Purpose.SIMULATE, nodes=3), trial, executors=executors or {})


@pytest.mark.parametrize("downlink", some(["int8"], ["none", "int8"]))
def test_an_audit_reproduces_the_sent_update(told: Told, tmp_path: Path, downlink: str) -> None:
    """From versions that are taken back, too: rounding aside it is the same."""
    report = play(tmp_path, downlink_compression=downlink)
    assert len(told) * 4 * 4 * 16 >= report.tokens / 4
    assert all(node != note.by for node, note in told)
    assert max(note.distance for _, note in told) < 1e-3
    assert min(note.cosine for _, note in told) > 0.999_999


def test_an_audit_comes_near_a_quantised_update(told: Told, tmp_path: Path) -> None:
    play(tmp_path, compression="int8")
    assert 1e-6 < max(note.distance for _, note in told) < 0.1


def test_a_false_update_is_reported(told: Told, tmp_path: Path) -> None:
    play(tmp_path, {"bob": making({"kind": "sign_flip", "factor": 10.0}, "bob")})
    lies = [note for node, note in told if node == "bob"]
    honest = [note for node, note in told if node != "bob" and note.by != "bob"]
    assert lies
    assert honest
    assert max(note.cosine for note in lies) < 0.5
    assert min(note.distance for note in lies) > 0.9
    assert max(note.distance for note in honest) < 1e-3


def test_the_same_seed_is_the_same_run(tmp_path: Path) -> None:
    assert play(tmp_path).ledger_hash == play(tmp_path).ledger_hash


def test_an_audit_leaves_no_trace_in_the_auditor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in moments nor in residual: it is as if nothing had been done in that time."""
    options = {"inner_optimizer": "adamw", "learning_rate": 0.01, "compression": "int8", "error_feedback": True}
    done = play(tmp_path, **options)

    def nothing(executor: WorkerExecutor, task: Audit, fetched: Any, on_step: Any) -> Sketched:
        return Sketched(
            assignment=task.id, base=task.base, steps=task.steps, loss=0.0, seconds=0.0, sketch=bytes(SKETCH_BYTES)
        )

    monkeypatch.setattr(WorkerExecutor, "audit", nothing)
    other = play(tmp_path, **options)
    assert done.ledger_hash != other.ledger_hash, "it tells something else"
    assert done.losses == other.losses


STATELESS = {
    "tasks": "stateless", "inner_optimizer": "adamw", "learning_rate": 0.01, "error_feedback": None, "overlap": True,
}  # fmt: skip


def offloading(trainer: LocalTrainer, *given: Any) -> WorkerExecutor:
    trainer.offload()
    return WorkerExecutor(trainer, *given)


@pytest.mark.parametrize(
    "training",
    [
        pytest.param({"inner_optimizer": "adamw", "learning_rate": 0.01}, id="stateful", marks=pytest.mark.campaign),
        pytest.param(STATELESS, id="stateless"),
    ],
)
def test_audits_of_offloaded_optimizers_are_as_those_of_others(
    told: Told, tmp_path: Path, training: dict[str, Any]
) -> None:
    """A worker whose optimizer is offloaded audits others, and is audited by them."""
    plain, mixed = play(tmp_path, **training), play(tmp_path, {"bob": offloading}, **training)
    assert told
    assert mixed.ledger_hash == plain.ledger_hash
    assert convicted == []


@pytest.mark.campaign
def test_a_run_whose_exchanges_are_on_a_device_has_the_same_losses(tmp_path: Path) -> None:
    """Versions move its workers in the midst of tasks, with residual and the fleet's momentum."""

    def there(trainer: LocalTrainer, *given: Any) -> WorkerExecutor:
        trainer.exchanges_on_device = True  # on the CPU, by the operations of a device
        executor = WorkerExecutor(trainer, *given)
        assert isinstance(executor.course, DeviceSession)
        return executor

    options = {
        "inner_optimizer": "adamw", "learning_rate": 0.01, "compression": "sparse_loco",
        "compression_options": {"chunk": 64, "ratio": 0.125}, "error_feedback": True, "error_feedback_keep": 1.0,
        "audits": 0.0, "version_momentum": 1.0, "overlap": True,
    }  # fmt: skip
    plain, other = (
        play(tmp_path, executors, asynchronous=True, **options).losses
        for executors in ({}, dict.fromkeys(("ann", "bob", "cat"), there))
    )
    assert other.final_loss == pytest.approx(plain.final_loss, rel=1e-2)
    assert other.final_loss < 0.5 * other.curve[0].loss


ROUTES = product(("none", "int4"), ("none", "int8"), (False, True))


@pytest.mark.parametrize("route", some({("int4", "int8", True)}, ROUTES), ids=str)
def test_a_stateless_task_is_done_again_as_it_was(told: Told, tmp_path: Path, route: tuple[str, str, bool]) -> None:
    """With Adam, with versions that are taken in on the way, and in few bits."""
    compression, downlink, asynchronous = route
    report = play(
        tmp_path, asynchronous=asynchronous, compression=compression, downlink_compression=downlink, **STATELESS
    )
    assert len(told) >= 2
    assert max(note.distance for _, note in told) < 1e-2, "versions that are taken back are rounded"
    assert report.losses.final_loss is not None
    assert report.losses.final_loss < 0.7 * report.losses.curve[0].loss
    assert all(note.sound for _, note in told)
    assert convicted == []


def test_a_worker_that_skips_a_non_finite_batch_is_not_convicted(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others go through as many batches, and take as few steps."""
    run, step, bad = LocalTrainer.run, LocalTrainer.step, list[Batch]()

    def of_long_tasks(trainer: LocalTrainer, batches: Iterator[Batch], *options: Any) -> tuple[int, float]:
        """Or what is left of a task would never be done."""
        several = list(batches)
        bad.extend(several[1:-1][:1])
        return run(trainer, iter(several), *options)

    def fails(trainer: LocalTrainer, batch: Batch, rate: float) -> float | None:
        return None if any(batch is other for other in bad) else step(trainer, batch, rate)

    monkeypatch.setattr(LocalTrainer, "run", of_long_tasks)
    monkeypatch.setattr(LocalTrainer, "step", fails)
    play(tmp_path, **STATELESS)
    assert bad
    assert len(told) >= 2
    assert max(note.distance for _, note in told) < 1e-2
    assert convicted == []


class RowByRow(WorkerExecutor):
    """A node of little memory: sums of its gradients are rounded in another way."""

    def __init__(self, trainer: LocalTrainer, *options: Any) -> None:
        trainer.tokens_at_once = 1
        super().__init__(trainer, *options)


@pytest.mark.campaign
def test_long_tasks_convict_no_honest_node(told: Told, tmp_path: Path) -> None:
    """80 steps at a high rate lead machines apart that round in another way; two that are alike still agree."""
    play(
        tmp_path, {"bob": RowByRow}, tokens=20_000, batch_size=2, local_steps=80, **STATELESS | {"learning_rate": 0.05}
    )
    assert len(told) >= 3
    assert convicted == []


LIES = [
    {"kind": "sign_flip"},
    {"kind": "scale", "factor": 1.2},
    {"kind": "noise", "sigma": 0.1},
    {"kind": "zero"},
    {"kind": "stale_replay"},
    {"kind": "lazy"},
    {"kind": "label_flip"},
]


@pytest.mark.parametrize("lie", some(LIES[:1], LIES), ids=[lie["kind"] for lie in LIES])
def test_a_node_that_lies_about_stateless_work_is_convicted(told: Told, tmp_path: Path, lie: dict[str, Any]) -> None:
    """Two other nodes that agree with each other convict the liar, and the controller convicts no other node."""
    play(tmp_path, {"bob": making(lie, "bob")}, tokens=32_768, **STATELESS)
    assert convicted
    assert set(convicted) == {"bob"}


def test_an_auditor_that_lies_is_convicted_by_a_third(told: Told, tmp_path: Path) -> None:
    honest = WorkerExecutor.audit

    def lying(executor: WorkerExecutor, task: Audit, fetched: Any, on_step: Any) -> Sketched:
        found = honest(executor, task, fetched, on_step)
        return msgspec.structs.replace(found, sketch=np.ones(SKETCH_SIZE, "<f4").tobytes())

    class Liar(WorkerExecutor):
        audit = lying

    play(tmp_path, {"bob": Liar}, tokens=32_768, **STATELESS)
    assert convicted
    assert set(convicted) == {"bob"}
