"""Faults of the controller's own process: its disk and its clock; its death takes a supervisor (tests/e2e)."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from barnraise.config.faults import ClockJump, FullDisk, KillController, Planned, SlowDisk, When
from barnraise.core.errors import InputError, StorageError
from barnraise.faults.host import FaultyHost
from barnraise.faults.schedule import FaultSchedule
from barnraise.ledger import RunDirectory
from barnraise.ledger.decisions import Change, NodeChanged

ENROLLED = NodeChanged(1.0, "a", Change.ENROLLED, key="key")


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create("trial", tmp_path)


def during(run: RunDirectory, plan: Planned, look: Callable[[FaultyHost], None]) -> FaultyHost:
    """Play a fault, look, and wait until it is over."""

    async def play() -> FaultyHost:
        faults = FaultyHost(FaultSchedule([plan]), run)
        faults.play(plan)
        look(faults)
        while faults.full or faults.slow:
            await asyncio.sleep(0.01)
        return faults

    return asyncio.run(play())


def test_a_full_disk_takes_nothing_and_loses_nothing(run: RunDirectory) -> None:
    def look(faults: FaultyHost) -> None:
        with faults.ledger(run) as ledger:
            with pytest.raises(StorageError, match="cannot write"):
                ledger.commit([ENROLLED])
            assert not list(ledger.replay())
            with pytest.raises(StorageError, match="File too large"):
                faults.checkpoints(run).save(1, ledger_id=0, parameters_digest="", state=b"state", tensors={"p": {}})
            (run.path / "of another").write_text("what is not the ledger's is written")

    faults = during(run, Planned(When(seconds=0.0), "full_disk", FullDisk(0.1), 0), look)
    with faults.ledger(run) as ledger:
        assert ledger.commit([ENROLLED]) == 1
    assert faults.checkpoints(run).load_latest().checkpoint is None


def test_the_last_of_two_concurrent_writers_restores_the_file_size_limit(run: RunDirectory) -> None:
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)

    def look(faults: FaultyHost) -> None:
        first, second = faults.at_disk(), faults.at_disk()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == 0
        second.__exit__(None, None, None)
        assert resource.getrlimit(resource.RLIMIT_FSIZE) == usual

    try:
        during(run, Planned(When(seconds=0.0), "full_disk", FullDisk(0.01), 0), look)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


def test_a_slow_disk_takes_its_time(run: RunDirectory) -> None:
    def look(faults: FaultyHost) -> None:
        assert faults.slow == [0.05]
        with faults.ledger(run) as ledger:
            assert ledger.commit([ENROLLED]) == 1

    during(run, Planned(When(seconds=0.0), "slow_disk", SlowDisk(0.1, 0.05), 0), look)


def test_a_clock_jumps(run: RunDirectory) -> None:
    plan = Planned(When(seconds=0.0), "clock_jump", ClockJump(1000.0), 0)
    faults = FaultyHost(FaultSchedule([plan]), run)
    clock = faults.clock(5.0)
    before = clock()
    assert 5.0 <= before < 1000.0
    faults.play(plan)
    assert clock() >= before + 1000.0


def test_a_death_takes_a_command_of_its_own(run: RunDirectory) -> None:
    with pytest.raises(InputError, match="`barnraise train`"):
        FaultyHost(FaultSchedule([Planned(When(decisions=3), "kill_controller", KillController(1.0), 0)]), run)
