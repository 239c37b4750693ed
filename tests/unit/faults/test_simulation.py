"""Planned faults in a simulation: each kind does what its sentence says, the run comes to its end, and repeats."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from barnraise.assembly.simulation import simulate
from barnraise.assembly.simulation_report import Report
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.config.faults import KINDS
from barnraise.controller.state.invariants import validate
from barnraise.core.errors import RunFailedError
from barnraise.emulation.simulator import Simulator
from barnraise.faults.conditions import Conditions
from barnraise.faults.links import Effect, Fate
from barnraise.faults.simulation import FaultySimulator
from barnraise.ledger import notes
from barnraise.ledger.decisions import Change, Judged, NodeChanged, Noted
from barnraise.ledger.notes import Resumed
from barnraise.plan import Purpose, resolve

NAMES = ["ann", "bob", "cat", "dan"]
FAR: dict[str, Any] = {"at_seconds": 9e5, "kill": "dan"}
"""A fault that never comes."""


def play(
    *faults: dict[str, Any], see: Callable[[Simulator], None] = lambda simulator: None, **trial: Any
) -> tuple[Report, FaultySimulator]:
    """Return the run of four nodes of one speed, and its simulator."""
    content = {
        "model": {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
        "data": {"kind": "sat", "examples": 20_000, "held_out": 20},
        "workers": [{"name": name} for name in NAMES],
        "training": {"tokens": 300_000, "batch_size": 4, "local_steps": 10},
        "faults": list(faults),
    }
    plan = resolve(load(content), purpose=Purpose.SIMULATE, nodes=4)
    simulators: list[Any] = []

    @contextmanager
    def watch(simulator: Simulator) -> Iterator[None]:
        simulators.append(simulator)
        see(simulator)
        yield

    arguments = {"nodes": 4, "tokens_per_second": 500.0} | trial
    return simulate(plan, Trial(**arguments), watch), simulators[0]


EXAMPLES: dict[str, dict[str, Any]] = {
    "kill": {"do": "kill", "node": "bob"},
    "join": {"join": {"name": "eve"}},
    "hang": {"do": "hang", "node": "bob", "seconds": 30.0},
    "preempt": {"do": "preempt", "node": "bob", "seconds": 20.0},
    "partition": {"do": "partition", "nodes": ["ann", "bob"], "seconds": 30.0},
    "one_way_loss": {"do": "one_way_loss", "way": "up", "seconds": 30.0},
    "corrupt": {"do": "corrupt", "share": 0.2, "seconds": 60.0},
    "duplicate": {"do": "duplicate", "share": 0.5, "seconds": 60.0},
    "reorder": {"do": "reorder", "share": 0.3, "seconds": 60.0},
    "slow_disk": {"do": "slow_disk", "seconds": 30.0, "by_seconds": 0.5},
    "full_disk": {"do": "full_disk", "seconds": 30.0},
    "clock_jump": {"do": "clock_jump", "by_seconds": 3600.0},
    "kill_controller": {"do": "kill_controller", "seconds": 5.0},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_with_a_fault_ends_and_repeats(kind: str) -> None:
    fault = EXAMPLES[kind] | {"at_seconds": 60.0}
    found, simulator = play(fault)
    assert found.tokens >= 300_000
    assert found.end == "the token budget is met"
    validate(simulator.controller.state)
    assert repr(simulator.journal.replay()) == repr(simulator.controller.state)
    assert play(fault)[0].ledger_hash == found.ledger_hash
    assert play()[0].ledger_hash != found.ledger_hash


def changes(simulator: FaultySimulator, node: str) -> list[tuple[Change, float]]:
    found = (d for d in simulator.journal.decisions if isinstance(d, NodeChanged) and d.node == node)
    return [(d.change, d.time) for d in found]


def noted(simulator: FaultySimulator, sort: type[notes.Note]) -> list[Noted]:
    return [d for d in simulator.journal.decisions if isinstance(d, Noted) and isinstance(d.note, sort)]


def moves(tmp_path: Path, *lines: str) -> dict[str, Any]:
    """A simulation of six virtual minutes, in which machines leave and come back as a trace says."""
    (tmp_path / "trace.csv").write_text("\n".join(lines))
    return {"churn": str(tmp_path / "trace.csv"), "hours": 0.1}


def test_a_node_that_dies_as_it_starts_comes_back_when_its_machine_does(tmp_path: Path) -> None:
    """Its departure at 100 s was planned for a process that lived no more, and stopped one that did not live."""
    trace = moves(tmp_path, "ann,0,up", "ann,100,down", "ann,200,up", "ann,300,down")
    _, simulator = play({"at_seconds": 0.0, "kill": "ann"}, **trace)
    assert simulator.nodes["ann"].incarnation == 4, "up, killed, up at 200 s, down at 300 s"


def test_a_node_that_is_preempted_twice_at_once_comes_back_once(tmp_path: Path) -> None:
    trace = moves(tmp_path, "bob,0,up", "bob,95,down", "bob,100,up", "bob,300,down")
    notice = {"at_seconds": 60.0, "do": "preempt", "node": "bob", "seconds": 20.0}
    _, simulator = play(notice, notice | {"seconds": 21.0}, **trace)
    assert simulator.nodes["bob"].incarnation == 4


def test_a_killed_node_stays_away_and_a_joining_node_contributes() -> None:
    _, simulator = play({"at_seconds": 60.0, "kill": "bob"}, {"at": 0.3, "join": {"name": "eve"}})
    (silent, when) = changes(simulator, "bob")[-1]
    assert silent == Change.SILENT
    assert 60.0 < when < 90.0
    assert changes(simulator, "eve")[1][0] == Change.JOINED
    assert simulator.controller.state.nodes["eve"].tally.accepted > 0


@pytest.mark.parametrize("do", ["hang", "partition"])
def test_a_hung_or_partitioned_node_returns_with_the_same_session(do: str) -> None:
    _, simulator = play({"at_seconds": 60.0, "do": do, "node": "bob", "seconds": 40.0})
    found = changes(simulator, "bob")
    silent = next(when for change, when in found if change == Change.SILENT)
    back = next(when for change, when in found if change == Change.JOINED and when > silent)
    assert 60.0 < silent < 100.0 <= back < 110.0
    joins = [d for d in simulator.journal.decisions if isinstance(d, NodeChanged) and d.change == Change.JOINED]
    assert len({d.session for d in joins if d.node == "bob"}) == 1


def test_a_preempted_worker_with_notice_submits_its_completed_steps() -> None:
    _, simulator = play({"at_seconds": 61.0, "do": "preempt", "node": "bob", "seconds": 20.0})
    assert changes(simulator, "bob")[-1][0] == Change.LEFT
    whole = simulator.controller.settings.tasks.local_steps
    claims = [d.claim.steps for d in simulator.journal.decisions if isinstance(d, Judged) and d.node == "bob"]
    assert 0 < claims[-1] < whole
    _, killed = play({"at_seconds": 60.0, "do": "preempt", "node": "bob", "seconds": 0.01})
    assert changes(killed, "bob")[-1][0] == Change.SILENT


@pytest.mark.parametrize(
    "fault",
    [
        {"do": "kill"},
        {"do": "hang", "seconds": 40.0},
        {"do": "preempt", "seconds": 5.0},
        {"do": "clock_jump", "by_seconds": 9.0},
    ],
)
@pytest.mark.parametrize("name", ["bob", "eve"])
def test_a_fault_of_a_node_that_has_not_started_strikes_at_its_start(fault: dict[str, Any], name: str) -> None:
    """The injector starts `bob` within the first second, and `eve` later."""
    join: dict[str, Any] = {"at": 0.3, "join": {"name": "eve"}}
    _, usual = play(join)
    _, simulator = play(join, fault | {"at_seconds": 0.0, "node": name})
    joined = changes(usual, name)[1][1]
    node = simulator.nodes[name]
    if fault["do"] == "clock_jump":
        assert node.skew == 9.0
    elif fault["do"] == "hang":
        assert simulator.conditions[name].wakes_at(1) == pytest.approx(joined + 40.0, abs=1.0)
    else:
        assert not node.up
        assert simulator.controller.state.nodes[name].tally.accepted == 0


def test_the_worst_of_simultaneous_faults_counts() -> None:
    conditions, rng = Conditions(), random.Random(0)
    for fate in (Fate.TWICE, Fate.LATE, Fate.CORRUPT, Fate.LOST):
        conditions.effects.append(Effect(fate, "", 1.0, rng))
        assert (effect := conditions.strikes("up")) is not None
        assert effect.fate is fate
    conditions.effects = [Effect(Fate.TWICE, "", 1.0, rng), Effect(Fate.LOST, "down", 1.0, rng)]
    assert [effect.fate for way in ("up", "down") if (effect := conditions.strikes(way))] == [Fate.TWICE, Fate.LOST]


def test_frames_that_cannot_be_read_are_on_the_ledger() -> None:
    _, simulator = play({"at_seconds": 60.0, "do": "corrupt", "share": 0.3, "seconds": 30.0, "node": "bob"})
    assert {d.node for d in noted(simulator, notes.FrameDropped)} == {"bob"}


def test_a_disk_that_stays_full_ends_the_run() -> None:
    with pytest.raises(RunFailedError, match="no space left on the disk"):
        play({"at_seconds": 60.0, "do": "full_disk", "seconds": 600.0})
    slow, _ = play({"at_seconds": 60.0, "do": "slow_disk", "seconds": 60.0, "by_seconds": 5.0})
    assert slow.duration.virtual_seconds > play()[0].duration.virtual_seconds


def test_a_clock_that_jumps_is_the_ledgers() -> None:
    found, simulator = play({"at_seconds": 60.0, "do": "clock_jump", "by_seconds": 3600.0})
    times = [decision.time for decision in simulator.journal.decisions]
    assert times == sorted(times)
    assert max(times) == pytest.approx(found.duration.virtual_seconds + 3600.0)


@pytest.mark.parametrize("number", [1, 2, 5, 17, 40, 41, 42, 43])
def test_a_controller_dies_after_any_decision_and_comes_back(number: int) -> None:
    found, simulator = play({"at_decisions": number, "do": "kill_controller", "seconds": 5.0})
    assert found.tokens >= 300_000
    journal = simulator.journal.decisions
    resumed = [index for index, d in enumerate(journal) if isinstance(d, Noted) and isinstance(d.note, Resumed)]
    assert simulator.epoch == 2
    assert len(resumed) <= 1
    assert all(index >= number for index in resumed)


@pytest.mark.campaign
def test_real_tensors_survive_the_controllers_death() -> None:
    faults = [{"at_decisions": n, "do": "kill_controller", "seconds": 5.0} for n in (20, 60)]
    found, simulator = play(*faults, real=True)
    assert simulator.epoch == 3
    assert found.losses.final_loss is not None
    assert found.losses.first_loss is not None
    assert found.losses.final_loss < found.losses.first_loss


def test_a_trace_sets_which_nodes_are_up(tmp_path: Path) -> None:
    (tmp_path / "fleet.csv").write_text("bob,60,down\nbob,120,up\n")
    (found, _), (usual, _) = play(FAR, churn=str(tmp_path / "fleet.csv")), play(FAR)
    _, simulator = play(FAR, churn=str(tmp_path / "fleet.csv"))
    away = [when for change, when in changes(simulator, "bob") if change == Change.SILENT]
    assert len(away) == 1
    assert 60.0 < away[0] < 90.0
    assert found.duration.virtual_seconds > usual.duration.virtual_seconds
    assert found.tokens >= 300_000


def test_a_trace_may_begin_with_a_machine_that_is_away(tmp_path: Path) -> None:
    (tmp_path / "fleet.csv").write_text("bob,0,down\nbob,120,up\ncat,0,down\n")
    found, simulator = play(FAR, churn=str(tmp_path / "fleet.csv"))
    assert 120.0 < min(when for change, when in changes(simulator, "bob") if change == Change.JOINED) < 150.0
    assert Change.JOINED not in [change for change, _ in changes(simulator, "cat")]
    assert found.tokens >= 300_000
