"""Masked updates from workers through a list to trustees and back: the sums are those of updates without masks."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from zmq.utils import z85

from barnraise import compression
from barnraise.controller.state.actions import Held, Slot
from barnraise.controller.state.effects import Listed, ListMembers, Member
from barnraise.controller.tensors.unmasker import Unmasker
from barnraise.core.errors import CorruptionError, PayloadError, ProblemError, RunFailedError, VersionRefusedError
from barnraise.core.types import Batches, Confirm, Endorse, Masked, Seat, Unmask, Vet, Vetted
from barnraise.privacy.masking.member_roster import MemberRoster
from barnraise.privacy.masking.payload import UpdateOrigin, mask
from barnraise.privacy.masking.ring import Ring
from barnraise.privacy.masking.roster import TrusteeRoster
from barnraise.privacy.masking.seats import blank_committee, committee_of
from barnraise.privacy.masking.terms import MaskTerms
from barnraise.transport import Keys
from barnraise.trust.signatures import RunId
from barnraise.wire.messages import Included, Masks
from barnraise.worker.masking import Mask, MaskedMember
from barnraise.worker.trustee import TrusteeExecutor
from barnraise.worker.update_path import UpdatePath

RUN, SIZE = RunId("run", "key"), 300
MASKS = Masks(value_bits=12, most_members=8, limit=0.5, size=SIZE, colluding=1, group=2, least=2)
NODES = ("ann", "bob", "cy", "di")


class Club:
    """Workers and trustees of one run, with their keys, in folders of their own."""

    def __init__(self, folder: Path, masks: Masks = MASKS) -> None:
        self.masks = masks
        self.keys = {name: Keys.generate() for name in (*NODES, "t1", "t2", "t3", "t4")}
        self.folders = {name: folder / name for name in ("t1", "t2", "t3", "t4")}
        self.seats = tuple(
            Seat(name, z85.decode(self.keys[name].public.encode()).hex(), self.keys[name].signer.public)
            for name in self.folders
        )
        self.trustees = {name: self.trustee(name) for name in self.folders}
        ring = Ring(masks.value_bits, masks.most_members, masks.limit)
        self.unmasker = Unmasker(MaskTerms(RunId(""), ring, SIZE, blank_committee(4, 1)), masks.group)
        self.payloads: dict[int, bytes] = {}
        self.plain: dict[int, np.ndarray[Any, Any]] = {}
        self.stages: dict[int, Mask] = {}

    def trustee(self, name: str) -> TrusteeExecutor:
        return TrusteeExecutor(RUN, name, self.keys[name], self.masks, self.folders[name])

    def update(self, node: str, assignment: int, values: torch.Tensor, weight: float = 1.0, **member: Any) -> None:
        plain = compression.create("none")
        stage = Mask(self.masks, plain)
        self.stages[assignment] = stage
        stage.membership = MaskedMember(RUN, node, self.keys[node].signer, **member)
        task = Masked(
            id=assignment, base=0, batches=Batches((), 1, 0), tokens=8, local_steps=2, learning_rate=0.1, rung=0,
            parameters=(0, SIZE), max_staleness=9, committee=self.seats, weight=weight,
        )  # fmt: skip
        path = UpdatePath(plain, error_feedback=False, decay=1.0, update_clip=None, mask=stage)
        stage.begin(task, 2, 0, digest("v0"))
        sent = path.send(values.clone(), torch.zeros(SIZE))
        self.payloads[assignment], self.plain[assignment] = bytes(sent.data), sent.decoded()

    def members(self, numbers: dict[int, str]) -> tuple[Member, ...]:
        return tuple(
            Member(number, node, self.keys[node].signer.public, 0, digest("v0")) for number, node in numbers.items()
        )

    def listed(self, numbers: dict[int, str], nonce: str = "nonce") -> Listed:
        asked = ListMembers(
            1, RUN, version=1, model=digest("v0"), nonce=digest(nonce), members=self.members(numbers),
            committee=self.seats,
        )  # fmt: skip
        return self.unmasker.listed(asked, self.payloads.__getitem__)

    def about(self, found: Listed, numbers: dict[int, str], name: str) -> dict[str, Any]:
        return {
            "members": found.content,
            "signers": tuple(self.keys[node].signer.public for node in numbers.values()),
            "shares": found.shares[list(self.folders).index(name)],
            "committee": self.seats,
        }


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def club(tmp_path: Path) -> Club:
    return Club(tmp_path)


def filled(club: Club) -> dict[int, str]:
    numbers = dict(enumerate(NODES, 1))
    for number, node in numbers.items():
        generator = torch.Generator().manual_seed(number)
        club.update(node, number, 0.1 * torch.randn(SIZE, generator=generator), weight=number / 4)
    return numbers


def slots_of(numbers: dict[int, str]) -> list[Slot]:
    return [Slot(node, (0, SIZE), (Held(number, 1.0, 0),)) for number, node in numbers.items()]


def endorsements(club: Club, found: Listed, numbers: dict[int, str], names: tuple[str, ...]) -> tuple[str, ...]:
    signed = {}
    for name in names:
        answer = club.trustees[name].endorse(Endorse(id=1, base=0, **club.about(found, numbers, name)))
        assert answer.endorsement, answer.reason
        signed[name] = answer.endorsement
    return tuple(signed.get(name, "") for name in club.folders)


def unmasked(club: Club, found: Listed, numbers: dict[int, str], signed: tuple[str, ...]) -> dict[int, bytes]:
    """Ask two trustees for all four seeds: t1 knows all but its own."""
    payloads = {}
    for number, (name, seeds) in enumerate((("t1", (1, 4)), ("t2", (0, 1))), 100):
        about = club.about(found, numbers, name)
        sent = club.trustees[name].unmask(Unmask(id=number, base=0, endorsements=signed, seeds=seeds, **about))
        payloads[number] = bytes(club.trustees[name].payloads[number].data)
        other = "t3" if seeds != (1, 4) else None
        if other:
            told = club.trustees[other].confirm(
                Confirm(id=9, base=0, endorsements=signed, seeds=seeds, **club.about(found, numbers, other))
            )
            assert told.digest == sent.payload.digest
    return payloads


def test_sums_under_masks_equal_those_of_the_rounded_updates(club: Club) -> None:
    numbers = filled(club)
    found = club.listed(numbers)
    assert (found.void, found.num_groups) == ({}, 2)
    masks = unmasked(club, found, numbers, endorsements(club, found, numbers, ("t1", "t2", "t3")))
    club.payloads |= masks
    read = club.unmasker.sums(1, slots_of(numbers), tuple(masks), club.payloads.__getitem__)
    assert not read.left_out
    sums = read.sums
    assert sorted(len(one.nodes) for one in sums) == [2, 2]
    for one in sums:
        members = [number for number, node in numbers.items() if node in one.nodes]
        weights = np.array([number / 4 for number in members])
        expected = sum(weight * club.plain[number] for weight, number in zip(weights, members, strict=True))
        mean = np.empty(SIZE, np.float32)
        one.read(0, mean)
        assert np.allclose(mean, expected / weights.sum(), atol=2e-4)
        assert one.weight == pytest.approx(weights.sum(), rel=1e-3)


def test_a_payload_alone_is_noise(club: Club) -> None:
    club.update("ann", 1, torch.zeros(SIZE))
    club.update("ann", 2, torch.zeros(SIZE))
    first, second = (np.frombuffer(club.payloads[number][-400:], np.uint8) for number in (1, 2))
    assert (first != second).mean() > 0.9


def test_sums_with_a_wrong_mask_are_no_version(club: Club) -> None:
    numbers = filled(club)
    found = club.listed(numbers)
    masks = unmasked(club, found, numbers, endorsements(club, found, numbers, ("t1", "t2", "t3")))
    club.payloads |= {**masks, 100: masks[101]}
    with pytest.raises(VersionRefusedError, match="the sum of"):
        club.unmasker.sums(1, slots_of(numbers), tuple(masks), club.payloads.__getitem__)


def test_a_group_with_an_impossible_sum_is_left_out_and_the_others_stay(club: Club) -> None:
    numbers = filled(club)
    ring = club.unmasker.terms.ring
    words = np.full(SIZE + 1, 4 * ring.limit, ring.dtype)  # two honest members have 2 * limit at most
    words[0] = ring.most_weight
    terms = MaskTerms(RUN, ring, SIZE, committee_of(club.seats, 1))
    club.payloads[1] = mask(terms, UpdateOrigin("ann", 1, 0, digest("v0")), words, club.keys["ann"].signer)
    found = club.listed(numbers)
    masks = unmasked(club, found, numbers, endorsements(club, found, numbers, ("t1", "t2", "t3")))
    club.payloads |= masks
    read = club.unmasker.sums(1, slots_of(numbers), tuple(masks), club.payloads.__getitem__)
    ((out, reason),) = read.left_out.items()
    assert 1 in out
    assert "2 members to at most" in reason
    (left,) = read.sums
    assert set(left.nodes) == {node for number, node in numbers.items() if number not in out}
    assert left.grouped
    assert len(left.nodes) == 2
    assert "ann" not in left.nodes


def test_trustees_release_nothing_without_a_quorum(club: Club) -> None:
    numbers = filled(club)
    found = club.listed(numbers)
    signed = endorsements(club, found, numbers, ("t1", "t2"))
    about = club.about(found, numbers, "t1")
    with pytest.raises(ProblemError, match="2 trustees signed this list, 3 must"):
        club.trustees["t1"].unmask(Unmask(id=5, base=0, endorsements=signed, seeds=(1, 4), **about))
    told = club.trustees["t1"].confirm(Confirm(id=5, base=0, endorsements=signed, seeds=(1, 4), **about))
    assert "3 must" in told.reason


def test_a_trustee_signs_an_update_in_one_list_also_after_a_restart(club: Club) -> None:
    numbers = filled(club)
    first = club.listed(numbers)
    endorsements(club, first, numbers, ("t1",))
    fewer = {number: node for number, node in numbers.items() if number > 2}
    second = club.listed(fewer, "another nonce")
    club.trustees["t1"]._journal.close()
    again = club.trustee("t1")
    refused = again.endorse(Endorse(id=2, base=0, **club.about(second, fewer, "t1")))
    assert not refused.endorsement
    assert refused.faulty == (3, 4)
    assert "another list" in refused.reason
    same = again.endorse(Endorse(id=3, base=0, **club.about(first, numbers, "t1")))
    assert same.endorsement


def vetted(club: Club, found: Listed, numbers: dict[int, str], name: str = "t1") -> Vetted:
    return club.trustees[name].vet(Vet(id=9, base=0, **club.about(found, numbers, name)))


def test_a_trustee_refuses_lists_of_one_and_other_keys_of_known_members(club: Club) -> None:
    numbers = filled(club)
    assert not vetted(club, club.listed(numbers), numbers).reason
    alone = club.listed({1: "ann"})
    assert "at least 2" in vetted(club, alone, {1: "ann"}).reason
    refused = club.trustees["t1"].endorse(Endorse(id=1, base=0, **club.about(alone, {1: "ann"}, "t1")))
    assert "at least 2" in refused.reason
    club.keys["ann"] = Keys.generate()
    club.update("ann", 1, torch.zeros(SIZE))
    changed = vetted(club, club.listed(numbers), numbers)
    assert (changed.faulty, changed.unlisted) == ((), (1,)), "the node is not accused"
    assert "an entry that node ann did not sign" in changed.reason


def test_a_trustee_with_a_list_of_members_accepts_no_others_and_learns_none(club: Club) -> None:
    numbers = filled(club)
    keys = {node: club.keys[node].signer.public for node in ("ann", "bob")}
    listing = club.folders["t1"].with_name("listing")
    club.trustees["t1"] = TrusteeExecutor(
        RUN, "t1", club.keys["t1"], club.masks, listing, MemberRoster(keys, "members.txt")
    )
    for _ in range(2):  # it has not learnt them in between
        told = vetted(club, club.listed(numbers), numbers)
        assert (told.faulty, sorted(told.unlisted)) == ((), [3, 4])
        assert "node cy is not on the roster of trustee t1" in told.reason
    refused = club.trustees["t1"].endorse(Endorse(id=2, base=0, **club.about(club.listed(numbers), numbers, "t1")))
    assert (refused.endorsement, refused.faulty) == ("", ()), "the node is not accused"
    known = {number: node for number, node in numbers.items() if node in keys}
    again = club.listed(known, "another nonce")
    assert not vetted(club, again, known).reason
    assert club.trustees["t1"].endorse(Endorse(id=3, base=0, **club.about(again, known, "t1"))).endorsement


def test_a_trustee_names_entries_whose_seeds_it_cannot_open_and_binds_nothing_by_it(club: Club) -> None:
    numbers = filled(club)
    found = club.listed(numbers)
    about = club.about(found, numbers, "t1")
    about["shares"] = (about["shares"][1], *about["shares"][1:])
    told = club.trustees["t1"].vet(Vet(id=9, base=0, **about))
    assert told.faulty == (1,)
    assert told.reason.startswith("assignment 1: ")
    fewer = {number: node for number, node in numbers.items() if number > 1}
    again = club.listed(fewer, "another nonce")
    assert not vetted(club, again, fewer).faulty
    assert club.trustees["t1"].endorse(Endorse(id=2, base=0, **club.about(again, fewer, "t1"))).endorsement


def test_an_update_that_another_key_signed_or_that_is_of_other_terms_or_another_task_is_in_no_list(club: Club) -> None:
    numbers = filled(club)
    club.keys["bob"] = Keys.generate()
    assert set(club.listed(numbers).void) == {2}
    kept, club.seats = club.seats, replace_seats(club.seats)
    club.update("cy", 3, torch.zeros(SIZE))
    club.seats = kept
    club.payloads[4] = club.payloads[1]
    found = club.listed(numbers)
    assert set(found.void) == {2, 3, 4}
    assert "did not sign" in found.void[3]
    assert not found.content


def test_payloads_that_the_controller_lost_are_named_apart(club: Club) -> None:
    numbers = filled(club)

    def read(number: int) -> bytes:
        if number == 2:
            raise CorruptionError("its bytes are damaged")
        return club.payloads[number]

    asked = ListMembers(1, RUN, 1, digest("v0"), digest("nonce"), club.members(numbers), club.seats)
    found = club.unmasker.listed(asked, read)
    assert (found.void, found.lost) == ({}, {2: "its bytes are damaged"})


def test_a_worker_sends_updates_under_masks_of_the_trustees_that_its_owner_named_alone(club: Club) -> None:
    roster = TrusteeRoster(committee_of(club.seats, 1), ("Ann", "Bob", "Cy", "Di"), "trustees.txt")
    club.update("ann", 1, torch.zeros(SIZE), roster=roster)
    club.seats = replace_seats(club.seats)
    with pytest.raises(RunFailedError, match=r"sends no update: trustees t1 of the run are not in trustees\.txt"):
        club.update("ann", 2, torch.zeros(SIZE), roster=roster)


def test_a_task_without_masks_in_a_masked_run_sends_nothing() -> None:
    plain = compression.create("none")
    stage = Mask(MASKS, plain)
    path = UpdatePath(plain, error_feedback=False, decay=1.0, update_clip=None, mask=stage)
    with pytest.raises(RunFailedError, match="a task without masks"):
        path.send(torch.ones(SIZE), torch.zeros(SIZE))


def test_a_trustee_without_a_seat_and_a_foreign_payload_are_refused(club: Club) -> None:
    numbers = filled(club)
    found = club.listed(numbers)
    about = club.about(found, numbers, "t1")
    others = replace_seats(club.seats)
    refused = club.trustees["t1"].endorse(Endorse(id=1, base=0, **(about | {"committee": others})))
    assert "no seat" in refused.reason
    club.payloads[1] = club.payloads[1][:-1]
    with pytest.raises(PayloadError):
        club.unmasker.sums(1, slots_of(numbers), (), club.payloads.__getitem__)


def replace_seats(seats: tuple[Seat, ...]) -> tuple[Seat, ...]:
    key = Keys.generate()
    other = Seat("t1", z85.decode(key.public.encode()).hex(), key.signer.public)
    return (other, *seats[1:])


def test_a_member_finds_its_update_in_the_signed_list(club: Club) -> None:
    numbers = filled(club)
    found = club.listed(numbers)
    signed = endorsements(club, found, numbers, ("t1", "t2", "t4"))
    proof = Included(1, 1, found.content, found.digest, signed)
    assert club.stages[1].prove(proof) == ""
    few = replace(proof, endorsements=("", *signed[1:]))
    assert "2 trustees signed the list of version 1, 3 must" in club.stages[1].prove(few)
    assert "is said to have" in club.stages[1].prove(replace(proof, digest=digest("another")))
    assert "for version 1 of run" in club.stages[1].prove(replace(proof, version=2))
    assert "no list of members" in club.stages[1].prove(replace(proof, members=b"rubbish"))
    assert "made no such update" in club.stages[1].prove(replace(proof, assignment=2))


def test_a_member_notices_a_list_without_its_update(club: Club) -> None:
    numbers = filled(club)
    others = {number: node for number, node in numbers.items() if number != 1}
    found = club.listed(others)
    signed = endorsements(club, found, others, ("t1", "t2", "t3"))
    assert "is not in the list" in club.stages[1].prove(Included(1, 1, found.content, found.digest, signed))
    assert club.stages[2].prove(Included(2, 1, found.content, found.digest, signed)) == ""
