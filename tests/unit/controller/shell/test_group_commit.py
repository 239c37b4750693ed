"""A disk that is full: few warnings, one that it is over, and advice that can be followed."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnraise.assembly.preparing import new_run, prepare
from barnraise.config import load
from barnraise.controller.shell import group_commit
from barnraise.controller.shell.group_commit import GroupCommit
from barnraise.controller.shell.warnings import WAITS_AFTER, Warnings
from barnraise.core.errors import StorageError
from barnraise.core.types import ParameterRange
from barnraise.ledger import Ledger, Noted, notes
from barnraise.ledger.decisions import Claim, Decision, Judged, Weighing
from barnraise.ledger.segments import PayloadBytes
from barnraise.plan import resolve


@contextmanager
def room(num_bytes: int) -> Iterator[None]:
    """Let no file grow beyond `num_bytes`: the kernel reports that as it reports a full disk."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


class Filling(Ledger):
    """A ledger on a disk that is full for the first `full` commits."""

    tries, full = 0, 6

    def commit(self, decisions: Sequence[Decision], payloads: Mapping[int, PayloadBytes] | None = None) -> int:
        self.tries += 1
        if self.tries > self.full:
            return super().commit(decisions, payloads or {})
        with room(0):
            return super().commit(decisions, payloads or {})


def test_a_full_disk_is_reported_at_growing_intervals_and_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "DISK_PAUSE", 0.0)
    said: list[str] = []
    with Filling(tmp_path / "ledger.sqlite") as ledger:
        kept = GroupCommit(ledger, said.append)
        asyncio.run(kept.commit([Noted(1.0, notes.Advice("x"))], {}))
        asyncio.run(kept.commit([Noted(2.0, notes.Advice("y"))], {}))
        kept.close()
        assert ledger.tries == 8
        assert len(list(ledger.replay())) == 2
    first, last = said
    assert first.startswith(f"cannot write {tmp_path}")
    assert "(tried again for 60 s more; nothing is lost, workers wait)" in first
    assert "barnraise resume" not in first, "the run is still there"
    assert last == "the disk takes the ledger again, after 0 s; nothing was lost"


def test_a_checkpoint_after_failed_ones_is_reported() -> None:
    warnings = Warnings()
    failed, written = (Noted(1.0, note) for note in (notes.CheckpointFailed(3, "disk full"), notes.Checkpointed(7)))
    assert [warnings.of(noted) for noted in (written, failed, failed, written, written)] == [
        "",
        "checkpoint failed: disk full",
        "checkpoint failed: disk full",
        "checkpoint of version 7 is written, after 2 that failed",
        "",
    ]


@pytest.mark.parametrize("num_bytes", [600, 10_000])
def test_a_disk_that_fills_while_a_run_is_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_bytes: int
) -> None:
    """Nothing is left, so the advice is to start again: there is nothing to resume.

    The run file or the checkpoint does not fit.
    """
    monkeypatch.chdir(tmp_path)
    Path("story.txt").write_text("once upon a time\n" * 50)
    model = {"architecture": "gpt2", "config": {"hidden_size": 32, "num_layers": 2, "num_heads": 2}}
    data = {"kind": "text", "files": ["story.txt"], "context": 32}
    plan = resolve(load({"model": model, "data": data, "workers": [{"name": "a"}], "run": {"dir": "runs"}}))
    with pytest.raises(StorageError) as caught, new_run(plan, lambda text: None) as run, room(num_bytes):
        prepare(plan, run, lambda text: None)
    assert "free some space" in str(caught.value)
    assert str(caught.value).endswith(", then start the run again: nothing of it is left")
    assert "resume" not in str(caught.value)
    assert list(Path("runs").iterdir()) == []


def test_a_run_whose_problem_fails_in_every_task_says_that_it_waits() -> None:
    warnings, reason = Warnings(), notes.RAISED + "Line raised ValueError: odd"
    failed = Noted(1.0, notes.Released(1, reason), "ann")
    done = Judged(
        time=1.0, assignment=2, node="ann", verdict="accepted", reason="", claim=Claim(0, 1, 0.5, 1.0), version=0,
        staleness=0, tokens=1, norm=1.0, parameters=ParameterRange(0, 1), weighing=Weighing(1.0),
    )  # fmt: skip
    told = [warnings.of(failed) for _ in range(WAITS_AFTER - 1)]
    assert told[0].startswith("ann gave a task back: the problem Line raised ValueError: odd")
    assert set(told[1:]) == {""}
    assert warnings.of(done) == ""
    assert [warnings.of(failed) for _ in range(WAITS_AFTER - 1)] == [""] * (WAITS_AFTER - 1), "one was done between"
    said = warnings.of(failed)
    assert said.startswith("the run waits: its workers gave the last 10 tasks back")
    assert "the problem Line raised ValueError: odd" in said
    assert warnings.of(failed) == "", "it is said once"
