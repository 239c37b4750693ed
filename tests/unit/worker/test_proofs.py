"""Tests of what a worker tells its owner about its masked updates."""

from __future__ import annotations

import pytest

from barnraise.core.types import Batches, Contribution, Masked
from barnraise.wire.messages import Included
from barnraise.worker import proofs
from barnraise.worker.actions import CheckProof, Say
from barnraise.worker.events import ProofChecked
from barnraise.worker.tally import AnswerTally

TASK = Masked(
    id=7, base=0, batches=Batches((), 1, 0), tokens=8, local_steps=2, learning_rate=0.1, rung=0, parameters=(0, 9),
    max_staleness=9, committee=(), weight=1.0,
)  # fmt: skip
PROOF = Included(7, 1, b"list", "ab" * 32, ("",))


@pytest.fixture
def tally() -> AnswerTally:
    """The tally of a worker that submitted one masked update."""
    tally = AnswerTally()
    blob: object = None
    tally.done(TASK, Contribution.of(TASK, blob, codec=0, steps=2))  # type: ignore[arg-type]
    return tally


def test_a_proof_of_an_open_update_is_checked_and_others_are_passed_over(tally: AnswerTally) -> None:
    assert proofs.told(PROOF, tally) == [CheckProof(PROOF)]
    assert not proofs.told(Included(8, 1, b"list"), tally)
    tally.answered(7, True, "")
    assert proofs.told(PROOF, tally) == [CheckProof(PROOF)]


def test_a_proven_update_is_counted_once_and_the_first_one_is_told(tally: AnswerTally) -> None:
    (said,) = proofs.counted(ProofChecked(7, 1), tally)
    assert isinstance(said, Say)
    assert "task 7 is in version 1" in said.text
    assert (tally.answers.included, tally.answers.left_out) == (1, 0)
    assert not proofs.counted(ProofChecked(7, 1), tally)
    assert not proofs.told(PROOF, tally)
    tally.masked.add(8)
    assert not proofs.counted(ProofChecked(8, 2), tally)
    assert tally.answers.included == 2


def test_a_false_proof_is_a_warning_and_no_proof(tally: AnswerTally) -> None:
    (said,) = proofs.counted(ProofChecked(7, 1, "2 trustees signed the list, 3 must"), tally)
    assert isinstance(said, Say)
    assert said.text.startswith("WARNING")
    assert "3 must" in said.text
    assert (tally.answers.included, tally.answers.left_out) == (0, 1)


def test_an_update_that_was_left_out_is_told_with_the_reason(tally: AnswerTally) -> None:
    (said,) = proofs.told(Included(7, 1, reason="too few trustees"), tally)
    assert isinstance(said, Say)
    assert "left out of version 1: too few trustees" in said.text
    assert tally.answers.left_out == 1


def test_a_refused_update_awaits_no_proof(tally: AnswerTally) -> None:
    tally.answered(7, False, "stale")
    assert not tally.masked
    assert not proofs.told(PROOF, tally)


def test_a_worker_sums_up_as_it_ends(tally: AnswerTally) -> None:
    assert not proofs.summed_up(AnswerTally())
    assert proofs.summed_up(tally) == [
        Say("0 of 1 masked update proven to be in versions; 1 without a proof when this machine ended")
    ]
    proofs.counted(ProofChecked(7, 1), tally)
    assert proofs.summed_up(tally) == [Say("1 of 1 masked update proven to be in versions")]
    tally.masked.add(8)
    proofs.counted(ProofChecked(8, 1, "no"), tally)
    assert proofs.summed_up(tally) == [
        Say("1 of 2 masked updates proven to be in versions; 1 left out, or with a false proof")
    ]
