"""`trust.unguaranteed`: the explicit way past what a rule needs, as far as it can be computed, and who is told."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from barnraise import aggregation
from barnraise.config import load
from barnraise.core.errors import OptionError, RunFileError
from barnraise.plan import Plan, Purpose, resolve

from ...state_machine.engine import Engine, contribution, engine_settings

torch.set_num_threads(1)


def plan(nodes: int | None, **training: Any) -> Plan:
    content = {"model": {"architecture": "gpt2"}, "data": {"kind": "text", "files": ["a"]}, "training": training}
    return resolve(load(content), purpose=Purpose.SIMULATE if nodes else Purpose.SERVE, nodes=nodes)


def refusal(nodes: int, **training: Any) -> str:
    with pytest.raises(RunFileError) as caught:
        plan(nodes, **training)
    return str(caught.value)


@pytest.mark.parametrize(
    ("rule", "computable", "sound"), [("bulyan", 9, 11), ("krum", 6, 7), ("multi_krum", 6, 7), ("trimmed_mean", 5, 5)]
)
def test_a_rule_is_computed_from_what_it_can_be_computed_from(rule: str, computable: int, sound: int) -> None:
    bare = aggregation.create(rule, f=2, unguaranteed=True)
    assert (bare.minimum, aggregation.create(rule, f=2).minimum) == (computable, sound)
    honest = 0.1 * torch.randn(computable - 2, 50, generator=torch.Generator().manual_seed(0)) + 1.0
    for lie in (-1e8, float("nan")):
        updates = torch.cat([honest, torch.full((2, 50), lie)])
        assert float((bare(updates) - 1.0).abs().max()) < 0.5
        if sound > computable:
            with pytest.raises(OptionError, match=rf"needs n >= .* = {sound} updates, got {computable}"):
                aggregation.create(rule, f=2)(updates)
    with pytest.raises(OptionError, match=rf"needs n >= .* = {computable} updates, got {computable - 1}"):
        bare(updates[1:])


def test_a_share_is_counted_out_by_what_can_be_computed() -> None:
    bare = [aggregation.withstood("bulyan", {"f": 0.25}, n, unguaranteed=True) for n in (4, 5, 8, 9, 11)]
    assert bare == [None, 1, 1, 2, 2]
    assert [aggregation.withstood("bulyan", {"f": 0.25}, n) for n in (5, 8, 9, 11)] == [None, 1, 1, 2]
    assert [aggregation.guaranteed("bulyan", {"f": 0.25}, n) for n in (4, 5, 8, 9, 11)] == [
        False,
        False,
        True,
        False,
        True,
    ]
    updates = torch.randn(9, 40, generator=torch.Generator().manual_seed(1))
    share = aggregation.create(["nnm", "bulyan"], f=0.25, unguaranteed=True)
    assert torch.equal(share(updates), aggregation.create(["nnm", "bulyan"], f=2, unguaranteed=True)(updates))


def test_bulyan_with_2_of_9_is_refused_with_the_ways_out() -> None:
    text = refusal(9, aggregation_rule="bulyan", bulyan_f=2)
    assert "bulyan with f=2 needs n >= 4f+3, here 11 nodes, but the run has 9 nodes" in text
    assert "(enough for aggregation.f: 1, or for trust.unguaranteed: true, which takes n >= 4f+1, here 9)" in text
    assert "list more workers, give aggregation.f as a lower whole number" in text


def test_below_what_can_be_computed_nothing_helps() -> None:
    text = refusal(8, aggregation_rule="bulyan", bulyan_f=2, unguaranteed=True)
    assert "needs n >= 4f+1, here 9 nodes, but the run has 8 nodes (enough for aggregation.f: 1)" in text
    assert "enough for" not in refusal(4, aggregation_rule="bulyan", aggregation_options={"f": 2})


def test_past_the_guarantee_the_plan_says_so() -> None:
    found = plan(9, aggregation_rule="bulyan", bulyan_f=2, unguaranteed=True)
    (warning,) = found.warnings
    assert "bulyan with f=2 is UNGUARANTEED with 9 nodes: it needs n >= 4f+3, here 11, and is computed from" in str(
        warning
    )
    assert (found.aggregation.minimum_nodes, found.aggregation.sound_nodes) == (9, 11)
    assert (found.aggregation.withstood(9), found.aggregation.guaranteed(9)) == (2, False)
    assert plan(11, aggregation_rule="bulyan", bulyan_f=2, unguaranteed=True).warnings == ()
    open_to_all = plan(None, aggregation_rule="bulyan", bulyan_f=2, unguaranteed=True)
    assert any("UNGUARANTEED below 11 nodes" in str(warning) for warning in open_to_all.warnings)


def test_it_says_where_it_has_no_effect() -> None:
    (warning,) = plan(9, aggregation_rule="trimmed_mean", aggregation_f=2, unguaranteed=True).warnings
    assert "is true, but trimmed_mean with f=2 needs n >= 2f+1 in any case; leave it out" in str(warning)


def test_versions_are_no_smaller_than_the_living_allow() -> None:
    """The guarantee is given up only where too few live for it."""
    rule = plan(9, aggregation_rule="bulyan", bulyan_f=1, unguaranteed=True).aggregation
    assert [rule.least(living) for living in (1, 5, 6, 7, 9)] == [5, 5, 5, 7, 7]


def test_a_buffer_waits_for_the_guarantee_while_enough_live() -> None:
    engine = Engine(engine_settings(minimum_nodes=2, wanted_nodes=lambda living: 3 if living >= 3 else 0))
    for node in ("a", "b", "c"):
        engine.hello(node)
    for node in ("a", "b", "c"):
        engine.next(node)
    assert engine.state.buffer.size == 3

    def hand_in(node: str) -> None:
        engine.offer(node, contribution(next(iter(engine.held[node].values()))))
        while engine.jobs:
            engine.answer(engine.jobs[0])

    hand_in("a")
    hand_in("b")
    engine.now += 5.0
    assert engine.state.newest.version == 0, "two of three that live are too few, however late"
    engine.leave("c")
    while engine.jobs:
        engine.answer(engine.jobs[0])
    assert engine.state.buffer.size == 2
    assert engine.state.newest.version == 1


@pytest.mark.parametrize(
    ("rule", "f", "nodes", "said"),
    [
        ("krum", 3, 9, "the overview's f < n/3 does not allow f=3 of 9, n >= 2f+3 does"),
        (["nnm", "krum"], 0.4, 9, "the overview's f < n/3 does not allow f=3 of 9, n >= 2f+3 does"),
        ("krum", 2, 7, ""),
        ("krum", 3, 10, ""),
        ("multi_krum", 3, 9, ""),
    ],
)
def test_where_the_overview_judges_krum_otherwise(rule: Any, f: float, nodes: int, said: str) -> None:
    assert plan(nodes, aggregation_rule=rule, aggregation_f=f).aggregation.beside_overview(nodes) == said


def test_a_refusal_says_what_the_overview_would_allow() -> None:
    text = refusal(4, aggregation_rule="krum", krum_f=1)
    assert "here 4; the overview's f < n/3 allows f=1 of 4, n >= 2f+3 does not)" in text
