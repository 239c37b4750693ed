"""The loss gate: what is asked before a version is made, what follows from the answer, and what a replay makes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from barnraise.controller.state import actions as act
from barnraise.controller.state import effects
from barnraise.controller.state.settings import GateSettings
from barnraise.controller.tensors.recovery import replay
from barnraise.ledger import notes
from barnraise.ledger.decisions import Noted

from ....state_machine.engine import Engine, contribution, engine_settings
from ..tensors.test_parameter_server import Uploads, make_server, slot, vector
from ..tensors.test_recovery import Run

GATE = GateSettings(8, b"secret")


def closed(nodes: str = "abcd", **changes: object) -> Engine:
    """One contribution of each node is accepted, and the buffer has closed."""
    engine = Engine(engine_settings(**({"gate": GATE, "asynchronous": False, "tokens": 10**6} | changes)))
    for node in nodes:
        engine.hello(node)
    for node in nodes:
        engine.next(node)
    for node in nodes:
        for task in list(engine.held[node].values()):
            engine.offer(node, contribution(task))
    while jobs := [job for job in engine.jobs if isinstance(job, effects.Inspect)]:
        engine.answer(jobs[0])
    return engine


def asked(engine: Engine) -> effects.Gate:
    (job,) = (job for job in engine.jobs if isinstance(job, effects.Gate))
    return job


def aggregated(engine: Engine) -> effects.Aggregate:
    (job,) = (job for job in engine.jobs if isinstance(job, effects.Aggregate))
    return job


def answer(engine: Engine, *nodes: str) -> None:
    job = asked(engine)
    engine.jobs.remove(job)
    engine.handle(effects.Gated(job.epoch, job.version, nodes, 0.25))


def excluded(engine: Engine) -> list[notes.Excluded]:
    found = [d.note for d in engine.journal if isinstance(d, Noted)]
    return [note for note in found if isinstance(note, notes.Excluded)]


def test_a_version_is_made_without_the_nodes_that_are_left_out() -> None:
    engine = closed()
    answer(engine, "c")
    assert excluded(engine) == [notes.Excluded(1, ("c",), 0.25)]
    assert {one.node: one.excluded for one in aggregated(engine).slots} == {
        "a": False,
        "b": False,
        "c": True,
        "d": False,
    }


def test_a_left_out_node_is_credited_like_the_others() -> None:
    engine, plain = closed(), closed(gate=GateSettings())
    answer(engine, "c")
    for one in (engine, plain):
        one.answer(aggregated(one))
    tallies, usual = (
        [(node.tally.accepted, node.tally.tokens, node.tally.reputation) for node in one.state.nodes.values()]
        for one in (engine, plain)
    )
    assert tallies == usual
    assert engine.state.totals.version_tokens == plain.state.totals.version_tokens
    assert not engine.state.merging


def test_a_version_without_exclusions_has_no_note() -> None:
    engine, plain = closed(), closed(gate=GateSettings())
    answer(engine)
    assert not excluded(engine)
    assert aggregated(engine).slots == aggregated(plain).slots


@pytest.mark.parametrize(
    ("nodes", "minimum", "most"),
    [("abcde", 1, 2), ("abcd", 1, 1), ("abc", 1, 1), ("ab", 1, 0), ("a", 1, 0), ("abcde", 4, 1), ("abcde", 5, 0)],
)
def test_fewer_than_half_may_be_left_out_and_enough_for_the_rule_stay(nodes: str, minimum: int, most: int) -> None:
    assert asked(closed(nodes, minimum_nodes=minimum)).most == most


def test_a_version_whose_updates_are_all_excluded_equals_the_one_before() -> None:
    server = make_server()
    uploads, before = Uploads(server), server.parameters.clone()
    uploads.add(1, 0.01 * vector(1))
    server.aggregate(1, [_excluded(slot("n0", (1, 1.0)))], uploads.read)
    assert server.version == 1
    assert torch.equal(server.parameters, before)
    engine = closed()
    answer(engine, *"abcd")
    engine.answer(aggregated(engine))
    assert engine.state.newest.version == 1
    assert not engine.state.merging


def test_a_controller_that_comes_back_asks_again_or_goes_by_what_is_noted() -> None:
    engine = closed()
    before = asked(engine)
    engine.crash()
    again = asked(engine)
    assert (again.slots, again.seed, again.most) == (before.slots, before.seed, before.most)
    answer(engine, "b")
    wanted = aggregated(engine).slots
    engine.crash()
    assert aggregated(engine).slots == wanted
    assert len(excluded(engine)) == 1


def test_an_answer_to_a_dead_controller_or_about_another_version_is_none() -> None:
    engine = closed()
    job = asked(engine)
    for epoch, version in ((job.epoch - 1, 1), (job.epoch, 2)):
        assert engine.handle(effects.Gated(epoch, version, ("a",), 1.0)) == []
    assert asked(engine) is job
    assert not excluded(engine)


def test_rows_follow_from_the_key_and_the_version() -> None:
    def seed(key: bytes) -> int:
        return asked(closed(gate=GateSettings(8, key))).seed

    assert seed(b"one") == seed(b"one")
    assert seed(b"one") != seed(b"two")


def test_a_version_without_a_slot_is_that_of_the_others() -> None:
    server, other = make_server(rule="trimmed_mean", f=1), make_server(rule="trimmed_mean", f=1)
    uploads = Uploads(server)
    for number in range(5):
        uploads.add(number, 0.01 * vector(number))
    slots = [slot(f"n{number}", (number, 1.0)) for number in range(5)]
    without = [one if one.node != "n2" else _excluded(one) for one in slots]
    made = server.aggregate(1, without, uploads.read)
    assert made.digest == other.aggregate(1, [one for one in slots if one.node != "n2"], uploads.read).digest
    assert torch.equal(server.parameters, other.parameters)


def _excluded(one: act.Slot) -> act.Slot:
    return act.Slot(one.node, one.parameters, one.contributions, one.fresh_weight, excluded=True)


class GatedRun(Run):
    """Leaves one node out of each second version."""

    minimum_nodes, gate = 2, GATE

    def left_out(self, job: effects.Gate) -> tuple[str, ...]:
        return (job.slots[job.version % 3].node,) if job.version % 2 else ()


def test_a_run_that_was_killed_makes_its_gated_versions_again(tmp_path: Path) -> None:
    run = GatedRun(tmp_path)
    run.get_ahead()
    assert any(one.excluded for slots in replay(run.ledger).slots.values() for one in slots)
    version, parameters = run.server.version, run.server.parameters
    run.kill()
    again = GatedRun(tmp_path)
    assert again.server.version == version
    assert torch.equal(again.server.parameters, parameters)
    again.kill()
