"""The failure detector of a link: the paper's formula, and how long it waits for whom."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.controller.fleet import failure_detector as one
from barnraise.controller.fleet.failure_detector import FailureDetector
from barnraise.transport.links.presets import LINKS

HEARTBEAT, LEASE, LONGEST = 0.4, 1.2, 30.0


def listened(*gaps: float, heartbeat: float = HEARTBEAT) -> tuple[FailureDetector, float]:
    """Return a detector that has heard frames with these gaps, and the time of the last."""
    found, now = FailureDetector(LONGEST), 0.0
    for gap in gaps:
        now += gap
        found.heard(now, gap, heartbeat)
    return found, now


def window(*lates: float) -> tuple[float, float]:
    """Compute mean and deviation by the definition, of the gaps together with those of the prior."""
    prior = one.PRIOR_SHARE * HEARTBEAT
    values, num = list(lates), len(lates) + one.PRIOR_GAPS
    mean = sum(values) / num
    squares = sum(value * value for value in values) + one.PRIOR_GAPS * prior * prior
    return HEARTBEAT + mean, math.sqrt(squares / num - mean * mean)


def tail(silence: float, mean: float, deviation: float, steps: int = 20_000) -> float:
    """Compute P_later of the paper: the normal density from `silence` on, by the trapezoidal rule."""
    last = mean + 20 * deviation
    width = (last - silence) / steps
    heights = [math.exp(-((silence + i * width - mean) ** 2) / (2 * deviation**2)) for i in range(steps + 1)]
    return width * (sum(heights) - (heights[0] + heights[-1]) / 2) / (deviation * math.sqrt(2 * math.pi))


@pytest.mark.parametrize("lates", [(), (0.1, 0.02, 0.3), (0.01,) * 64])
def test_phi_is_the_papers(lates: tuple[float, ...]) -> None:
    found, _ = listened(*(HEARTBEAT + late for late in lates))
    mean, deviation = window(*lates)
    for silence in (0.1, 0.4, 0.5, 0.7, 0.9):
        expected = -math.log10(tail(silence, mean, deviation))
        assert found.phi(silence, HEARTBEAT) == pytest.approx(expected, abs=1e-5)


def test_only_so_many_gaps_are_looked_back_on() -> None:
    rng = random.Random(0)
    lates = [rng.uniform(0.0, 0.3) for _ in range(1000)]
    found, _ = listened(*(HEARTBEAT + late for late in lates))
    fresh, _ = listened(*(HEARTBEAT + late for late in lates[-one.WINDOW :]))
    assert found.phi(0.9, HEARTBEAT) == pytest.approx(fresh.phi(0.9, HEARTBEAT), rel=1e-9)


def test_a_burst_between_two_heartbeats_changes_nothing() -> None:
    """A contribution's pieces come milliseconds apart: the next heartbeat is due no sooner for that."""
    plain, now = listened(*[HEARTBEAT] * one.WINDOW)
    bursts, _ = listened(*([0.001] * 200 + [0.2] + [HEARTBEAT]) * 10, *[HEARTBEAT] * 40)
    for silence in (0.4, 0.6, 1.0):
        assert bursts.phi(silence, HEARTBEAT) == pytest.approx(plain.phi(silence, HEARTBEAT), rel=0.05)
    assert bursts.patience(now, HEARTBEAT, LEASE) == plain.patience(now, HEARTBEAT, LEASE) == LEASE


def test_delayed_frames_that_arrive_together_count_as_one_late_frame() -> None:
    held, now = listened(*[HEARTBEAT] * 10, 2.0, 0.0, 0.0, 0.0, 0.001)
    assert held.latest(now) == pytest.approx(1.6, rel=1e-4)
    single, _ = listened(*[HEARTBEAT] * 10, 2.0)
    assert held.phi(1.0, HEARTBEAT) == single.phi(1.0, HEARTBEAT)


gaps = st.lists(st.floats(0.0, 100.0), max_size=150)
round_trips = st.floats(0.0, 3600.0)


@given(gaps, round_trips, st.floats(0.0, 200.0), st.floats(0.0, 200.0))
def test_the_longer_the_silence_the_more_suspicious(
    heard: list[float], round_trip: float, one_silence: float, other: float
) -> None:
    found, _ = listened(*heard)
    shorter, longer = sorted((one_silence, other))
    assert 0.0 <= found.phi(shorter, HEARTBEAT, round_trip) <= found.phi(longer, HEARTBEAT, round_trip)


@given(gaps, round_trips, st.floats(0.01, 60.0), st.floats(0.0, 1e4))
def test_patience_lies_between_the_lease_and_the_longest_wait(
    heard: list[float], round_trip: float, lease: float, later: float
) -> None:
    found, now = listened(*heard)
    patience = found.patience(now + later, HEARTBEAT, lease, round_trip)
    assert lease <= patience <= max(lease, LONGEST)


@given(gaps, st.floats(0.0, 5.0))
def test_suspicion_comes_where_phi_says(heard: list[float], round_trip: float) -> None:
    found, _ = listened(*heard)
    silence = found.suspicion(HEARTBEAT, round_trip)
    assert found.phi(silence, HEARTBEAT, round_trip) == pytest.approx(one.SUSPICION, rel=1e-6)


def test_a_steady_link_is_suspected_soon_and_a_newcomer_later() -> None:
    steady, now = listened(*[HEARTBEAT] * one.WINDOW)
    assert steady.suspicion(HEARTBEAT) < 1.5 * HEARTBEAT
    assert FailureDetector(LONGEST).suspicion(HEARTBEAT) < 2 * HEARTBEAT
    assert steady.patience(now, HEARTBEAT, LEASE) == LEASE


def test_an_outage_excuses_one_as_long_for_some_minutes_and_is_forgotten() -> None:
    found, now = listened(*[HEARTBEAT] * 20, 8.0, *[HEARTBEAT] * 250)
    assert found.patience(now, HEARTBEAT, LEASE) > 8.4
    assert found.patience(now + 3600.0, HEARTBEAT, LEASE) < 2.0


def test_rarer_heartbeats_are_no_sign_of_a_slow_link() -> None:
    found, now = listened(*[HEARTBEAT] * 100)
    for _ in range(10):
        now += 4.0
        found.heard(now, 4.0, 4.0)
    assert found.patience(now, 4.0, 12.0) == 12.0
    assert found.latest(now) == 0.0


def test_an_hour_long_absence_does_not_extend_the_longest_wait() -> None:
    found = FailureDetector(LONGEST)
    found.learn(0.0, 3600.0)
    assert found.latest(0.0) == LONGEST
    assert found.patience(0.0, HEARTBEAT, LEASE) == LONGEST
    later = 20 * one.HALF_LIFE
    for beat in range(one.WINDOW):
        found.heard(later + beat * HEARTBEAT, HEARTBEAT, HEARTBEAT)
    assert found.patience(later + one.WINDOW * HEARTBEAT, HEARTBEAT, LEASE) == LEASE


def frames(profile: str, seed: int, seconds: float, heartbeat: float) -> list[float]:
    """Return the seconds between a node's heartbeats as they arrive over a link."""
    up, _ = LINKS[profile].states(random.Random(seed))
    arrivals = [up.small(number * heartbeat, 200) for number in range(int(seconds / heartbeat))]
    return [later - sooner for sooner, later in itertools.pairwise(arrivals)]


@pytest.mark.parametrize("profile", ["good", "dsl", "cellular", "satellite", "straggler"])
def test_no_node_is_declared_gone_in_an_hour_of_sixty_nodes(profile: str) -> None:
    """At 0.4 s: the intervals of a small fleet, in which a lease is a lost packet or two."""
    for seed in range(60):
        found, now, longest = FailureDetector(LONGEST), 0.0, 0.0
        round_trip = LINKS[profile].round_trip
        for gap in frames(profile, seed, 3600.0, HEARTBEAT):
            if gap > 2 * HEARTBEAT:
                assert gap < found.patience(now + gap, HEARTBEAT, LEASE, round_trip)
                longest = max(longest, gap)
            now += gap
            found.heard(now, gap, HEARTBEAT)
        assert found.suspicion(HEARTBEAT, round_trip) < 2.5, "one that dies is suspected soon"


def test_a_link_with_brownouts_is_declared_gone_once() -> None:
    """Nobody knows of the first brown-out before it comes; those after it are expected."""
    for seed in range(20):
        found, now, gone = FailureDetector(LONGEST), 0.0, 0
        for gap in frames("brownout", seed, 3600.0, HEARTBEAT):
            gone += gap > found.patience(now + gap, HEARTBEAT, LEASE, LINKS["brownout"].round_trip)
            now += gap
            found.heard(now, gap, HEARTBEAT)
        assert gone == 1
