"""Versions of masked updates: the list, its endorsement, the sums of masks, and how a list is given up."""

from __future__ import annotations

import random

import pytest

from barnraise.controller.state import effects
from barnraise.controller.state.fold import apply
from barnraise.controller.state.state import State
from barnraise.controller.versions.endorsing import Endorsing, SendingMasks, Vetting
from barnraise.controller.work.utilisation import Utilisation
from barnraise.core.types import Blob, Confirm, Endorse, Unmask, Vet
from barnraise.ledger import Assigned, notes

from ....masked_runs import MASKS, TRUSTEES, WORKERS, MaskedRun
from ....state_machine.engine import digest


@pytest.fixture
def closed() -> MaskedRun:
    """A run whose first version waits for its list."""
    run = MaskedRun()
    for name in WORKERS:
        run.contribute(name)
    return run


@pytest.fixture
def listed(closed: MaskedRun) -> MaskedRun:
    """A run that has asked its trustees to endorse the list."""
    closed.list_it()
    return closed


def test_a_masked_run_trains_once_its_trustees_are_there() -> None:
    run = MaskedRun(workers=())
    assert run.state.num_live == 0, "trustees do not count as nodes that train"
    run.join("ann")
    run.join("bob")
    run.ask("ann")
    assert run.tasks["ann"], "all four trustees are there"


def test_training_waits_for_missing_trustees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.masked_runs.TRUSTEES", TRUSTEES[:3])
    run = MaskedRun(workers=("ann", "bob"))
    run.ask("ann")
    assert not run.tasks["ann"]
    (note,) = run.notes(notes.Paused)
    assert "3 of 4 trustees have joined" in note.reason
    run.join("t4", "trustee")
    run.pass_time(1.0)
    run.ask("ann")
    assert run.tasks["ann"]


def test_trustees_sign_a_list_after_the_ledger_has_it(listed: MaskedRun) -> None:
    (released,) = listed.notes(notes.VersionReleased)
    assert listed.state.closing is not None
    assert released.digest == listed.state.closing.list_digest
    assert all(listed.has(name, Endorse) for name in TRUSTEES)


def test_a_version_is_made_of_sums_that_two_trustees_agree_on(listed: MaskedRun) -> None:
    for name in TRUSTEES[:2]:
        listed.endorse(name)
    assert not any(listed.has(name, Unmask) for name in TRUSTEES), "a quorum is three"
    listed.endorse("t3")
    asked = [(name, kind) for name in TRUSTEES for kind in (Unmask, Confirm) if listed.has(name, kind)]
    assert len(asked) >= 2
    listed.answer_all()
    (unmasked,) = listed.notes(notes.VersionUnmasked)
    asked_to_make = listed.job(effects.Aggregate)
    assert asked_to_make.masks == unmasked.masks
    listed.jobs.append(asked_to_make)
    listed.make()
    assert listed.state.newest.version == 1
    assert not listed.state.merging


def test_a_group_left_out_of_a_version_is_noted_and_costs_its_members_nothing_else(listed: MaskedRun) -> None:
    listed.answer_all()
    numbers, asked = tuple(sorted(listed.state.merging)), listed.job(effects.Aggregate)
    refused = {numbers: "the sum of ann, bob: a value sums to 90 steps, that of 2 members to at most 40"}
    made = effects.Aggregated(listed.epoch, 1, digest(1), Blob(digest(5001), 9), left_out=refused)
    assert asked.version == 1
    listed.handle(made)
    listed.handle(made)
    (note,) = listed.notes(notes.GroupLeftOut)
    assert (note.version, note.contributions, note.reason) == (1, numbers, refused[numbers])
    assert not listed.notes(notes.Offended)
    assert not listed.state.redo
    assert listed.state.newest.version == 1
    assert all(node.live and node.tally.refused == 0 for node in listed.state.nodes.values())
    listed.crash()
    assert listed.state.newest.version == 1
    assert len(listed.notes(notes.GroupLeftOut)) == 1


def test_sums_that_differ_are_asked_of_others_and_the_liar_is_sentenced(listed: MaskedRun) -> None:
    for name in TRUSTEES:
        listed.endorse(name)
    listed.answer_all(liar="t1")
    assert listed.notes(notes.VersionUnmasked)
    (sentence,) = listed.notes(notes.Offended)
    assert "other sums of masks" in sentence.reason


def test_a_forged_endorsement_is_refused_and_the_others_suffice(listed: MaskedRun) -> None:
    listed.endorse("t1", forged=True)
    refused = [d for d in listed.journal if getattr(d, "verdict", "") == "refused"]
    assert "not a signature" in refused[0].reason
    for name in TRUSTEES[1:]:
        listed.endorse(name)
    listed.answer_all()
    assert listed.notes(notes.VersionUnmasked)


def test_a_list_that_two_trustees_refuse_is_given_up_and_its_rows_are_done_again(listed: MaskedRun) -> None:
    listed.endorse("t1", reason="a nonce that another list has")
    listed.endorse("t2", reason="a nonce that another list has")
    (refused,) = listed.notes(notes.VersionRefused)
    assert "t1: a nonce that another list has" in refused.reason
    assert len(listed.state.redo) == 2
    assert all(node.tally.refused == 0 for node in listed.state.nodes.values()), "a list says nothing of one node"
    listed.make()
    assert (listed.state.newest.version, listed.state.totals.tokens) == (1, 0)


def test_a_member_whose_seeds_two_trustees_find_false_is_sentenced(listed: MaskedRun) -> None:
    faulty = next(number for number, work in listed.state.merging.items() if work.node == "bob")
    for name in ("t1", "t2"):
        listed.endorse(name, reason="1 of 2 entries are refused", faulty=(faulty,))
    (sentence,) = listed.notes(notes.Offended)
    assert sentence.assignment == faulty
    assert not listed.state.nodes["bob"].live
    assert listed.state.nodes["ann"].live


def test_one_trustee_alone_convicts_no_member(listed: MaskedRun) -> None:
    faulty = next(iter(listed.state.merging))
    listed.endorse("t1", reason="1 of 2 entries are refused", faulty=(faulty,))
    listed.endorse("t2", reason="the disk is full")
    assert listed.notes(notes.VersionRefused)
    assert not listed.notes(notes.Offended)


def test_members_with_bad_payloads_leave_the_list_before_it_is_released(closed: MaskedRun) -> None:
    first, _ = sorted(closed.state.merging)
    closed.list_it(void={first: "a masked update that ann did not sign"})
    assert not closed.notes(notes.VersionReleased)
    assert [voided.assignment for voided in closed.notes(notes.Voided)][:1] == [first]


def test_a_list_waits_for_trustees_and_is_given_up_after_the_patience(listed: MaskedRun) -> None:
    for name in ("t1", "t2"):
        listed.leave(name)
    listed.endorse("t3")
    listed.endorse("t4")
    waits = listed.machine.snapshot(listed.now).trustees
    assert waits == "1 more trustee to endorse its list (away: t1, t2)"
    listed.pass_time(MASKS.patience - 1)
    assert not listed.notes(notes.VersionRefused)
    listed.pass_time(2.0)
    (refused,) = listed.notes(notes.VersionRefused)
    assert "waited 61 s for 1 more trustee" in refused.reason


def test_a_trustee_that_returns_is_asked_again(listed: MaskedRun) -> None:
    for name in ("t1", "t2"):
        listed.leave(name)
    listed.endorse("t3")
    listed.endorse("t4")
    listed.join("t1", "trustee")
    assert listed.has("t1", Endorse)
    listed.answer_all()
    listed.join("t2", "trustee")
    listed.answer_all()
    assert listed.notes(notes.VersionUnmasked)


@pytest.mark.parametrize("step", ["closed", "listed", "endorsed", "unmasked"])
def test_a_controller_that_died_continues_with_the_same_list(closed: MaskedRun, step: str) -> None:
    if step != "closed":
        closed.list_it()
    before = closed.state.closing
    if step == "endorsed":
        for name in TRUSTEES[:3]:
            closed.endorse(name)
    if step == "unmasked":
        closed.answer_all()
    closed.crash()
    closing = closed.state.closing
    assert closing is not None
    assert before is not None
    assert closing.contributions == before.contributions
    if step == "unmasked":
        closed.list_it()
        assert closed.job(effects.Aggregate).masks == closed.notes(notes.VersionUnmasked)[0].masks
        return
    closed.list_it()
    closed.answer_all()
    closed.make()
    assert len(closed.notes(notes.VersionReleased)) == 1
    assert closed.state.newest.version == 1


def test_trustees_are_asked_and_not_matched(closed: MaskedRun) -> None:
    closed.list_it()
    trustee = closed.state.nodes["t1"]
    assert not any(closed.machine.parts[kind].suits(trustee, 0) for kind in (Vetting, Endorsing, SendingMasks))
    closed.answer_all()
    closed.make()
    used = closed.machine.parts[Utilisation].until(closed.now)
    tasks = [d for d in closed.journal if isinstance(d, Assigned) and d.kind == "masked"]
    assert used.offers == len(tasks), "the figures are those of workers"


def test_a_version_takes_one_update_of_each_node_and_leaves_the_rest() -> None:
    run = MaskedRun()
    numbers = [run.contribute("ann"), run.contribute("ann"), run.contribute("bob")]
    closing = run.state.closing
    assert closing is not None
    assert closing.contributions == (numbers[0], numbers[2])
    assert run.state.buffer.count("ann") == 1
    assert run.state.buffer.tokens == run.state.merging[numbers[1]].tokens
    run.list_it()
    run.answer_all()
    run.make()
    assert set(run.state.merging) == {numbers[1]}
    state = State()
    for decision in run.journal:
        apply(state, decision)
    assert state == run.state


def test_a_run_that_is_over_keeps_its_trustees_until_the_last_version(listed: MaskedRun) -> None:
    from barnraise.controller.state.events import StopRequested

    listed.handle(StopRequested("enough"))
    assert all(listed.state.nodes[name].live for name in TRUSTEES)
    listed.answer_all()
    listed.make()
    assert listed.state.newest.version == 1


@pytest.mark.parametrize("seed", range(20))
def test_random_histories_make_exact_lists_or_give_them_up(seed: int) -> None:
    """Trustees and workers come, go, refuse, forge and lie at random; the controller crashes."""
    rng, run = random.Random(seed), MaskedRun(workers=("ann", "bob", "cy", "di"))
    for _ in range(250):
        step(rng, run)
    lists = run.notes(notes.VersionReleased)
    assert len({note.version for note in lists}) == len(lists), "a version has one list"
    state = State()
    for decision in run.journal:
        apply(state, decision)
    assert state == run.state


def step(rng: random.Random, run: MaskedRun) -> None:
    trustee, worker = rng.choice(TRUSTEES), rng.choice(("ann", "bob", "cy", "di"))
    choice = rng.random()
    if choice < 0.25 and run.state.nodes[worker].live:
        run.ask(worker)
        masked = list(run.tasks[worker].values())
        if masked and not run.state.progress.final:
            run.submit(worker)
    elif choice < 0.65:
        answer(rng, run, trustee)
    elif choice < 0.75:
        finish_jobs(rng, run)
    elif choice < 0.82:
        run.leave(rng.choice((trustee, worker)))
    elif choice < 0.92:
        name = rng.choice((trustee, worker))
        if not run.state.nodes[name].revoked:
            run.join(name, run.state.nodes[name].badge.role)
    elif choice < 0.97:
        run.pass_time(rng.choice((0.5, 5.0, 70.0)))
    else:
        run.crash()


def answer(rng: random.Random, run: MaskedRun, trustee: str) -> None:
    if run.has(trustee, Vet):
        kind, members = rng.random(), list(run.state.merging)
        bad = members[:1] if kind < 0.15 or rng.random() < 0.1 else []
        strange = tuple(members[-1:]) if rng.random() < 0.1 else ()
        run.vet(trustee, *bad, reason="no" if kind < 0.05 else "", unlisted=strange)
    elif run.has(trustee, Endorse):
        kind = rng.random()
        run.endorse(trustee, reason="no" if kind < 0.1 else "", forged=0.1 <= kind < 0.15)
    elif run.has(trustee, Confirm):
        run.confirm(trustee, wrong=rng.random() < 0.05)
    elif run.has(trustee, Unmask):
        run.unmask(trustee, wrong=rng.random() < 0.05)


def finish_jobs(rng: random.Random, run: MaskedRun) -> None:
    for job in list(run.jobs):
        if isinstance(job, effects.ListMembers):
            void = {job.members[0].assignment: "bad"} if rng.random() < 0.1 else None
            run.list_it(void, vetted=rng.random() < 0.3)
        elif isinstance(job, effects.Aggregate):
            run.make()
