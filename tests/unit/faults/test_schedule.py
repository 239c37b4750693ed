"""Which planned faults are due when, what an earlier process has played, and which target can play which kind."""

from __future__ import annotations

import asyncio
from typing import get_type_hints

import pytest

from barnraise.config.faults import (
    KINDS,
    LAB,
    SIMULATE,
    TRAIN,
    Corrupt,
    Fault,
    Join,
    Kill,
    KillController,
    OneWayLoss,
    Partition,
    Planned,
    When,
)
from barnraise.config.trial_sections import WorkerSection
from barnraise.core.errors import InputError
from barnraise.emulation.tun_hub import Disturbance
from barnraise.faults.host import FaultyHost
from barnraise.faults.injector import FaultInjector
from barnraise.faults.lab_links import LabLinks
from barnraise.faults.processes import WorkerProcesses
from barnraise.faults.schedule import FaultSchedule
from barnraise.faults.simulation import SimulatedRun
from barnraise.faults.target import FaultTarget

TARGETS: dict[str, list[type[FaultTarget]]] = {
    TRAIN: [WorkerProcesses, FaultyHost],
    LAB: [WorkerProcesses, FaultyHost, LabLinks],
    SIMULATE: [SimulatedRun],
}
"""Return the targets of faults, by the command that plays them."""


def at(fault: Fault, **when: float) -> Planned:
    name = next(name for name, kind in KINDS.items() if kind.struct is type(fault))
    return Planned(When(**when), name, fault, 0)  # type: ignore[arg-type]


def names(*found: Planned) -> list[str]:
    return [plan.nodes[0] if plan.nodes else plan.name for plan in found]


@pytest.mark.parametrize("command", TARGETS)
def test_the_targets_of_a_command_play_what_the_table_says(command: str) -> None:
    played = [kind for kind in KINDS for target in TARGETS[command] if target.plays(kind)]
    assert played == [name for name, kind in KINDS.items() if command in kind.modes]


@pytest.mark.parametrize("target", [*TARGETS[LAB], *TARGETS[SIMULATE]], ids=lambda target: target.__name__)
def test_a_target_plays_a_kind_by_its_own_struct(target: type[FaultTarget]) -> None:
    taken = {kind: get_type_hints(getattr(target, kind))["fault"] for kind in KINDS if target.plays(kind)}
    assert taken
    assert taken == {kind: KINDS[kind].struct for kind in taken}


def test_a_kind_that_no_target_can_play_is_refused() -> None:
    links = LabLinks({"a": "lab-a"}, lambda disturbance: None)
    FaultInjector(FaultSchedule([at(Partition(1.0), seconds=1.0)]), [links])
    with pytest.raises(InputError, match="kill cannot be played here"):
        FaultInjector(FaultSchedule([at(Kill(("a",)), seconds=1.0)]), [links])


def test_faults_come_in_the_order_of_their_times_and_the_controllers_death_last() -> None:
    schedule = FaultSchedule(
        [
            at(KillController(1.0), seconds=2.0),
            at(Kill(("late",)), seconds=3.0),
            at(Kill(("half",)), share=0.5),
            at(Kill(("together",)), seconds=2.0),
            at(Kill(("early",)), seconds=1.0),
            at(KillController(1.0), decisions=7),
        ]
    )
    assert names(*schedule.due(seconds=0.9, share=0.4)) == []
    assert names(*schedule.due(seconds=2.5)) == ["early", "together", "kill_controller"]
    assert schedule.is_due(0.5)
    assert not schedule.is_due(0.4)
    assert names(*schedule.due(seconds=9.0, share=0.5)) == ["late", "half"]
    assert names(*schedule.due(decisions=6)) == []
    assert names(*schedule.due(decisions=8)) == ["kill_controller"]
    assert schedule.played == [4, 3, 0, 1, 2, 5]
    assert schedule.gone == {"early", "together", "late", "half"}


def test_shares_may_be_of_a_time() -> None:
    schedule = FaultSchedule([at(Kill(("half",)), share=0.5), at(Kill(("soon",)), seconds=10.0)])
    schedule.share_of_time(60.0)
    assert schedule.times == [10.0, 30.0]
    assert not schedule.is_due(1.0)
    assert names(*schedule.due(seconds=30.0)) == ["soon", "half"]


def test_a_fault_counts_as_played_once_it_is_taken() -> None:
    schedule = FaultSchedule(
        [at(Kill(("a",)), seconds=1.0), at(KillController(1.0), seconds=2.0), at(Partition(1.0), seconds=2.5)]
    )
    for plan in schedule.due(seconds=3.0):
        if isinstance(plan.fault, KillController):
            break
    assert schedule.played == [0, 1]
    again = FaultSchedule(schedule.plans, schedule.played)
    again.skip(seconds=3.0, share=0.0)
    assert again.gone == {"a"}
    assert names(*again.due(seconds=3.0)) == ["partition"]


def test_a_run_that_is_resumed_by_hand_plays_nothing_twice() -> None:
    late = WorkerSection(name="late")
    plans = [at(Join(late), share=0.2), at(Join(late), seconds=50.0), at(KillController(1.0), decisions=4)]
    schedule = FaultSchedule(plans)
    assert schedule.expects_nodes
    schedule.skip(decisions=4)
    schedule.skip(seconds=10.0, share=0.3)
    assert schedule.joined == [late]
    assert schedule.expects_nodes
    assert not list(schedule.due(seconds=49.0, share=1.0, decisions=9))
    schedule.skip(seconds=50.0)
    assert not schedule.expects_nodes


def test_played_faults_may_belong_to_a_longer_plan() -> None:
    schedule = FaultSchedule([at(Kill(("a",)), seconds=1.0)], played=[5])
    schedule.skip(seconds=2.0)
    assert not schedule.gone
    assert names(*schedule.due(seconds=2.0)) == ["a"]


def test_the_emulator_gets_the_worst_of_concurrent_link_faults() -> None:
    told: list[Disturbance] = []

    async def play() -> None:
        links = LabLinks({"a": "lab-a", "b": "lab-b"}, told.append)
        links.play(at(Corrupt(30.0, 0.25, ("a",)), seconds=0.0))
        links.play(at(OneWayLoss(30.0, "down", share=0.5), seconds=0.0))
        links.play(at(OneWayLoss(0.0, "up", ("a",)), seconds=0.0))
        async with asyncio.timeout(20.0):
            while len(told) < 5:
                await asyncio.sleep(0)

    asyncio.run(play())
    both = (0.25, 0.25)
    assert told == [
        Disturbance("lab-a", spoiled=both),
        Disturbance("lab-a", lost=(0.0, 0.5), spoiled=both),
        Disturbance("lab-b", lost=(0.0, 0.5)),
        Disturbance("lab-a", lost=(1.0, 0.5), spoiled=both),
        Disturbance("lab-a", lost=(0.0, 0.5), spoiled=both),
    ]
