"""Seats of trustees, and updates that were made for seats that changed."""

from __future__ import annotations

import pytest

from barnraise.controller.state.events import Admitted, RevokeRequested
from barnraise.core.types import Masked
from barnraise.ledger import notes

from ....masked_runs import SIGNERS, TRUSTEES, WORKERS, MaskedRun, key_of


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
