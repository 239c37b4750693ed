"""Attacks on the assignment of tasks, where work is only costed: the claims and their outcome."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from barnraise.assembly.simulation import simulate
from barnraise.assembly.simulation_report import Report
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.controller.state import events as ce
from barnraise.emulation.attacks.catalog import CATALOG, create, talks
from barnraise.emulation.node import PREPARE_SECONDS
from barnraise.emulation.simulator import Simulator
from barnraise.ledger.decisions import Decision, Judged
from barnraise.plan import Purpose, resolve
from barnraise.wire.messages import Decline, Hello, RequestTask

from .test_attacks import hand_in, section_of, worker

TRIAL = Trial(4, tokens_per_second=1000.0)
BUDGET = 100_000


class Seen:
    """The messages of nodes, and the verdicts on their work."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Any]] = []
        self.judged: list[Judged] = []

    @contextmanager
    def __call__(self, simulator: Simulator) -> Iterator[None]:
        handle, update = simulator.handle, simulator.ledger_hash.update

        def hear(event: ce.Event) -> None:
            if isinstance(event, ce.Received):
                self.said.append((event.node, event.message))
            handle(event)

        def see(decision: Decision) -> None:
            update(decision)
            if isinstance(decision, Judged) and decision.verdict == "accepted":
                self.judged.append(decision)

        simulator.handle = hear  # type: ignore[method-assign]
        simulator.ledger_hash.update = see  # type: ignore[method-assign]
        yield

    def of(self, node: str, kind: type[Any]) -> list[Any]:
        return [message for name, message in self.said if name == node and isinstance(message, kind)]

    def work(self, node: str) -> list[Judged]:
        return [one for one in self.judged if one.node == node]


@pytest.fixture(autouse=True)
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "story.txt").write_text("once upon a time there was a barn that nobody could raise alone\n" * 100)


def play(attack: dict[str, Any] | None, **controller: Any) -> tuple[Report, Seen]:
    content = {
        "model": {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
        "data": {"kind": "text", "files": ["story.txt"], "context": 16},
        "controller": controller,
        "workers": [{"name": name} for name in ("ann", "bob", "cat")] + [{"name": "eve", "attack": attack}],
        "network": {"rate_mbps": 10, "delay_ms": 20},
        "training": {"tokens": BUDGET, "batch_size": 4, "local_steps": 16, "auto_tune": False}
        | {"aggregation_rule": "mean"},
    }
    seen = Seen()
    found = simulate(resolve(load(content), purpose=Purpose.SIMULATE, nodes=4), TRIAL, seen)
    assert found.tokens >= BUDGET
    return found, seen


def test_a_claim_is_said_of_machine_and_link_by_the_liar_alone() -> None:
    _, seen = play({"kind": "claim", "speed": 50, "link": 1000})
    mine, others = (seen.of(node, Hello)[-1].profile for node in ("eve", "ann"))
    assert (mine.tokens_per_second, others.tokens_per_second) == (50_000.0, 1000.0)
    assert mine.up_bytes_per_second == pytest.approx(1000 * others.up_bytes_per_second)
    rates = {node: [one.link.up for one in seen.of(node, RequestTask) if one.link.up] for node in ("eve", "ann")}
    assert min(rates["eve"]) > 100 * max(rates["ann"])


def test_a_refusing_node_declines_a_share_of_its_tasks_and_the_run_continues() -> None:
    _, seen = play({"kind": "refuse", "share": 0.5})
    declined, done = len(seen.of("eve", Decline)), len(seen.work("eve"))
    assert 0.3 < declined / (declined + done) < 0.7
    assert not seen.of("ann", Decline)


def test_a_flood_is_of_so_many_messages_a_second() -> None:
    found, seen = play({"kind": "flood", "rate": 5})
    _, usual = play(None)
    most = max(len(usual.of(node, RequestTask)) for node in ("ann", "bob", "cat", "eve"))
    assert len(seen.of("eve", RequestTask)) > 4 * (found.duration.virtual_seconds - PREPARE_SECONDS - 2) > 2 * most
    assert len(seen.of("ann", RequestTask)) < 2 * most


def test_withheld_results_arrive_close_to_the_staleness_bound() -> None:
    limits = {"max_staleness": 8, "adaptive_staleness": False, "buffer_size": 2}
    _, seen = play({"kind": "withhold", "share": 0.5}, **limits)
    _, usual = play(None, **limits)
    late, soon = ([one.staleness for one in those.work("eve")] for those in (seen, usual))
    assert statistics.mean(late) > statistics.mean(soon) + 1.0


def test_withheld_results_arrive_in_synchronous_rounds_too() -> None:
    _, seen = play({"kind": "withhold", "share": 1.0, "most": 5}, use_async_training=False)
    assert seen.work("eve")


def test_a_slowing_node_takes_longer_with_each_task() -> None:
    _, seen = play({"kind": "slow_down", "growth": 2.0, "most": 8})
    seconds = [one.claim.seconds / one.claim.steps for one in seen.work("eve")]
    others = statistics.median(one.claim.seconds / one.claim.steps for one in seen.work("ann"))
    assert [round(taken / others) for taken in seconds[:2]] in ([2, 4], [1, 2], [2, 3], [2, 5])
    assert max(seconds) > 5 * others


def test_an_instant_node_gets_more_tasks() -> None:
    _, seen = play({"kind": "instant"})
    assert len(seen.work("eve")) > 2 * len(seen.work("ann"))
    assert seen.work("eve")[0].claim.steps == 16


@pytest.mark.parametrize(
    "wrapping", [{"kind": "colluding"}, {"kind": "intermittent", "share": 1}, {"kind": "reputation"}]
)
def test_another_attack_may_play_it(wrapping: dict[str, Any]) -> None:
    after = {"after": 0} if wrapping["kind"] == "reputation" else {}
    section = wrapping | after | {"of": {"kind": "refuse", "share": 1}}
    assert talks(section)
    assert not create(section).in_task("eve 1").takes()


def test_a_simulation_with_liars_repeats_and_differs_from_one_without() -> None:
    hashes = [play(attack)[0].ledger_hash for attack in ({"kind": "instant"}, {"kind": "instant"}, None)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_attacks_that_send_messages_are_marked_as_such() -> None:
    names = {"claim", "flood", "instant", "refuse", "slow_down", "withhold"}
    assert {name for name in CATALOG.names() if talks(section_of(name))} == names


def test_a_live_worker_takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is slowed for a trial does, in the task alone."""
    liar, seen = worker({"kind": "slow_down", "growth": 3}), []
    monkeypatch.setattr(liar, "rest", lambda began, busy: seen.append(liar.slowdown))
    hand_in(liar)
    assert set(seen) == {2.0}
    assert liar.slowdown == 0.0
    hand_in(worker({"kind": "instant"}))
