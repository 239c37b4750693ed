"""Seats of trustees, updates for seats that changed, and the judgement of entries before a list is fixed."""

from __future__ import annotations

import pytest

from barnraise.controller.state.events import Admitted, RevokeRequested
from barnraise.core.types import Endorse, Masked, Vet
from barnraise.ledger import notes

from ....masked_runs import MASKS, SIGNERS, TRUSTEES, WORKERS, MaskedRun, key_of, masked_settings


@pytest.fixture
def closed() -> MaskedRun:
    """A run whose first version waits for its list."""
    run = MaskedRun()
    for name in WORKERS:
        run.contribute(name)
    return run


def judgements(run: MaskedRun) -> list[tuple[int, bool]]:
    """Return the updates that could not be used, and whether their nodes are judged by it."""
    return [(voided.assignment, voided.judged) for voided in run.notes(notes.Voided)]


@pytest.mark.parametrize("step", ["closed", "listed", "unmasked"])
def test_a_controller_that_died_continues_though_a_trustee_was_revoked(closed: MaskedRun, step: str) -> None:
    if step != "closed":
        closed.list_it()
    if step == "unmasked":
        closed.answer_all()
    closed.handle(RevokeRequested("t1", "its owner left"))
    closed.crash()
    closed.make()
    refused = [note.reason for note in closed.notes(notes.VersionRefused)]
    assert closed.state.newest.version == 1
    if step == "unmasked":
        assert not refused
        assert not closed.proofs("ann"), "its list cannot be made again without the trustee's seat"
    else:
        assert "3 of 4 trustees have joined" in refused[0]
        assert all(node.tally.refused == 0 for node in closed.state.nodes.values())


def test_members_are_not_judged_by_updates_for_a_committee_that_is_no_more(closed: MaskedRun) -> None:
    numbers = sorted(closed.state.merging)
    closed.handle(RevokeRequested("t1", "its owner left"))
    closed.join("t5", "trustee")
    closed.crash()
    closed.list_it(void=dict.fromkeys(numbers, "a masked update that its node did not sign"))
    assert judgements(closed) == [(one, False) for one in numbers]
    closed.make()
    for name in WORKERS:
        closed.contribute(name)
    first, second = sorted(closed.state.merging)
    closed.list_it(void={second: "a masked update that its node did not sign"})
    assert judgements(closed)[2:] == [(first, False), (second, True)]


def test_members_are_not_judged_by_payloads_that_the_controller_lost(closed: MaskedRun) -> None:
    first, second = sorted(closed.state.merging)
    closed.list_it(lost={first: "its bytes are damaged"})
    assert judgements(closed) == [(first, False), (second, False)]


def test_a_trustee_with_the_signing_key_of_another_one_takes_no_seat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.masked_runs.TRUSTEES", TRUSTEES[:3])
    run = MaskedRun(workers=WORKERS)
    for name, signer in (("thief", SIGNERS["t1"].public), ("blank", "")):
        run.handle(Admitted(name, key_of(name), signer=signer, role="trustee"))
    run.ask("ann")
    assert not run.tasks["ann"]
    run.join("t4", "trustee")
    run.ask("ann")
    assert [seat.node for seat in run.take_task("ann", Masked).committee] == list(TRUSTEES)


@pytest.fixture
def draft() -> MaskedRun:
    """A run whose trustees were asked about the entries of a version of three nodes."""
    run = MaskedRun(masked_settings(3), workers=("ann", "bob", "cy"))
    for name in ("ann", "bob", "cy"):
        run.contribute(name)
    run.list_it(vetted=False)
    return run


def of_bob(run: MaskedRun) -> int:
    return next(number for number, work in run.state.merging.items() if work.node == "bob")


def test_trustees_judge_entries_before_the_list_is_on_the_ledger(draft: MaskedRun) -> None:
    assert all(draft.has(name, Vet) for name in TRUSTEES)
    assert draft.machine.snapshot(draft.now).trustees == "3 more trustees to check its updates"
    draft.vet("t1")
    draft.vet("t2")
    assert not draft.notes(notes.VersionReleased)
    draft.vet("t3")
    assert draft.notes(notes.VersionReleased)
    assert all(draft.has(name, Endorse) for name in TRUSTEES)
    draft.answer_all()
    draft.make()
    assert draft.state.newest.version == 1


def test_a_member_with_false_seeds_costs_its_own_update_and_no_other(draft: MaskedRun) -> None:
    bad, asked = of_bob(draft), len(draft.state.merging)
    for name in TRUSTEES:
        draft.vet(name, *([bad] if name in ("t1", "t2") else []))
    assert not draft.notes(notes.VersionReleased)
    assert judgements(draft) == [(bad, True)]
    (sentence,) = draft.notes(notes.Offended)
    assert sentence.assignment == bad
    assert not draft.state.nodes["bob"].live
    draft.list_it()
    assert not any(draft.has(name, Vet) for name in TRUSTEES), "the others were accepted already"
    draft.answer_all()
    draft.make()
    assert (draft.state.newest.version, draft.state.totals.accepted) == (1, asked - 1)
    assert not draft.notes(notes.VersionRefused)


def test_a_member_that_no_trustee_knows_is_left_out_and_not_judged(draft: MaskedRun) -> None:
    stranger, asked = of_bob(draft), len(draft.state.merging)
    for name in TRUSTEES:
        draft.vet(name, reason="node bob is not on the roster", unlisted=(stranger,))
    assert judgements(draft) == [(stranger, False)]
    (voided,) = draft.notes(notes.Voided)
    assert "its node is not on the rosters of members" in voided.reason
    assert not draft.notes(notes.Offended)
    assert draft.state.nodes["bob"].live
    draft.list_it()
    draft.answer_all()
    draft.make()
    assert (draft.state.newest.version, draft.state.totals.accepted) == (1, asked - 1)


def test_a_member_that_no_trustee_knows_gets_its_next_task_after_a_trustee_came_back(draft: MaskedRun) -> None:
    stranger = of_bob(draft)
    for name in TRUSTEES:
        draft.vet(name, reason="node bob is not on the roster", unlisted=(stranger,))
    draft.list_it()
    draft.answer_all()
    draft.make()
    for name in ("ann", "bob"):
        draft.ask(name)
    assert draft.has("ann", Masked)
    assert not draft.has("bob", Masked)
    assert "rosters of members" in draft.machine.snapshot(draft.now).holds["bob"].reason
    draft.leave("t1")
    draft.join("t1", "trustee")
    draft.ask("bob")
    assert draft.has("bob", Masked)


def test_one_trustee_that_refuses_an_entry_is_done_without(draft: MaskedRun) -> None:
    for name in TRUSTEES:
        draft.vet(name, *([of_bob(draft)] if name == "t1" else []))
    assert draft.notes(notes.VersionReleased)
    assert not draft.notes(notes.Voided)


def test_an_entry_in_dispute_is_left_out_and_its_node_is_not_judged(draft: MaskedRun) -> None:
    bad = of_bob(draft)
    draft.vet("t1", bad)
    draft.vet("t2")
    draft.vet("t3")
    draft.pass_time(MASKS.patience / 4 + 1.0)
    assert judgements(draft) == [(bad, False)], "t4 was silent for a quarter of the patience"
    assert not draft.notes(notes.Offended)
    draft.list_it()
    draft.answer_all()
    draft.make()
    assert draft.state.newest.version == 1
    (told,) = draft.proofs("bob")
    assert "trustees do not agree" in told.reason


def test_a_draft_that_two_trustees_refuse_as_a_whole_is_given_up_and_no_node_is_judged(draft: MaskedRun) -> None:
    for name in ("t1", "t2"):
        draft.vet(name, reason="two models of version 0")
    (refused,) = draft.notes(notes.VersionRefused)
    assert "t1: two models of version 0" in refused.reason
    assert {judged for _, judged in judgements(draft)} == {False}
    assert not draft.notes(notes.VersionReleased)


def test_a_draft_without_a_quorum_of_judgements_is_given_up_after_the_patience(draft: MaskedRun) -> None:
    draft.vet("t1")
    draft.vet("t2")
    draft.pass_time(MASKS.patience - 1.0)
    assert not draft.notes(notes.VersionRefused)
    draft.pass_time(2.0)
    (refused,) = draft.notes(notes.VersionRefused)
    assert "1 more trustee to check its updates" in refused.reason


def test_a_controller_that_died_asks_about_a_draft_again(draft: MaskedRun) -> None:
    draft.vet("t1")
    draft.crash()
    draft.list_it(vetted=False)
    assert all(draft.has(name, Vet) for name in TRUSTEES)
    draft.answer_all()
    draft.make()
    assert draft.state.newest.version == 1


def test_a_late_judgement_changes_no_list(draft: MaskedRun) -> None:
    for name in TRUSTEES[:3]:
        draft.vet(name)
    draft.vet("t4", of_bob(draft))
    draft.answer_all()
    draft.make()
    assert not draft.notes(notes.Voided)
    assert draft.state.newest.version == 1
