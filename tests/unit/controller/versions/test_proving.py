"""Proofs for members of a masked version: who gets them, when, and what they say of updates that are in none."""

from __future__ import annotations

import pytest

from barnraise.controller.state.events import StopRequested
from barnraise.ledger import notes
from barnraise.trust.signatures import endorsed, verified
from barnraise.wire.messages import Stop

from ....masked_runs import RUN, SIGNERS, TRUSTEES, WORKERS, MaskedRun


@pytest.fixture
def run() -> MaskedRun:
    """A run whose first version was listed."""
    run = MaskedRun()
    for name in WORKERS:
        run.contribute(name)
    run.list_it()
    return run


def numbers(run: MaskedRun) -> dict[str, int]:
    return {work.node: number for number, work in run.state.merging.items()}


def test_members_get_the_list_and_its_signatures_once_their_version_is_made(run: MaskedRun) -> None:
    sent = numbers(run)
    run.answer_all()
    assert not any(run.proofs(name) for name in WORKERS), "the version is not made yet"
    run.make()
    (released,) = run.notes(notes.VersionReleased)
    for name in WORKERS:
        (proof,) = run.proofs(name)
        assert (proof.assignment, proof.version, proof.members) == (sent[name], 1, b"the list")
        assert proof.digest == released.members
        signed = zip(TRUSTEES, proof.endorsements, strict=True)
        found = [one for one, given in signed if verified(endorsed(RUN, one, proof.digest), given, SIGNERS[one].public)]
        assert len(found) >= 3
    assert not any(run.proofs(name) for name in TRUSTEES)


def test_the_ledger_keeps_the_signatures_of_a_list(run: MaskedRun) -> None:
    run.answer_all()
    (unmasked,) = run.notes(notes.VersionUnmasked)
    run.make()
    assert unmasked.endorsements == run.proofs("ann")[0].endorsements


def test_a_member_that_was_away_gets_its_proof_when_it_returns(run: MaskedRun) -> None:
    run.leave("ann")
    run.answer_all()
    run.make()
    assert not run.proofs("ann")
    run.join("ann")
    assert [proof.version for proof in run.proofs("ann")] == [1]
    run.pass_time(1.0)
    assert len(run.proofs("ann")) == 1, "a session is told once"
    run.join("ann")
    assert len(run.proofs("ann")) == 2, "what was on its way may be lost with the session"


def test_members_of_a_list_that_is_given_up_are_told_why(run: MaskedRun) -> None:
    for name in TRUSTEES[:2]:
        run.endorse(name, reason="a nonce that another list has")
    (proof,) = run.proofs("ann")
    assert not proof.members
    assert "a nonce that another list has" in proof.reason


def test_members_of_a_group_that_the_version_leaves_out_are_told_why(run: MaskedRun) -> None:
    run.answer_all()
    run.make(left_out={(numbers(run)["ann"],): "the sum of ann: an element beyond the ring"})
    (out,), (proof,) = run.proofs("ann"), run.proofs("bob")
    assert (out.reason, out.members) == ("the sum of ann: an element beyond the ring", b"")
    assert (proof.reason, proof.members) == ("", b"the list")


@pytest.mark.parametrize("step", ["listed", "unmasked"])
def test_members_get_their_proofs_though_the_controller_died_meanwhile(run: MaskedRun, step: str) -> None:
    if step == "unmasked":
        run.answer_all()
    run.crash()
    run.list_it()
    run.answer_all()
    run.make()
    (proof,) = run.proofs("ann")
    assert sum(map(bool, proof.endorsements)) >= 3


def test_a_version_is_made_again_without_a_proof_where_its_list_is_lost(run: MaskedRun) -> None:
    run.answer_all()
    first = next(iter(run.state.merging))
    run.crash()
    run.list_it(void={first: "the disk is bad"})
    run.make()
    assert run.state.newest.version == 1
    assert not run.proofs("ann")


def test_members_of_the_last_version_stay_for_their_proofs(run: MaskedRun) -> None:
    run.handle(StopRequested("enough"))
    assert not any(isinstance(message, Stop) for message in run.said["ann"])
    run.answer_all()
    run.make()
    kinds = [type(message) for message in run.said["ann"]]
    assert kinds.index(type(run.proofs("ann")[0])) < kinds.index(Stop)
