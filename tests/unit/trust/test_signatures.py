"""The signatures of nodes: each signed field counts, and a ledger proves its contributions to each reader."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.controller.work import admission
from barnraise.core.types import Blob, Contribution, ParameterRange, PayloadResult, Signature, Transcript
from barnraise.ledger.decisions import Change, Claim, Decision, Judged, NodeChanged, Noted, Weighing
from barnraise.ledger.evidence import Signatures
from barnraise.ledger.notes import Started
from barnraise.transport import Keys
from barnraise.trust.signatures import RunId, rotation, signed, statement, verified

RUN = RunId("barn", "k" * 40)
KEYS = Keys.generate()
SPAN = ParameterRange(0, 10)
MADE = Contribution(
    assignment=7, base=4, steps=20, loss=2.0, seconds=3.0, parameters=SPAN, payload=Blob("ab" * 32, 9), codec=1
)
OFFERED = signed(RUN, "ann", MADE, KEYS.signer)


def refused(offer: Contribution, run: RunId = RUN, node: str = "ann", signer: str = KEYS.signer.public) -> str:
    return admission.refuse_signature(run, node, offer, signer)


def test_signed_rows_are_accepted() -> None:
    assert refused(OFFERED) == ""
    assert refused(MADE, signer="") == "", "a node without a key signs nothing"


@pytest.mark.parametrize(
    "change",
    [
        {"assignment": 8}, {"base": 5}, {"steps": 19}, {"codec": 0}, {"payload": Blob("cd" * 32, 9)},
        {"signature": ""}, {"signature": "0" * 128}, {"signature": OFFERED.signature[::-1]},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_every_signed_field_counts(change: dict[str, Any]) -> None:
    assert "is not signed by the key" in refused(msgspec.structs.replace(OFFERED, **change))


def test_a_signature_is_good_for_one_run_and_one_node() -> None:
    assert refused(OFFERED, run=RunId("barn", "l" * 40))
    assert refused(OFFERED, run=RunId("bar", "n" + "k" * 40))
    assert refused(OFFERED, node="bob")
    assert refused(OFFERED, signer=Keys.generate().signer.public)


@given(st.binary(max_size=80), st.text(max_size=140), st.text(max_size=70))
def test_invalid_signatures_and_keys_verify_nothing(statement: bytes, signature: str, key: str) -> None:
    assert not verified(statement, signature, key)
    assert not verified(statement, signature, KEYS.signer.public)
    assert not verified(statement, KEYS.signer.sign(statement), key)


def test_statements_of_two_kinds_are_never_alike() -> None:
    assert statement(RUN, "ann", MADE).startswith(b"barnraise contribution 2")
    assert rotation(RUN, "ann", "k", "s").startswith(b"barnraise rotation 1")


class Sealed(PayloadResult, frozen=True, gc=False, tag="sealed", kw_only=True):
    """A result of another kind than an update, with a payload."""

    payload: Blob
    signature: Signature = ""


def test_a_payload_that_is_no_update_is_signed_and_proven_from_the_ledger() -> None:
    made = Sealed(assignment=7, base=4, steps=0, loss=0.0, seconds=3.0, payload=Blob("ab" * 32, 9))
    offered = signed(RUN, "ann", made, KEYS.signer)
    assert statement(RUN, "ann", made).startswith(b"barnraise payload 1")
    assert admission.refuse_signature(RUN, "ann", offered, KEYS.signer.public) == ""
    for change in ({"assignment": 8}, {"base": 5}, {"payload": Blob("cd" * 32, 9)}):
        changed = msgspec.structs.replace(offered, **change)
        assert admission.refuse_signature(RUN, "ann", changed, KEYS.signer.public)
    rows = Signatures(RUN)
    enrolled = NodeChanged(0.0, "ann", Change.ENROLLED, key="k", signer=KEYS.signer.public)
    assert rows.wrong(enrolled) == ""
    for result, wrong in ((offered, False), (msgspec.structs.replace(offered, base=5), True)):
        row = Judged(
            0.0, 7, "ann", "accepted", "", Claim.of(result), version=4, staleness=0, tokens=0, norm=0.0,
            parameters=ParameterRange(0, 0), weighing=Weighing(0.0),
        )  # fmt: skip
        assert row.claim.result == "sealed"
        assert bool(rows.wrong(row)) == wrong


def test_a_transcript_is_signed_too() -> None:
    """Or a controller could pair what was sent with another one, which it does not follow from."""
    transcripts = (None, Transcript(3, 2), Transcript(3, 3), Transcript(4, 2))
    told = [msgspec.structs.replace(MADE, transcript=given) for given in transcripts]
    assert len({statement(RUN, "ann", made) for made in told}) == len(told)


def test_the_key_of_signatures_follows_from_the_file_and_does_not_show_it() -> None:
    assert Keys(KEYS.public, KEYS.secret).signer.public == KEYS.signer.public
    assert Keys.generate().signer.public != KEYS.signer.public
    assert KEYS.secret not in repr(KEYS.signer) + repr(KEYS)


def judged(offer: Contribution, verdict: Any = "accepted", node: str = "ann") -> Judged:
    return Judged(1.0, offer.assignment, node, verdict, "", Claim.of(offer), 4, 0, 10, 1.0, SPAN, Weighing(1.0))


def enrolled(signer: str = KEYS.signer.public, change: Change = Change.ENROLLED, node: str = "ann") -> NodeChanged:
    return NodeChanged(0.5, node, change, key="k" * 40, signer=signer)


def found(*rows: Decision) -> tuple[list[str], int, int]:
    proof = Signatures()
    wrong = [reason for row in (Noted(0.0, Started("d", *RUN)), *rows) if (reason := proof.wrong(row))]
    return wrong, proof.signed, proof.unsigned


def test_a_ledger_proves_its_contributions() -> None:
    assert found(enrolled(), judged(OFFERED)) == ([], 1, 0)
    assert found(enrolled(), judged(OFFERED, "refused")) == ([], 0, 0)
    assert found(enrolled(""), judged(MADE)) == ([], 0, 1), "a simulated node signs nothing, and that is told"


def test_a_forged_row_is_named() -> None:
    forged = msgspec.structs.replace(OFFERED, payload=Blob("ff" * 32, 9))
    for rows in ([judged(forged)], [judged(MADE)], [judged(OFFERED), judged(forged)]):
        assert found(enrolled(), *rows)[0] == [
            "contribution 7 of 'ann' is not signed by the key that its node enrolled with"
        ]
    assert found(enrolled(), enrolled(node="bob"), judged(OFFERED, node="bob"))[0], "somebody else's"


def test_a_key_counts_from_its_row_on_and_the_one_before_for_what_was_on_its_way() -> None:
    new = Keys.generate()
    later = signed(RUN, "ann", msgspec.structs.replace(MADE, assignment=8), new.signer)
    change = enrolled(new.signer.public, Change.REKEYED)
    assert found(enrolled(), change, judged(OFFERED), judged(later)) == ([], 2, 0)
    assert len(found(enrolled(), judged(later), change)[0]) == 1
