"""The automatic aggregation rule, where the run file leaves it open, and its answer to too few nodes."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from tests.state_machine.engine import Engine, contribution, engine_settings

from barnraise import aggregation
from barnraise.aggregation.defaults import GATE_ROWS
from barnraise.config.document import Document, parse
from barnraise.config.load import build, dump, load
from barnraise.core.errors import OptionError, RunFileError
from barnraise.plan import Plan, Purpose, resolve
from barnraise.plan.matrix import planned
from barnraise.plan.resolve import RULE

DEFENDED = ["clip_median", "nnm", "trimmed_mean"]
CONTENT: dict[str, Any] = {"model": {"architecture": "gpt2"}, "data": {"kind": "text", "files": ["a"]}}
OWN = [{"name": "ann"}, {"name": "bob"}]
ATTACKED = [*OWN, {"name": "eve", "attack": {"kind": "zero"}}]


def plan(purpose: Purpose, workers: list[dict[str, Any]], **training: Any) -> Plan:
    return resolve(load(CONTENT | {"workers": workers, "training": training}), purpose=purpose)


@pytest.mark.parametrize(
    ("purpose", "workers", "why"),
    [
        (Purpose.TRAIN, OWN, "all workers are the host's own"),
        (Purpose.LAB, OWN, "all workers are the host's own"),
        (Purpose.SIMULATE, [], "all workers are the host's own"),
        (Purpose.TRAIN, ATTACKED, "eve attacks"),
        (Purpose.SIMULATE, ATTACKED, "eve attacks"),
        (Purpose.SERVE, [], "strangers may join"),
    ],
)
def test_strangers_and_attackers_have_a_robust_rule_chosen(
    purpose: Purpose, workers: list[dict[str, Any]], why: str
) -> None:
    found = plan(purpose, workers)
    section = found.run_file.aggregation
    assert found.reasons.get(RULE, "") == why
    if purpose is Purpose.SERVE or workers == ATTACKED:
        assert (section.rule, section.f) == (DEFENDED, 0.3)
        assert section.fallback == "mean"
        assert "clip_median+nnm+trimmed_mean with f=0.3; of fewer than 4 nodes mean (auto, since " in found.rule_text
        assert (found.aggregation.minimum_nodes, found.aggregation.sound_nodes) == (1, 4)
        assert [found.aggregation.wanted(living) for living in (1, 3, 4, 100)] == [0, 0, 4, 4]
        assert [found.aggregation.withstood(nodes) for nodes in (1, 3, 4, 9, 20)] == [0, 0, 1, 2, 6]
    else:
        assert (section.rule, section.f) == ("mean", None)


def test_the_robust_chain_that_is_chosen_has_the_loss_gate_where_the_controller_has_the_model() -> None:
    def gate(controller: dict[str, Any], **training: Any) -> int | None:
        content = CONTENT | {"controller": controller, "training": training}
        return resolve(load(content), purpose=Purpose.SERVE).run_file.trust.loss_gate

    assert gate({}) == GATE_ROWS
    assert gate({}, loss_gate=0) == 0
    assert gate({}, loss_gate=16) == 16
    assert gate({}, aggregation_rule="mean") is None
    assert gate({"evaluated_by": "workers"}) is None
    assert plan(Purpose.TRAIN, OWN).run_file.trust.loss_gate is None


@pytest.mark.parametrize(
    ("privacy", "expected"),
    [
        ({"secure_aggregation": {"trustees": 4}}, None),
        ({"differential_privacy": {"epsilon": 8, "delta": 1e-5, "clip": 1.0}}, None),
        ({"differential_privacy": {"profile": "noise", "noise": 0.1, "clip": 1.0}}, GATE_ROWS),
    ],
)
def test_the_robust_chain_has_no_gate_that_would_read_what_the_run_protects(
    privacy: dict[str, Any], expected: int | None
) -> None:
    content = CONTENT | {"privacy": privacy, "training": {"compression": "none"}}
    assert resolve(load(content), purpose=Purpose.SERVE).run_file.trust.loss_gate == expected


def test_a_rule_that_keeps_vectors_has_no_gate() -> None:
    with pytest.raises(RunFileError, match="loss_gate: is 8, but centered_clipping keeps vectors"):
        plan(Purpose.SERVE, [], aggregation_rule="centered_clipping", loss_gate=8)


def test_an_attacker_that_joins_later_counts() -> None:
    faults = [{"at": 0.5, "join": {"name": "mal", "attack": {"kind": "zero"}}}]
    found = resolve(load(CONTENT | {"workers": OWN, "faults": faults}), purpose=Purpose.TRAIN)
    assert found.reasons.get(RULE, "") == "mal attacks"


@pytest.mark.parametrize("purpose", [Purpose.TRAIN, Purpose.SERVE])
def test_a_named_rule_stays(purpose: Purpose) -> None:
    found = plan(purpose, OWN, aggregation_rule="mean")
    assert (found.aggregation.names, found.reasons.get(RULE, "")) == (("mean",), "")


def test_a_resumed_run_keeps_the_chosen_rule() -> None:
    chosen = plan(Purpose.SERVE, [])
    again = resolve(load(parse(dump(chosen.run_file).encode(), "run.yaml").content), purpose=Purpose.SIMULATE)
    assert again.aggregation == chosen.aggregation
    assert again.reasons.get(RULE, "") == ""


@pytest.mark.parametrize(
    ("training", "f", "minimum"),
    [
        ({"aggregation_f": 1}, 1, 3),
        ({"aggregation_f": 0.2}, 0.2, 5),
        ({"aggregation_options": {"f": 1}}, 1, 3),
        ({"believed_liars": 0.1}, 0.3, 4),
    ],
)
def test_a_given_number_of_liars_sets_the_minimum_of_a_version(
    training: dict[str, Any], f: float, minimum: int
) -> None:
    found = plan(Purpose.SIMULATE, [], **training)
    assert list(found.aggregation.names) == DEFENDED
    assert found.aggregation.options["f"] == f
    assert (found.aggregation.fallback, found.aggregation.minimum_nodes) == (None, minimum)


def test_a_run_file_with_zero_liars_uses_the_mean() -> None:
    assert plan(Purpose.SERVE, [], aggregation_f=0).aggregation.names == ("mean",)


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_few_updates_are_made_one_by_the_fallback(nodes: int) -> None:
    x, weights = torch.randn(nodes, 50, generator=torch.Generator().manual_seed(nodes)), [1.0, 3.0, 2.0][:nodes]
    rule = aggregation.create(DEFENDED, fallback="mean", f=0.3)
    assert torch.equal(rule(x, weights), aggregation.create("mean")(x, weights))


@pytest.mark.parametrize("nodes", [4, 9])
def test_enough_updates_are_made_one_by_the_rule(nodes: int) -> None:
    x = torch.randn(nodes, 50, generator=torch.Generator().manual_seed(nodes))
    rule = aggregation.create(DEFENDED, fallback="mean", f=0.3)
    assert torch.equal(rule(x), aggregation.create(DEFENDED, f=0.3)(x))
    assert rule.minimum == 1


def test_a_fallback_that_cannot_stand_in_is_refused() -> None:
    with pytest.raises(OptionError, match="keeps something from version to version"):
        aggregation.create("krum", fallback="monna", f=1)


def serving(*nodes: str) -> Engine:
    """Nodes at work in a run that wants four, and takes fewer."""
    wanted = {"wanted_nodes": lambda living: 4 if living >= 4 else 0, "yields": True}
    engine = Engine(engine_settings(buffer_size=1, tokens=10_000, **wanted))
    for node in nodes:
        engine.hello(node)
    for node in nodes:
        engine.next(node)
    return engine


def settle(engine: Engine) -> None:
    while engine.jobs:
        engine.answer(engine.jobs[0])


def hand_in(engine: Engine, node: str) -> None:
    engine.offer(node, contribution(next(iter(engine.held[node].values()))))
    settle(engine)


def test_few_nodes_make_versions_as_if_they_were_trusted() -> None:
    engine = serving("a", "b")
    assert engine.state.buffer.size == 1
    hand_in(engine, "a")
    assert engine.state.newest.version == 1
    assert not engine.state.progress.paused


def test_four_nodes_that_keep_pace_are_waited_for() -> None:
    engine = serving("a", "b", "c", "d")
    assert engine.state.buffer.size == 4
    engine.now += 1.0
    for node in "abc":
        hand_in(engine, node)
    assert engine.state.newest.version == 0
    hand_in(engine, "d")
    assert engine.state.newest.version == 1


def test_a_node_that_submits_nothing_does_not_delay_versions() -> None:
    """It lives, and greets, and may mean to stop the run."""
    engine = serving("a", "b", "c", "d")
    for _ in range(60):
        engine.now += 1.0
        for node in "abc":
            engine.heartbeat(node)
            if engine.held[node]:
                hand_in(engine, node)
            engine.next(node)
        engine.heartbeat("d")
    assert engine.state.nodes["d"].live
    assert engine.state.newest.version >= 2


def test_a_matrix_tries_the_rule_that_auto_stands_for() -> None:
    content = {
        "run": CONTENT | {"data": {"kind": "sat"}},
        "attacks": ["zero"],
        "rules": ["auto"],
        "liars": ["2 of 9"],
    }
    cells = planned(Document("matrix.yaml", content)).cells
    rules = {
        cell.attack: build(Document("cell", dict(cell.content))).aggregation for cell in cells if cell.rule == "auto"
    }
    assert {attack: rule.rule for attack, rule in rules.items()} == {
        "no attack": DEFENDED,
        "zero": DEFENDED,
    }
    assert {rule.f for rule in rules.values()} == {0.3}


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (["trimmed_mean", "clip_median"], "stands before 'clip_median'; write [clip_median, trimmed_mean]"),
        (["krum", "nnm", "median"], "stands before 'nnm'; write [nnm, krum] or [nnm, median]"),
        (
            ["nnm", "clip_median", "mean"],
            "stands behind 'nnm', which merges several updates into one; write [clip_median, nnm, mean]",
        ),
        (
            ["bucketing", "arc", "krum"],
            "stands behind 'bucketing', which merges several updates into one; write [arc, bucketing, krum]",
        ),
        (["trimmed_mean", "nnm", "clip_median"], "stands before 'nnm'; write [clip_median, nnm, trimmed_mean]"),
        (["nnm", "worker_momentum", "mean"], "goes in front: [worker_momentum, nnm, mean]"),
        (["nnm"], "put a rule behind it, for example [nnm, trimmed_mean]"),
        (["nnm", "nnm", "mean"], "'nnm' stands twice in a chain; write [nnm, mean]"),
        ("nnm+trimmed_mean", "a chain is a list: [nnm, trimmed_mean]"),
        (["auto", "mean"], "`auto` stands alone and in small letters: aggregation.rule: auto"),
        ("Auto", "`auto` stands alone and in small letters: aggregation.rule: auto"),
    ],
)
def test_an_invalid_rule_is_refused_with_valid_ones(rule: Any, message: str) -> None:
    with pytest.raises(RunFileError, match=re.escape(message)):
        plan(Purpose.TRAIN, OWN, aggregation_rule=rule)


def test_a_misspelt_fallback_is_named_as_one() -> None:
    with pytest.raises(RunFileError, match=r"aggregation\.fallback: unknown aggregation rule 'meen'; did you"):
        plan(Purpose.TRAIN, OWN, aggregation_rule="krum", aggregation_fallback="meen")
