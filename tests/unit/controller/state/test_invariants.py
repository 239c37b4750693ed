"""`validate` sees what is wrong; an assignment goes only where the table says."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from barnraise.controller.state.invariants import validate
from barnraise.controller.state.state import TRANSITIONS, State, Status
from barnraise.core.types import RowRange

from ....state_machine.chances import MEASURED
from ....state_machine.engine import Engine, answer_to, contribution, engine_settings


def midway() -> State:
    """A run with open, accepted and lost work."""
    engine = Engine(engine_settings(buffer_size=3))
    for node in ("a", "b", "c"):
        engine.hello(node)
        engine.next(node)
    engine.offer("a", contribution(next(iter(engine.held["a"].values()))))
    engine.answer(engine.jobs[-1])
    engine.leave("c")
    assert engine.state.works
    assert engine.state.merging
    assert engine.state.redo
    return engine.state


def _twice_open(state: State) -> None:
    state.nodes["b"].open.append(state.nodes["b"].open[0])


def _credited_twice(state: State) -> None:
    state.totals.tokens += 12


def _lost_and_open(state: State) -> None:
    number, work = next(iter(state.works.items()))
    state.redo[number] = work


def _in_no_slot(state: State) -> None:
    state.buffer.slots["a"].clear()


def _dead_but_counted(state: State) -> None:
    state.roster.live += 1


def _anothers(state: State) -> None:
    (number,) = state.nodes["b"].open
    state.works[number] = msgspec.structs.replace(state.works[number], node="a")


def _found(state: State) -> int:
    (number,) = state.record.findings
    return number


def _found_and_open(state: State) -> None:
    state.record.findings[state.nodes["b"].open[0]] = state.record.findings[_found(state)]


def _found_in_pieces_that_overlap(state: State) -> None:
    found = state.record.findings[_found(state)]
    (rows,) = found.work.rows
    shorter = RowRange(rows.shard, rows.start, rows.stop - 1)
    work = msgspec.structs.replace(found.work, assignment=1000, rows=(shorter,))
    state.record.findings[1000] = msgspec.structs.replace(found, work=work)


def _known_and_kept(state: State) -> None:
    state.record.evaluations.append((0, 1.0))


def _found_before_it_was_done(state: State) -> None:
    found = state.record.findings[_found(state)]
    state.record.findings[_found(state)] = msgspec.structs.replace(
        found, work=msgspec.structs.replace(found.work, stage=Status.OPEN)
    )


@pytest.mark.parametrize(
    "break_it", [_found_and_open, _found_in_pieces_that_overlap, _known_and_kept, _found_before_it_was_done]
)
def test_inconsistent_findings_violate_the_invariants(break_it: Callable[[State], None]) -> None:
    engine = Engine(engine_settings(**MEASURED))
    for node in ("a", "b"):
        engine.hello(node)
        engine.next(node)
    engine.offer("a", answer_to(next(iter(engine.held["a"].values()))))
    validate(engine.state)
    break_it(engine.state)
    with pytest.raises(AssertionError):
        validate(engine.state)


@pytest.mark.parametrize(
    "break_it", [_twice_open, _credited_twice, _lost_and_open, _in_no_slot, _dead_but_counted, _anothers]
)
def test_an_inconsistent_state_violates_the_invariants(break_it: Callable[[State], None]) -> None:
    state = midway()
    validate(state)
    break_it(state)
    with pytest.raises(AssertionError):
        validate(state)


@pytest.mark.parametrize("before", Status)
@pytest.mark.parametrize("after", Status)
def test_an_assignment_makes_only_allowed_transitions(before: Status, after: Status) -> None:
    work = msgspec.structs.replace(next(iter(midway().works.values())), stage=before)
    if after in TRANSITIONS[before]:
        assert work.at(after).stage is after
    else:
        with pytest.raises(AssertionError, match="cannot be"):
            work.at(after)
