"""Measurement of a version by the sites, each on its own held-out rows."""

from __future__ import annotations

from typing import Any

import pytest
from tests.state_machine.engine import OWN_FORM, Engine, Measured, answer_to, engine_settings, own_rows

from barnraise.controller.state.settings import EvaluationSettings, RowNeeds, SiteSettings
from barnraise.controller.state.state import State
from barnraise.controller.versions.evaluation import PATIENCE
from barnraise.core.types import Evaluate
from barnraise.data.ranges import RowIndex
from barnraise.ledger import notes
from barnraise.ledger.decisions import Assigned, Judged, Noted

LOSSES = {"a": 1.0, "b": 2.0, "c": 4.0}


class SiteBook(Measured):
    """Measurements by sites according to the journal: each site has at most one task for a version at a time."""

    def assigned(self, d: Assigned, made: int) -> None:
        assert not any((self.tasks[i].node, self.tasks[i].base) == (d.node, d.base) for i in self.open)
        assert d.base > self.evaluated
        self.tasks[d.assignment] = d
        self.open.add(d.assignment)

    def judged(self, d: Judged) -> None:
        self.open.remove(d.assignment)
        self.verdicts[d.assignment] = d

    def released(self, number: int) -> None:
        self.open.remove(number)

    def reopened(self, number: int) -> None:
        self.open.add(number)

    def noted(self, version: int, loss: float | None, own: float, owners: int) -> None:
        assert version > self.evaluated
        self.evaluated = version

    def compare(self, state: State) -> None:
        assert self.open == {i for i, work in state.works.items() if work.kind == "evaluate"}


def engine_of() -> Engine:
    needs = RowNeeds(2, {}, sites=SiteSettings(OWN_FORM))
    evaluations = EvaluationSettings(times=4, rows=10, row_tokens=3, file=0, by_workers=True, by_sites=True)
    engine = Engine(engine_settings(rows=RowIndex([]), needs=needs, evaluations=evaluations))
    engine.account.measured = SiteBook(engine.settings, lambda node: node)
    return engine


def join(engine: Engine, **losses: str) -> None:
    for node, said in losses.items():
        engine.hello(node, own=own_rows(node, losses=said, held_out=0 if said == "off" else 4))


def measure(engine: Engine, *nodes: str) -> None:
    for node in nodes:
        for _ in range(3):
            engine.next(node)
            for task in list(engine.held[node].values()):
                changes: dict[str, Any] = {"loss": LOSSES[node]} if isinstance(task, Evaluate) else {}
                if isinstance(task, Evaluate):
                    assert task.held_out.shard == engine.state.roster.sites[node].lane
                    assert (task.held_out.start, task.held_out.stop) == (0, 4)
                engine.offer(node, answer_to(task, **changes))


def evaluated(engine: Engine) -> list[notes.Evaluated]:
    return [d.note for d in engine.journal if isinstance(d, Noted) and isinstance(d.note, notes.Evaluated)]


def measured(engine: Engine) -> dict[str, float]:
    """Return the losses of nodes that the ledger has."""
    found = [d for d in engine.journal if isinstance(d, Judged) and d.claim.result == "finding"]
    return {d.node: d.claim.loss for d in found}


def test_the_loss_is_the_mean_over_the_sites() -> None:
    engine = engine_of()
    join(engine, a="mean", b="mean", c="each")
    measure(engine, "a", "b", "c")
    note = evaluated(engine)[0]
    assert (note.version, note.owners) == (0, 3)
    assert note.loss == pytest.approx(7 / 3)


def test_only_a_site_that_agrees_has_its_loss_on_the_ledger() -> None:
    engine = engine_of()
    join(engine, a="mean", b="mean", c="each")
    measure(engine, "a", "b", "c")
    assert measured(engine) == {"a": 0.0, "b": 0.0, "c": 4.0}


def test_a_site_that_agrees_to_nothing_measures_nothing() -> None:
    engine = engine_of()
    join(engine, a="mean", b="mean", c="off")
    measure(engine, "c", "a", "b")
    assert measured(engine).keys() == {"a", "b"}
    assert evaluated(engine)[0].loss == pytest.approx(1.5)


def test_the_mean_does_not_give_away_the_one_site_that_hides_its_loss() -> None:
    engine = engine_of()
    join(engine, a="mean", b="each", c="each")
    measure(engine, "a", "b", "c")
    assert evaluated(engine)[0].loss == pytest.approx(3.0), "b and c alone"
    alone = engine_of()
    join(alone, a="mean")
    measure(alone, "a")
    assert evaluated(alone)[0].loss is None


def test_a_site_that_does_not_answer_is_not_waited_for_forever() -> None:
    engine = engine_of()
    join(engine, a="each", b="each")
    measure(engine, "a")
    assert not evaluated(engine)
    for _ in range(int(PATIENCE) + 5):
        engine.tick(1.0)
        for node in ("a", "b"):
            engine.heartbeat(node)
    assert evaluated(engine)[0].loss == pytest.approx(1.0)


def test_a_restart_measures_anew_as_hidden_losses_are_forgotten() -> None:
    engine = engine_of()
    join(engine, a="mean", b="mean")
    measure(engine, "a")
    engine.crash()
    join(engine, a="mean", b="mean")
    measure(engine, "a", "b")
    assert evaluated(engine)[0].loss == pytest.approx(1.5)
