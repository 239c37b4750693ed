"""Closing in steps: a list of which only the sum can be read is released once, and made as a whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnraise.controller.machine import Controller
from barnraise.controller.state import effects
from barnraise.controller.state.actions import Action, Journal
from barnraise.controller.state.events import Tick
from barnraise.controller.state.fold import apply
from barnraise.controller.state.invariants import validate
from barnraise.controller.state.state import State
from barnraise.core import types
from barnraise.core.types import Blob, Completion, ParameterRange, RowRange, Train
from barnraise.ledger import Ledger, notes
from barnraise.ledger.decisions import Assigned, Claim, Decision, Judged, Noted, Terms, VersionClosed, Weighing

from ....state_machine.engine import Engine, digest, engine_settings

SETTINGS = engine_settings(asynchronous=True, buffer_size=2, tokens=10**6)
SPAN = SETTINGS.payloads.partitions[0][0]


class Masked(Train, frozen=True, gc=False, tag="masked", kw_only=True):
    """Training whose update is masked: masks cancel in the sum of a cohort."""

    gathers = Completion("sum")
    inspects = "none"


class Run:
    """A controller whose decisions are kept, as a ledger would, with two nodes."""

    def __init__(self) -> None:
        engine = Engine(SETTINGS)
        for node in ("ann", "bob"):
            engine.hello(node)
        self.journal: list[Decision] = list(engine.journal)
        self.machine: Controller = engine.machine
        self.now = engine.now

    @property
    def state(self) -> State:
        return self.machine.state

    def decide(self, *decisions: Decision) -> None:
        self.take(self.machine._carry(decisions, []))

    def take(self, actions: list[Action]) -> list[Action]:
        self.journal += [action.decision for action in actions if isinstance(action, Journal)]
        validate(self.state)
        return actions

    def tick(self) -> list[Action]:
        self.now += 1.0
        return self.take(self.machine.handle(Tick(), self.now))

    def resume(self) -> list[Action]:
        """Start another controller from the decisions; return what it does first."""
        state = State()
        for decision in self.journal:
            apply(state, decision)
        validate(state)
        self.machine = Controller(SETTINGS, state, epoch=2)
        return self.take(self.machine.resume(self.now, 10.0))


def assigned(number: int, node: str, cohort: int, kind: str = "masked") -> Assigned:
    terms = Terms(max_staleness=9, learning_rate=0.1, parameters=SPAN)
    rows = (RowRange(0, number, number + 1),)
    return Assigned(
        0.0, number, node, kind, base=0, tokens=12, local_steps=3, rows=rows, cursor=number, terms=terms, cohort=cohort
    )


def accepted(number: int, node: str) -> Judged:
    claim = Claim(base=0, steps=3, loss=1.0, seconds=1.0, num_bytes=9, digest=digest(number), codec=0, result="update")
    return Judged(
        1.0, number, node, "accepted", "", claim, version=0, staleness=0, tokens=12, norm=0.0, parameters=SPAN,
        weighing=Weighing(12.0),
    )  # fmt: skip


def told(actions: list[Action], kind: type) -> list[Any]:
    decisions = [action.decision for action in actions if isinstance(action, Journal)]
    return [d.note for d in decisions if isinstance(d, Noted) and isinstance(d.note, kind)]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run with two masked results of one cohort in its buffer."""
    monkeypatch.setitem(types.KINDS, "masked", Masked)
    found = Run()
    found.decide(assigned(1, "ann", 1), assigned(2, "bob", 1))
    found.decide(accepted(1, "ann"), accepted(2, "bob"))
    return found


def test_a_named_cohort_has_its_members_from_their_assignment_on(run: Run) -> None:
    cohort = run.state.cohorts[1]
    assert (set(cohort.members), cohort.came) == ({1, 2}, {"ann", "bob"})
    assert cohort.completion == Masked.gathers


def test_the_list_of_a_sum_is_released_before_its_version_is_made(run: Run) -> None:
    actions = run.tick()
    decisions = [action.decision for action in actions if isinstance(action, Journal)]
    steps = [type(d.note) if isinstance(d, Noted) else type(d) for d in decisions]
    closed, released = steps.index(VersionClosed), steps.index(notes.VersionReleased)
    assert closed < released
    aggregate = actions[-1]
    assert isinstance(aggregate, effects.Aggregate)
    (note,) = told(actions, notes.VersionReleased)
    closing = run.state.closing
    assert closing is not None
    assert note == notes.VersionReleased(1, closing.list_digest)
    delta = Blob(digest(99), 9)
    run.take(run.machine.handle(effects.Aggregated(1, 1, digest(1), delta), run.now))
    assert run.state.newest.version == 1
    assert not run.state.cohorts, "the sum is made"


def test_a_release_is_repeated_for_the_same_list_after_a_crash(run: Run) -> None:
    before = [action for action in run.tick() if isinstance(action, effects.Aggregate)]
    again = run.resume()
    assert not told(again, notes.VersionReleased), "it is on the ledger"
    (made,) = [action for action in again if isinstance(action, effects.Aggregate)]
    assert (made.version, made.slots) == (before[0].version, before[0].slots)
    assert made.epoch == 2


def test_a_crash_between_close_and_release_releases_the_closed_list(run: Run) -> None:
    run.tick()
    noted = [getattr(decision, "note", None) for decision in run.journal]
    (place,) = [number for number, note in enumerate(noted) if isinstance(note, notes.VersionReleased)]
    del run.journal[place:]
    again = run.resume()
    (note,) = told(again, notes.VersionReleased)
    assert run.state.closing is not None
    assert note.digest == run.state.closing.list_digest


def test_a_released_version_that_cannot_be_made_is_the_one_before_and_its_work_is_done_again(run: Run) -> None:
    run.tick()
    actions = run.take(run.machine.handle(effects.Unmade(1, 1, {2: "cannot be decoded"}, {}), run.now))
    (note,) = told(actions, notes.VersionRefused)
    assert note == notes.VersionRefused(1, "contribution 2 cannot be decoded", (1, 2))
    assert [voided.assignment for voided in told(actions, notes.Voided)] == [1, 2], "no member leaves a list alone"
    (again,) = [action for action in actions if isinstance(action, effects.Aggregate)]
    assert not any(slot.contributions for slot in again.slots)
    assert not told(actions, notes.VersionReleased), "there is no list any more"
    assert set(run.state.redo) == {1, 2}
    assert all(node.tally.refused == 0 for node in run.state.nodes.values()), "a sum says nothing about one node"
    run.take(run.machine.handle(effects.Aggregated(1, 1, digest(1), Blob(digest(99), 9)), run.now))
    assert (run.state.newest.version, run.state.totals.tokens, run.state.closing) == (1, 0, None)
    state = State()
    for decision in run.journal:
        apply(state, decision)
    assert state == run.state


def test_decisions_of_a_release_and_a_refusal_fit_the_ledger(run: Run, tmp_path: Path) -> None:
    """The number of a version that is not made of its list is used all the same: the ledger has each number once."""
    run.tick()
    run.take(run.machine.handle(effects.Unmade(1, 1, {2: "cannot be decoded"}, {}), run.now))
    run.take(run.machine.handle(effects.Aggregated(1, 1, digest(1), Blob(digest(99), 9)), run.now))
    run.decide(assigned(3, "ann", 3), assigned(4, "bob", 3), accepted(3, "ann"), accepted(4, "bob"))
    assert told(run.tick(), notes.VersionReleased)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.commit(run.journal, dict.fromkeys((1, 2, 3, 4), b"payload"))
        assert ledger.merged(0) == {1: (), 2: (3, 4)}
        assert [decision for _, decision in ledger.replay()] == run.journal


def test_a_list_is_released_once_whatever_the_ledger_says_later(run: Run) -> None:
    run.tick()
    assert run.state.closing is not None
    first = run.state.closing.released
    for note in (notes.VersionReleased(1, digest(7)), notes.VersionReleased(2, digest(8))):
        apply(run.state, Noted(9.0, note))
    assert run.state.closing.released == first
    run.state.closing.slots = run.state.closing.slots[:1]
    with pytest.raises(AssertionError, match=r"in the version that is being made|accepted are|released list"):
        validate(run.state)


def test_rows_are_made_without_a_release() -> None:
    run = Run()
    run.decide(assigned(1, "ann", 0, "train"), assigned(2, "bob", 0, "train"))
    run.decide(accepted(1, "ann"), accepted(2, "bob"))
    actions = run.tick()
    assert isinstance(actions[-1], effects.Aggregate)
    assert not told(actions, notes.VersionReleased)
    assert not run.state.cohorts


def test_updates_of_one_cohort_have_one_support_whatever_their_base() -> None:
    def task(base: int, **more: Any) -> Train:
        return Train(
            id=1, base=base, batches=types.Batches((), 1, 0), tokens=0, local_steps=1, learning_rate=0.1, rung=0,
            parameters=ParameterRange(0, 4), max_staleness=9, **more,
        )  # fmt: skip

    assert [task(base).support for base in (3, 4)] == [3, 4]
    assert [task(base, cohort=77).support for base in (3, 4)] == [77, 77]
    made = types.Contribution.of(task(3, cohort=77), Blob(digest(1), 9), codec=0, steps=1)
    assert made.support == 77
