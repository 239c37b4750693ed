"""Nodes of a simulation that are other than the rest: one that lies, one that uploads slowly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from barnraise.assembly.simulated_work import costed
from barnraise.assembly.simulation import make_fleet, simulate
from barnraise.assembly.simulation_report import Report
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.controller.machine import Controller
from barnraise.core.types import AnyResult
from barnraise.emulation.attacks.executor import making
from barnraise.emulation.costs import NodeCosts
from barnraise.emulation.simulator import Simulator
from barnraise.emulation.work import CostedNodeWork
from barnraise.ledger.decisions import Decision, Judged
from barnraise.plan import Purpose, resolve
from barnraise.plan.estimate import estimate
from barnraise.plan.resolve import Plan

TRIAL = Trial(4, real=True, tokens_per_second=1000.0)
WORKERS = [{"name": name} for name in ("ann", "bob", "cat", "liar")]
LIE = {"kind": "sign_flip", "factor": 10.0}
DELAY = 4.0
STORY = "once upon a time there was a barn that nobody could raise alone\n"


@pytest.fixture(autouse=True)
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "story.txt").write_text(STORY * 100)


def planned(attack: dict[str, Any] | None = None, **training: Any) -> Plan:
    """Rounds of four nodes, of which one may attack."""
    content = {
        "model": {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
        "data": {"kind": "text", "files": ["story.txt"], "context": 16},
        "controller": {"use_async_training": False, "max_update_norm": 1e6},  # nothing is shortened
        "workers": [*WORKERS[:3], WORKERS[3] | {"attack": attack}],
        "training": {
            "tokens": 10_000,
            "batch_size": 4,
            "local_steps": 4,
            "auto_tune": False,
            "aggregation_rule": "mean",
        }
        | training,
    }
    return resolve(load(content), purpose=Purpose.SIMULATE, nodes=4)


def robust(attack: dict[str, Any] | None = None) -> Plan:
    return planned(attack, aggregation_rule="trimmed_mean", aggregation_f=1)


def gain(found: Report) -> float:
    assert found.losses.first_loss is not None
    assert found.losses.final_loss is not None
    return found.losses.first_loss - found.losses.final_loss


@contextmanager
def judged(simulator: Simulator, seen: list[Judged]) -> Iterator[None]:
    update = simulator.ledger_hash.update

    def see(decision: Decision) -> None:
        update(decision)
        if isinstance(decision, Judged):
            seen.append(decision)

    simulator.ledger_hash.update = see  # type: ignore[method-assign]
    yield


def play(plan: Plan) -> Report:
    return simulate(plan, TRIAL)


def test_a_liar_leads_a_mean_astray_and_a_robust_rule_does_not_follow() -> None:
    assert gain(play(planned(LIE))) < -0.2
    assert gain(play(robust(LIE))) > 0.2


def test_a_simulation_with_a_liar_repeats() -> None:
    found, repeated = play(robust(LIE)), play(robust(LIE))
    assert repeated.ledger_hash == found.ledger_hash
    assert repeated.losses.final_loss == found.losses.final_loss
    assert play(robust()).ledger_hash != found.ledger_hash


def test_a_simulated_liar_sees_the_others() -> None:
    section = {"kind": "alie", "z": 4.0}
    found, repeated = play(robust(section)), play(robust(section))
    assert repeated.ledger_hash == found.ledger_hash
    alone = simulate(robust(section), TRIAL, executors={"liar": making(section, "liar")})
    assert alone.ledger_hash != found.ledger_hash


def test_only_the_named_node_lies() -> None:
    seen: list[Judged] = []
    simulate(robust(), TRIAL, lambda simulator: judged(simulator, seen), {"liar": making(LIE, "liar")})
    lies = [one.norm for one in seen if one.node == "liar"]
    assert lies
    assert min(lies) > 5.0 * max(one.norm for one in seen if one.node != "liar")


class SlowToHandIn(NodeCosts):
    def hand_in(self, result: AnyResult) -> float:
        return super().hand_in(result) + DELAY


def test_a_costed_node_may_take_longer_to_submit() -> None:
    plan, seen = planned(tokens=100_000), list[Judged]()
    work = costed(plan, estimate(plan))
    size, payloads = work.settings.payloads.exchanged, work.settings.payloads.rungs
    slow = CostedNodeWork(payloads, size, SlowToHandIn(size, plan.compression.name, plan.downlink.name))
    simulator = Simulator(
        Controller(work.settings),
        make_fleet(plan, 4, 1000.0, 0),
        work.controller,
        lambda name: slow if name == "cat" else work.node(name),
        seed=0,
    )
    with judged(simulator, seen):
        simulator.run(work.digest)
    seconds = defaultdict(list)
    for one in seen:
        seconds[one.node].append(one.claim.seconds)
    others = [max(spent) for node, spent in seconds.items() if node != "cat"]
    assert len(others) == 3
    assert min(seconds["cat"]) > DELAY > max(others)
