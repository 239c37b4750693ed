"""Nodes with rows of their own, and the draw of those that train from a version."""

from __future__ import annotations

from typing import Any

from tests.state_machine.engine import OWN_FORM, Engine, answer_to, digest, engine_settings, own_rows

from barnraise.controller.sites.sites import Sites
from barnraise.controller.state import events as ev
from barnraise.controller.state.settings import PrivacySettings, ProtectionSettings, RowNeeds, SiteSettings
from barnraise.core.types import RowRange, Train
from barnraise.data.ranges import RowIndex
from barnraise.ledger import notes
from barnraise.ledger.decisions import Assigned, Noted
from barnraise.privacy.spending import ROW, SITE


def engine_of(share: float = 1.0, **changes: Any) -> Engine:
    needs = RowNeeds(2, {}, sites=SiteSettings(OWN_FORM, share))
    return Engine(engine_settings(rows=RowIndex([]), needs=needs, **changes))


def noted(engine: Engine, kind: type[notes.Note]) -> list[tuple[str, Any]]:
    return [(d.node, d.note) for d in engine.journal if isinstance(d, Noted) and isinstance(d.note, kind)]


def test_a_site_gets_tasks_on_its_own_lane_only() -> None:
    engine = engine_of()
    for node in ("a", "b", "a", "b"):
        engine.hello(node)
        engine.next(node)
        for task in list(engine.held[node].values()):
            engine.offer(node, answer_to(task))
    lanes = {node: site.lane for node, site in engine.state.roster.sites.items()}
    given = [d for d in engine.journal if isinstance(d, Assigned) and d.kind == "train"]
    assert {d.node for d in given} == {"a", "b"}
    assert all({rows.shard for rows in d.rows} == {lanes[d.node]} for d in given)


def test_a_node_without_rows_gets_no_task() -> None:
    engine = engine_of()
    engine.hello("a", own=None)
    engine.next("a")
    assert not engine.held["a"]
    assert "a" not in engine.state.roster.sites


def test_rows_of_another_form_are_refused_with_the_sender() -> None:
    engine = engine_of()
    engine.hello("a", own=own_rows("a", form=digest(5)))
    ((node, note),) = noted(engine, notes.SiteRefused)
    assert node == "a"
    assert "tokenizer or form" in note.reason
    assert "a" not in engine.state.roster.sites
    engine.next("a")
    assert not engine.held["a"]


def test_lost_work_waits_for_its_site_and_is_dropped_once_it_is_revoked() -> None:
    engine = engine_of()
    for node in ("a", "b"):
        engine.hello(node)
    engine.next("a")
    (task,) = engine.held["a"].values()
    engine.leave("a")
    assert [(node, note.tasks) for node, note in noted(engine, notes.SiteAwaited)] == [("a", 1)]
    for _ in range(3):
        engine.next("b")
        for other in list(engine.held["b"].values()):
            assert isinstance(other, Train)
            assert other.rows[0].shard == engine.state.roster.sites["b"].lane
            engine.offer("b", answer_to(other))
    assert list(engine.state.redo) == [task.id]
    engine.handle(ev.RevokeRequested("a", "its owner asked"))
    assert not engine.state.redo


def test_other_rows_open_another_lane_and_end_the_lost_work_of_the_first() -> None:
    engine = engine_of()
    engine.hello("a")
    engine.next("a")
    first = engine.state.roster.sites["a"].lane
    engine.hello("a", restart=True, own=own_rows("a", digest=digest(9)))
    assert engine.state.roster.sites["a"].lane != first
    assert not engine.state.redo
    engine.next("a")
    (task,) = engine.held["a"].values()
    assert task.rows[0].shard == engine.state.roster.sites["a"].lane


def test_other_rows_have_the_count_of_the_earlier_ones() -> None:
    """The rows may be the same ones and some more: a site that adds a file begins no new budget for the others."""
    budget = notes.PrivacyBudget(ROW, 1.0, 0.5, 8.0, 1e-5, 8)
    engine = engine_of(protection=ProtectionSettings(PrivacySettings(budget, float)))
    engine.hello("a")
    engine.next("a")
    spending = engine.state.progress.spending
    assert spending is not None
    first = spending.most
    assert first > 0
    engine.hello("a", restart=True, own=own_rows("a", digest=digest(9)))
    lane = engine.state.roster.sites["a"].lane
    assert spending.after("a", [RowRange(lane, 0, 1)], 1) == first + 1


def test_rows_that_change_all_the_time_are_not_believed() -> None:
    engine = engine_of()
    for number in range(12):
        engine.hello("a", own=own_rows("a", digest=digest(number)))
    assert len(noted(engine, notes.SiteDeclared)) <= 4


def test_a_share_of_the_sites_is_drawn_for_each_version() -> None:
    engine = engine_of(0.5)
    nodes = [f"n{number}" for number in range(8)]
    for node in nodes:
        engine.hello(node)
    sites = engine.machine.parts[Sites]
    assert len(sites.drawn) == 4
    drawn = set[frozenset[str]]()
    for _ in range(6):
        drawn.add(sites.drawn)
        for node in nodes:
            engine.next(node)
        assert {node for node in nodes if engine.held[node]} <= sites.drawn
        for node in nodes:
            for task in list(engine.held[node].values()):
                engine.offer(node, answer_to(task))
        while engine.jobs:
            engine.answer(engine.jobs[0])
    assert len(drawn) > 1
    engine.leave(min(sites.drawn))
    assert len(sites.drawn) == 4, "seven are left, and half of them is four"


def test_a_site_whose_budget_is_used_up_is_not_drawn() -> None:
    budget = notes.PrivacyBudget(SITE, 1.0, 0.5, 2.0, 1e-5, 2)
    engine = engine_of(protection=ProtectionSettings(PrivacySettings(budget, float)), buffer_size=1)
    for node in ("a", "b"):
        engine.hello(node)
    sites = engine.machine.parts[Sites]
    assert sites.drawn == {"a", "b"}
    for _ in range(2):
        engine.next("a")
        for task in list(engine.held["a"].values()):
            engine.offer("a", answer_to(task))
        while engine.jobs:
            engine.answer(engine.jobs[0])
    assert sites.drawn == {"b"}
    given = [d.node for d in engine.journal if isinstance(d, Assigned) and d.kind == "train"]
    assert given.count("a") == 2


def test_a_site_with_a_budget_waits_for_the_version_of_its_update() -> None:
    """A site that is faster than the others would spend its budget before the first version."""
    budget = notes.PrivacyBudget(SITE, 1.0, 0.5, 2.0, 1e-5, 6)
    engine = engine_of(protection=ProtectionSettings(PrivacySettings(budget, float)), buffer_size=2)
    for node in ("a", "b"):
        engine.hello(node)

    def given() -> list[str]:
        return [d.node for d in engine.journal if isinstance(d, Assigned) and d.kind == "train"]

    for _ in range(4):
        engine.next("a")
        for task in list(engine.held["a"].values()):
            engine.offer("a", answer_to(task))
    assert given() == ["a"]
    engine.next("b")
    engine.next("b")
    assert given() == ["a", "b"], "nor does it get a further task beside an open one"
    for task in list(engine.held["b"].values()):
        engine.offer("b", answer_to(task))
    while engine.jobs:
        engine.answer(engine.jobs[0])
    assert given() == ["a", "b", "a", "b"], "both updates are in a version, and both sites asked before"
