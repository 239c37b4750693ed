"""A budget of differential privacy under random events: assignments alone count, and none goes beyond the budget."""

from __future__ import annotations

import random

import pytest
from tests.state_machine.engine import Engine, answer_to, engine_settings

from barnraise.controller.state.fold import apply
from barnraise.controller.state.settings import PrivacySettings, ProtectionSettings
from barnraise.controller.state.state import State
from barnraise.core.types import Train, name_of
from barnraise.ledger.decisions import Assigned, Noted
from barnraise.ledger.notes import PrivacyBudget, PrivacySpent, Stopping
from barnraise.privacy.spending import ROW, SITE, Spending

TRAIN = name_of(Train)


def engine(unit: str, most: int) -> Engine:
    """A run whose epsilon is its number of steps: the machine does not know how it is computed."""
    budget = PrivacyBudget(unit, 1.0, 0.5, float(most), 1e-5, most)
    return Engine(engine_settings(protection=ProtectionSettings(PrivacySettings(budget, float)), max_local_steps=2))


def again(found: Engine) -> Spending:
    """The count of a resume, or of a standby: the journal, folded from its first row."""
    state = State()
    for decision in found.journal:
        apply(state, decision)
    assert state.progress.spending is not None
    return state.progress.spending


def play(found: Engine, chance: random.Random, events: int = 150) -> None:
    """Nodes join, ask, send, are lost and come back without their work; the controller's process is lost too."""
    nodes = ["a", "b", "c"]
    for node in nodes:
        found.hello(node)
    for _ in range(events):
        if found.finished:
            return
        node, found.now = chance.choice(nodes), found.now + chance.random()
        drawn = chance.random()
        if drawn < 0.5:
            found.next(node)
        elif drawn < 0.7 and found.jobs:
            found.answer(chance.choice(found.jobs), good=chance.random() < 0.9)
        elif drawn < 0.8:
            found.hello(node, restart=True)
        elif drawn < 0.95:
            open_tasks = [task for task in found.held.get(node, {}).values() if isinstance(task, Train)]
            if open_tasks:
                found.offer(node, answer_to(chance.choice(open_tasks)))
        else:
            found.crash()
            for other in nodes:
                found.hello(other)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize(("unit", "most"), [(ROW, 6), (SITE, 9)])
def test_a_run_never_assigns_more_than_its_budget(unit: str, most: int, seed: int) -> None:
    found = engine(unit, most)
    play(found, random.Random(seed))
    by_hand = Spending(unit)
    given = [row for row in found.journal if isinstance(row, Assigned) and row.kind == TRAIN]
    for row in given:
        by_hand.assigned(row.node, row.rows, row.local_steps)
    assert given
    assert by_hand.most <= most
    assert (again(found).most, again(found).stops) == (by_hand.most, by_hand.stops)
    assert found.state.progress.spending == again(found)
    told = [row.note for row in found.journal if isinstance(row, Noted) and isinstance(row.note, PrivacySpent)]
    assert [note.steps for note in told] == sorted({note.steps for note in told})
    budgets = [row for row in found.journal if isinstance(row, Noted) and isinstance(row.note, PrivacyBudget)]
    assert len(budgets) == 1


def test_a_run_stops_at_the_task_for_which_nothing_is_left() -> None:
    found = engine(ROW, 2)
    found.hello("a")
    for _ in range(30):
        found.next("a")
        for task in list(found.held["a"].values()):
            if isinstance(task, Train):
                found.offer("a", answer_to(task))
        for job in list(found.jobs):
            found.answer(job)
    reasons = [row.note.reason for row in found.journal if isinstance(row, Noted) and isinstance(row.note, Stopping)]
    (reason,) = reasons
    assert reason.endswith("no room for the next task: epsilon 2 of 2 at delta 1e-05 is spent for a row")


def test_a_result_that_is_refused_has_spent_its_task() -> None:
    found = engine(SITE, 9)
    found.hello("a")
    found.next("a")
    before = again(found).most
    found.hello("a", restart=True)  # it lost its work
    found.next("a")
    assert (before, again(found).most) == (1, 2)
