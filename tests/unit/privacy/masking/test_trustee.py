"""A trustee endorses a list once, gives a list's masks to a quorum, and refuses all else, also after a crash."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from tests.maskings import (
    committee,
    listed,
    member_signer,
    origin,
    signatures,
    terms,
    trustee,
    trustee_sealing,
    update,
)

from barnraise.privacy.masking.lists import MemberList, entry_of
from barnraise.privacy.masking.payload import UpdateOrigin, mask, parse
from barnraise.privacy.masking.sealing import draw_seeds, seal
from barnraise.privacy.masking.trustee import Endorsement, Expansion, ListBound, ListRefused, SeedsGiven
from barnraise.trust.signatures import RunId

IT = terms()
WORDS = np.zeros(IT.num_words, IT.ring.dtype)
UPDATES = [update(IT, number, WORDS) for number in range(6)]
LIST = listed(IT, UPDATES)
SHARES = [one.shares[0] for one in UPDATES]
SIGNED = signatures(LIST, range(3))
PORTION = [IT.committee.known[0][:2]]  # type: ignore[union-attr]


def refusal(answer: object) -> str:
    """The text of a refusal with what is wrong with entries."""
    assert isinstance(answer, ListRefused), answer
    return " ".join([answer.reason, *answer.faults.values()])


def new() -> tuple[Any, list[Any]]:
    journal: list[Any] = []
    return trustee(0, IT, journal.append), journal


def test_an_endorsement_is_a_signature_of_the_list_that_is_recorded_before() -> None:
    machine, journal = new()
    assert machine.endorse(LIST, SHARES) == Endorsement("t0", SIGNED["t0"])
    assert journal == [ListBound(LIST.digest, LIST.nonce, tuple(range(6)), ((3, LIST.model),))]


def test_the_same_list_has_the_same_answer_and_no_further_decision() -> None:
    machine, journal = new()
    answers = [machine.endorse(LIST, SHARES) for _ in range(2)]
    assert answers[0] == answers[1]
    given = [machine.give(LIST, SHARES, SIGNED, PORTION) for _ in range(2)]
    assert given[0] == given[1]
    assert [type(one) for one in journal] == [ListBound, SeedsGiven]


def test_a_restarted_trustee_answers_as_before() -> None:
    machine, journal = new()
    before = machine.endorse(LIST, SHARES), machine.give(LIST, SHARES, SIGNED, PORTION)
    again = trustee(0, IT, journal.append, list(journal))
    assert (again.endorse(LIST, SHARES), again.give(LIST, SHARES, SIGNED, PORTION)) == before
    assert len(journal) == 2
    other = msgspec.structs.replace(LIST, nonce="cd" * 32, entries=LIST.entries[1:])
    assert "endorsed in another list" in refusal(again.endorse(other, SHARES[1:]))


def test_a_trustee_whose_disk_fails_answers_nothing_and_binds_nothing() -> None:
    def fail(_: object) -> None:
        raise OSError("the disk is full")

    machine = trustee(0, IT, fail)
    with pytest.raises(OSError, match="full"):
        machine.endorse(LIST, SHARES)
    other = msgspec.structs.replace(LIST, nonce="cd" * 32)
    with pytest.raises(OSError, match="full"):
        machine.give(other, SHARES, signatures(other, range(3)), PORTION)


def test_seeds_are_given_by_portion_and_group() -> None:
    machine, _ = new()
    paired = msgspec.structs.replace(LIST, group=2)
    known = IT.committee.known[0]  # type: ignore[union-attr]
    work = machine.give(paired, SHARES, signatures(paired, range(3)), [[known[0]], list(known[1:])])
    assert isinstance(work, Expansion)
    opened = [trustee_sealing(0).open(one.shares[0], IT.binding(*origin(n)), 0) for n, one in enumerate(UPDATES)]
    for portion, places in zip(work.portions, ([0], [1, 2]), strict=True):
        assert portion == tuple(
            tuple(opened[one][place] for one in group for place in places) for group in paired.groups
        )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"run": RunId("barn", "j" * 40)}, "another run"),
        ({"terms": "cd" * 32}, "other terms"),
        ({"support": 1}, "other terms"),
        ({"entries": LIST.entries[:1]}, "a group of 1 members, must have at least 2"),
        ({"group": 1}, "a group of 1 members"),
        ({"entries": (*LIST.entries, LIST.entries[0])}, "a member twice"),
        ({"model": "cd" * 32}, "two models of version 3"),
        ({"version": 3}, "version 3, which is not made yet"),
    ],
)
def test_lists_that_would_tell_too_much_are_refused(change: dict[str, Any], told: str) -> None:
    machine, journal = new()
    other = msgspec.structs.replace(LIST, **change)
    shares = (SHARES * 2)[: len(other.entries)]
    assert told in refusal(machine.endorse(other, shares))
    assert told in refusal(machine.give(other, shares, signatures(other, range(4)), PORTION))
    assert told in machine.vet(other, shares).reason
    assert journal == []


def test_an_update_is_in_one_list_only() -> None:
    machine, journal = new()
    machine.endorse(LIST, SHARES)
    without = msgspec.structs.replace(LIST, nonce="cd" * 32, entries=LIST.entries[:5])
    other = update(IT, 7, WORDS)
    more = msgspec.structs.replace(LIST, nonce="ce" * 32, entries=(LIST.entries[0], entry_of(other, origin(7))))
    for one, shares in [(without, SHARES[:5]), (more, [SHARES[0], other.shares[0]])]:
        assert "endorsed in another list" in refusal(machine.endorse(one, shares))
        assert "endorsed in another list" in refusal(machine.give(one, shares, signatures(one, range(4)), PORTION))
        assert "endorsed in another list" in " ".join(machine.vet(one, shares).faults.values())
    assert len(journal) == 1


def test_a_nonce_is_of_one_list() -> None:
    machine, _ = new()
    machine.endorse(LIST, SHARES)
    updates = [update(IT, number, WORDS) for number in range(10, 14)]
    entries = tuple(entry_of(one, origin(number)) for number, one in enumerate(updates, 10))
    other = msgspec.structs.replace(LIST, entries=entries)
    shares = [one.shares[0] for one in updates]
    assert "a nonce that another list has" in refusal(machine.endorse(other, shares))
    assert isinstance(machine.endorse(msgspec.structs.replace(other, nonce="cd" * 32), shares), Endorsement)


def test_members_that_were_given_different_models_are_noticed_across_lists() -> None:
    machine, _ = new()
    machine.endorse(LIST, SHARES)
    origins = [UpdateOrigin(f"n{number}", number, 3, "cd" * 32) for number in (10, 11)]
    updates = [parse(mask(IT, one, WORDS.copy(), member_signer(one.assignment)), IT) for one in origins]
    entries = tuple(entry_of(one, of) for one, of in zip(updates, origins, strict=True))
    other = MemberList(**{**msgspec.structs.asdict(LIST), "version": 6, "nonce": "cd" * 32, "entries": entries})
    assert "two models of version 3" in refusal(machine.endorse(other, [one.shares[0] for one in updates]))


def test_foreign_members_and_forged_entries_are_refused() -> None:
    stranger = update(IT, 77, WORDS)
    foreign = msgspec.structs.replace(LIST, entries=(*LIST.entries, entry_of(stranger, origin(77))))
    forged = msgspec.structs.replace(LIST.entries[0], words="cd" * 32)
    for other, shares, told in [
        (foreign, [*SHARES, stranger.shares[0]], "node n77 is not on the roster"),
        (msgspec.structs.replace(LIST, entries=(forged, *LIST.entries[1:])), SHARES, "node n0 did not sign"),
    ]:
        machine, journal = new()
        assert told in refusal(machine.endorse(other, shares))
        assert told in " ".join(machine.vet(other, shares).faults.values())
        assert journal == []


def test_shares_that_the_host_made_or_moved_are_refused() -> None:
    them = committee()
    ephemeral, sealed = seal(them, draw_seeds(them), IT.binding(*origin(0)))
    for bad, told in [(ephemeral + sealed[0], "not those that the member signed"), (SHARES[1], "does not open")]:
        machine, journal = new()
        assert told in refusal(machine.endorse(LIST, [bad, *SHARES[1:]]))
        assert machine.vet(LIST, [bad, *SHARES[1:]]).faults.keys() == {0}
        assert journal == []
    assert "do not fit" in refusal(new()[0].endorse(LIST, SHARES[:3]))


def test_masks_are_given_to_a_quorum_only() -> None:
    forged = {"t0": SIGNED["t0"], "t1": SIGNED["t1"], "t2": "ab" * 64, "t3": SIGNED["t2"], "t9": SIGNED["t2"]}
    machine, journal = new()
    assert "2 trustees signed this list, 3 must" in refusal(machine.give(LIST, SHARES, forged, PORTION))
    assert journal == []


@pytest.mark.parametrize("portion", [[], [0], [1, 1], [99], [-1]])
def test_seeds_that_a_trustee_does_not_know_are_refused(portion: list[int]) -> None:
    assert "does not know" in refusal(new()[0].give(LIST, SHARES, SIGNED, [portion]))
