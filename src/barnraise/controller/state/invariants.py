"""Invariants of a controller's state between any two decisions, which tests check after each event.

The totals follow from their summands, and each piece of work is in one place.
"""

from __future__ import annotations

import itertools
from collections import Counter

from barnraise.controller.state import gathering
from barnraise.controller.state.cohorts import OPEN
from barnraise.controller.state.fold import MOST_OPEN
from barnraise.controller.state.state import State, Status, Work

_PLACES = {
    "works": {Status.OPEN},
    "merging": {Status.ACCEPTED},
    "redo": {Status.RELEASED, Status.REFUSED, Status.VOIDED, Status.UNDONE},
}


def validate(state: State) -> None:
    """Raise AssertionError, naming the contradiction, unless all of `state` is consistent."""
    _validate_nodes(state)
    _validate_works(state)
    _validate_cohorts(state)
    _validate_findings(state)
    _validate_buffer(state)
    _validate_totals(state)


def _validate_nodes(state: State) -> None:
    assert state.num_live == sum(node.live and node.works for node in state.nodes.values()), "live nodes"
    assert state.roster.keys == {node.badge.key: node.id for node in state.nodes.values()}, "keys of nodes"
    held = Counter(number for node in state.nodes.values() for number in node.open)
    assert held == Counter(state.works.keys()), f"open at their nodes: {held}, open in all: {list(state.works)}"
    for name, node in state.nodes.items():
        assert name == node.id, "a node's name"
        assert not (node.live and node.revoked), f"{name} is out, and takes part"
        assert all(state.works[number].node == name for number in node.open), f"{name} holds another's work"
        assert len(node.open) <= MOST_OPEN + 1, f"{name} holds {len(node.open)} assignments"
        assert len(node.verdicts) <= MOST_OPEN, f"{len(node.verdicts)} answers are kept for {name}"
        assert not node.open or max(node.open) <= state.totals.assigned, "an assignment from the future"


def _validate_works(state: State) -> None:
    for place, stages in _PLACES.items():
        found: dict[int, Work] = getattr(state, place)
        for number, work in found.items():
            assert number == work.assignment, f"{place}: {work.assignment} is kept as {number}"
            assert work.stage in stages, f"{place}: {number} is {work.stage}"
            assert 0 < number <= state.totals.assigned, f"{place}: {number} was never assigned"
            assert work.root <= number, f"{place}: {number} continues a later one, {work.root}"
            assert min(work.tokens, work.local_steps, work.done) >= 0, f"{place}: {number} is less than none"
            assert place != "redo" or (work.task.redone and work.local_steps), f"{number} is nothing to do again"
    assert not state.works.keys() & state.merging.keys(), "open, and accepted"


def _validate_cohorts(state: State) -> None:
    known = state.record.evaluations[-1][0] if state.record.evaluations else -1
    for number, cohort in state.cohorts.items():
        assert number == cohort.number, f"cohort {cohort.number} is kept as {number}"
        opened = {one for one, member in cohort.members.items() if member.stage == OPEN}
        for one in opened:
            work = state.works.get(one)
            assert work is not None, f"cohort {number} waits for {one}, which is not open"
            assert number in work.cohorts, f"{one} is not in cohort {number}, which waits for it"
            assert work.node == cohort.members[one].node, f"{one} is another node's in cohort {number}"
        assert gathering.needed(state, cohort), f"cohort {number} is kept though no part needs it"
        if cohort.completion.rule == "first":
            _validate_copies(state, [state.works[one] for one in opened], set(cohort.members) & state.redo.keys())
    for number, work in state.works.items():
        joined = [state.cohorts[cohort] for cohort in work.cohorts if cohort in state.cohorts]
        assert all(number in cohort.members for cohort in joined), f"{number} is missing in its cohort"
        assert not work.task.measures or work.base <= known or joined, f"{number} belongs to no piece"
    tasks = state.round
    assert tasks is None or tasks.base == state.newest.version, "a round from an earlier version"


def _validate_copies(state: State, works: list[Work], waiting: set[int]) -> None:
    assert len({(work.root, work.done, work.local_steps, work.tokens) for work in works}) <= 1, "copies differ"
    assert len(works) < 2 or not waiting, "work that is open twice waits to be done again"


def _validate_findings(state: State) -> None:
    """Check that findings, and work that will end in one, concern unknown losses.

    Any two of a version have the same rows, or none in common.
    """
    known = state.record.evaluations[-1][0] if state.record.evaluations else -1
    for number, finding in state.record.findings.items():
        work = finding.work
        assert number == work.assignment, f"findings: {work.assignment} is kept as {number}"
        assert work.stage is Status.FOUND, f"findings: {number} is {work.stage}"
        assert work.task.measures, f"findings: {number} belongs into a version"
        assert work.base > known, f"findings: {number} is about version {work.base}, which is known"
        assert finding.weight >= 0.0, f"findings: {number} weighs {finding.weight}"
    assert not state.record.findings.keys() & (state.works.keys() | state.redo.keys()), "found, and to be found"
    waiting = [work for work in state.redo.values() if work.task.measures]
    assert all(work.base > known for work in waiting), "what is known waits to be done again"
    found = [finding.work for finding in state.record.findings.values()]
    exact = [work for work in [*state.works.values(), *waiting, *found] if work.task.measures and work.base > known]
    taken = sorted({(work.base, rows.shard, rows.start, rows.stop) for work in exact for rows in work.rows})
    for before, after in itertools.pairwise(taken):
        assert before[:2] != after[:2] or before[3] <= after[2], f"pieces overlap: {before}, {after}"


def _validate_buffer(state: State) -> None:
    open_slots = [slot for slots in state.buffer.slots.values() for slot in slots.values()]
    slots = [*open_slots, *(state.closing.slots if state.closing is not None else ())]
    numbers = [held.assignment for slot in slots for held in slot.contributions]
    assert len(set(numbers)) == len(numbers), "a contribution is in two places"
    assert set(numbers) == state.merging.keys(), f"slots hold {sorted(numbers)}, accepted are {sorted(state.merging)}"
    masked = {work.base for work in (*state.works.values(), *state.merging.values()) if work.task.summed_only}
    known = state.record.digests.keys()
    assert masked <= known, f"masked work began at versions {sorted(masked)}, but digests are kept of {sorted(known)}"
    assert state.buffer.tokens == sum(
        state.merging[held.assignment].tokens for slot in open_slots for held in slot.contributions
    ), "tokens in the buffer"
    assert all(slot.contributions for slot in open_slots), "a slot without contributions"
    if state.closing is not None:
        assert state.closing.version == state.newest.version + 1, "the version that is being made"
        closing = [held.assignment for slot in state.closing.slots for held in slot.contributions]
        held = sum(state.merging[number].tokens for number in closing)
        assert state.closing.tokens == held, "tokens in the version that is being made"
        released = state.closing.released
        assert released in ("", state.closing.list_digest), "a released list has changed"
        assert not released or not any(slot.excluded for slot in state.closing.slots), (
            "a released list leaves nodes out"
        )


def _validate_totals(state: State) -> None:
    nodes = state.nodes.values()
    left_over = state.progress.final and not state.merging  # they count as their nodes' all the same
    if not left_over:
        assert state.totals.tokens == sum(node.tally.tokens for node in nodes), "tokens"
        assert state.totals.accepted == sum(node.tally.accepted for node in nodes), "accepted"
    assert state.totals.refused == sum(node.tally.refused for node in nodes), "refused"
    waiting = sum(work.tokens for work in state.merging.values())
    assert left_over or state.totals.version_tokens + waiting == state.totals.tokens, (
        "tokens in versions, and on their way there"
    )
    assert not state.progress.finished or state.progress.final, "finished before its last version"
