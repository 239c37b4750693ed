"""The newest facts about each node, folded from the ledger."""

from __future__ import annotations

from barnraise.account.details import Details
from barnraise.ledger import Decision, Noted, notes

from ...decisions import assigned, judged


def folded(*decisions: Decision) -> Details:
    found = Details()
    for row, decision in enumerate(decisions, 1):
        found.add(row, decision, None)  # type: ignore[arg-type]
    return found


def test_a_node_has_the_terms_of_its_newest_task_and_the_tasks_without_a_verdict() -> None:
    found = folded(assigned(1.0, 1, "a"), assigned(2.0, 2, "a"), assigned(2.0, 3, "b"), judged(5.0, 1, "a"))
    assert (found.nodes["a"].since, found.nodes["a"].kind) == (2.0, "train")
    assert found.busy() == {"a": 1, "b": 1}
    assert folded(assigned(1.0, 1, "a"), Noted(2.0, notes.Released(1, "gone"), "a")).busy() == {}


def test_steps_are_those_of_accepted_contributions() -> None:
    accepted, refused = judged(5.0, 1, "a"), judged(6.0, 2, "a", verdict="refused")
    found = folded(assigned(1.0, 1, "a"), accepted, assigned(5.0, 2, "a"), refused).nodes["a"]
    assert (found.steps, found.payload) == (accepted.claim.steps, accepted.claim.num_bytes)


def test_observations_of_a_node_and_checks_of_its_work_are_kept() -> None:
    found = folded(
        Noted(1.0, notes.Sampled(900.0, 0.1, 5e5, 0.75, {"down": 2e6}), "a"),
        Noted(2.0, notes.Scored(1, 3, 0.1, 0.1, 0.0, True, 2.5), "a"),
        Noted(3.0, notes.Audited(1, 2, "b", 1.0, 0.0, True), "a"),
        Noted(4.0, notes.Audited(4, 5, "b", 0.0, 1.0, False), "a"),
    ).nodes["a"]
    assert (found.rate, found.up, found.down, found.availability) == (900.0, 5e5, 2e6, 0.75)
    assert (found.suspicion, found.repeated, found.sound) == (2.5, 2, 1)
