"""A part of `make chaos` that fits into every test run, and that a failure says what to do with it."""

from __future__ import annotations

import os
from itertools import combinations, product
from typing import Any

import pytest

from barnraise.config.faults import KINDS
from barnraise.matching.persistent_market import GaleShapley
from barnraise.wire.messages import Identify
from barnraise.worker import machine
from barnraise.worker.contact import Contact
from barnraise.worker.tasks import Tasks

from ..campaigns import campaign as only_in_campaigns
from .campaign import Failed, campaign, play
from .cluster import SITES, VARIED, Cluster, case_of
from .cuts import CONTROLLER, STANDBY, case_with_standby
from .takeover import Takeover
from .variety import LARGE

EXPLORE = os.environ.get("HYPOTHESIS_PROFILE") == "explore"
PIECES, EACH = 6, 25
SHORT = 1
"""Pieces that every test run plays; the others are a campaign."""

FOUND = [62, 442, 1499, 2248, 2409, 30473]
"""Seeds that found something once."""


@pytest.mark.parametrize("piece", [*range(SHORT), *map(only_in_campaigns, range(SHORT, PIECES))])
def test_runs_under_random_faults_end_as_they_must(piece: int) -> None:
    count = 400 if EXPLORE else EACH
    done = campaign(range(piece * count, (piece + 1) * count))
    assert done.faults > 2 * count
    assert done.restarts > count / 8


@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_once_failed_pass(seed: int) -> None:
    play(str(seed))


@pytest.mark.parametrize("piece", [0, *map(only_in_campaigns, range(1, SHORT))])
def test_runs_of_sites_under_random_faults_end_as_they_must(piece: int) -> None:
    for seed in range(piece * EACH, (piece + 1) * EACH):
        play(f"{SITES}{seed}")


@pytest.mark.parametrize("family", ["", VARIED, SITES])
def test_every_kind_is_drawn(family: str) -> None:
    drawn = {fault["do"] for seed in range(200) for fault in case_of(f"{family}{seed}").faults}
    assert drawn == set(KINDS)


def test_every_way_to_lose_a_controller_is_drawn() -> None:
    """A cut alone, a death alone, and both; a copy that has all, and one that lags; and all ways of who is left with
    whom: nodes with the controller, with the standby, and with neither."""
    plans = [case_with_standby(number)[1] for number in range(200)]
    assert {(plan.wait, plan.lag > 0.0) for plan in plans} == set(product((True, False), repeat=2))
    assert {(bool(plan.cuts), plan.dies is not None) for plan in plans} == {(True, False), (False, True), (True, True)}
    cuts = [cut.groups for plan in plans for cut in plan.cuts]
    company = [[len(group) > 1 for one in (CONTROLLER, STANDBY) for group in groups if one in group] for groups in cuts]
    assert {tuple(found) for found in company} == set(product((True, False), repeat=2))


@pytest.mark.parametrize(
    ("seed", "found"), [("s31", "from another version 26"), ("s50", "node3 has had nothing to do since")]
)
def test_a_node_that_takes_a_new_controller_for_the_old_one_is_found(
    monkeypatch: pytest.MonkeyPatch, seed: str, found: str
) -> None:
    play(seed)
    monkeypatch.setattr(Tasks, "another_controller", lambda tasks, welcome, now: tasks.welcomed(welcome.forget, now))
    with pytest.raises(Failed, match=found):
        play(seed)


def test_an_acknowledgement_before_the_copy_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    play("s51")
    monkeypatch.setattr(Takeover, "_holds", lambda cluster, row: False)
    with pytest.raises(Failed, match="and lost"):
        play("s51")


def test_varied_cases_combine_every_pair_of_settings() -> None:
    """Each of these is met with and without each other one."""
    cases = [case_of(f"{VARIED}{seed}").settings for seed in range(400)]
    traits = [
        (
            not settings.asynchronous,
            settings.worker.stateless,
            settings.audits.share > 0,
            settings.scores.share > 0,
            settings.evaluations.by_workers,
            settings.payloads.most >= LARGE,
            bool(settings.tasks.needs.memory),
            settings.versions.buffer_size is not None,
        )
        for settings in cases
    ]
    for one, other in combinations(range(len(traits[0])), 2):
        assert {(trait[one], trait[other]) for trait in traits} == set(product((True, False), repeat=2))


def test_a_standing_market_is_among_what_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    stood = {seed: play(seed).most_stood for seed in ("0", "5", "10", "2")}
    assert max(stood.values()) >= 4
    assert stood["2"] == 0, "it has one scheduler for all"
    monkeypatch.setattr(GaleShapley, "forget", lambda scheduler, node: None)
    with pytest.raises(Failed, match="who is gone is in the market"):
        campaign([0, 5, 10])


def test_a_node_that_never_greets_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Contact, "silent", lambda contact, now: not contact.greeted)
    monkeypatch.setitem(machine._MESSAGES, Identify, lambda worker, message, now: [])
    with pytest.raises(Failed, match=r"node\d has not greeted for 50\.\d s"):
        play("3")


def test_one_seed_is_one_history() -> None:
    first, second = play("7"), play("7")
    assert first.ledger_hash.hexdigest() == second.ledger_hash.hexdigest()
    assert first.ledger_hash.hexdigest() != play("8").ledger_hash.hexdigest()


def test_a_failure_says_how_to_replay_it_and_what_it_was_about(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Cluster.check

    def forgetful(cluster: Cluster, decided: bool = True) -> Any:
        usual(cluster, decided)
        assert 9 not in cluster.books.merged, "contribution 9 is where it should not be"

    monkeypatch.setattr(Cluster, "check", forgetful)
    with pytest.raises(Failed) as caught:
        play("3")
    text = str(caught.value)
    assert "contribution 9 is where it should not be" in text
    assert "python -m tests.chaos --replay 3" in text
    assert "faults:" in text
    assert "the story of 9:" in text
    assert "9: goes into version" in text
