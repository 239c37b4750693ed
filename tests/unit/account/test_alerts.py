"""Alerts about a run: when each begins, and when it ends."""

from __future__ import annotations

import random

import pytest

from barnraise.account.alerts import RULES, WINDOW, Vitals, Watch

CALM = Vitals(0.0)


def played(*seen: Vitals) -> list[tuple[str, float, bool]]:
    """Name, time, and whether it fires, of each alert that begins or ends."""
    watch = Watch()
    return [
        (alert.name, vitals.time, alert.until is None) for vitals in seen for alert in watch.look(vitals)
    ]  # fmt: skip


def every(minutes: int, **changes: list[object]) -> list[Vitals]:
    """Vitals for each minute: `changes` give each field's values, the last of which stays."""
    return [
        CALM._replace(time=60.0 * n, **{name: values[min(n, len(values) - 1)] for name, values in changes.items()})  # type: ignore[arg-type]
        for n in range(minutes)
    ]  # fmt: skip


def test_a_run_in_order_is_quiet() -> None:
    assert played(*every(60, tokens=list(range(60)), accepted=list(range(60)))) == []


def test_no_progress_is_told_after_a_quarter_of_an_hour_and_once() -> None:
    stalled = every(40, tokens=[1, 2, 3, 4, 5], waits_for=["version 3 waits"])
    assert played(*stalled) == [("no_progress", 60.0 * (4 + WINDOW / 60), True)]
    watch = Watch()
    told = [alert.summary for vitals in stalled for alert in watch.look(vitals)]
    assert told == ["no contribution was accepted for 15 min: version 3 waits"]
    again = [*stalled, stalled[-1]._replace(time=60.0 * 40, tokens=6)]
    assert played(*again)[-1] == ("no_progress", 2400.0, False)
    assert played(*(one._replace(working=False) for one in stalled)) == [], "a run that is not to work"


def test_no_alert_about_progress_comes_from_a_pause_nor_soon_after_it() -> None:
    rest = every(90, working=[True] * 10 + [False] * 50 + [True], tokens=[1, 2, 3, 4])
    assert played(*rest) == [("no_progress", 60.0 * (60 + WINDOW / 60), True)], "a quarter of an hour after the pause"
    assert played(*rest[:60], *(one._replace(tokens=5) for one in rest[60:70])) == []


@pytest.mark.parametrize(
    ("field", "quiet", "loud", "name"),
    [
        ("quarantined", 0, 1, "quarantine"),
        ("disk_free", 3e9, 1e9, "disk"),
        ("over", "", "the token budget is met", "over"),
        ("standby", (False, 30.0, 0), (False, 90.0, 0), "standby_late"),
        ("standby", (False, 0.0, 0), (True, 0.0, 0), "standby_lost"),
        ("standby", (False, 0.0, 0), (False, 0.0, 5), "unprotected"),
    ],
)
def test_a_condition_fires_while_it_holds(field: str, quiet: object, loud: object, name: str) -> None:
    values = [quiet] * 10 + [loud] * 10 + [quiet] * 10
    seen = [one._replace(tokens=n) for n, one in enumerate(every(30, **{field: values}))]
    begins, ends = played(*seen)
    assert (begins[0], begins[2], ends) == (name, True, (name, 1200.0, False))
    assert 600.0 <= begins[1] <= 600.0 + RULES[name].hold


def test_counts_are_of_the_last_quarter_of_an_hour() -> None:
    lost = every(60, tokens=list(range(60)), lost=[0] * 20 + [11])
    assert played(*lost) == [("workers_lost", 1200.0, True), ("workers_lost", 1200.0 + WINDOW, False)]
    failed = every(60, tokens=list(range(60)), checkpoint_failures=[0] * 20 + [1])
    assert played(*failed) == [("checkpoint", 1200.0, True), ("checkpoint", 1200.0 + WINDOW, False)]


def test_refusals_are_told_by_share_and_not_of_a_few_results() -> None:
    few = every(30, tokens=list(range(30)), refused=[0] * 5 + [5])
    assert played(*few) == []
    many = every(30, tokens=list(range(30)), accepted=[3 * n for n in range(30)], refused=[2 * n for n in range(30)])
    ((name, _, firing),) = played(*many)
    assert (name, firing) == ("refusals", True)


def test_an_alert_ends_before_it_begins_again_whatever_comes() -> None:
    rng = random.Random(3)
    for _ in range(50):
        watch, firing, now = Watch(), set(), 0.0
        for _ in range(200):
            now += rng.choice([0.0, 1.0, 60.0, 2000.0])
            vitals = Vitals(
                now, rng.random() < 0.5, rng.choice(["", "x"]), "", rng.randrange(3), rng.randrange(90),
                rng.randrange(90), rng.randrange(2), rng.randrange(30), rng.choice([1e9, 9e9]), rng.randrange(2),
                (rng.random() < 0.5, rng.choice([0.0, 99.0]), rng.randrange(2)),
            )  # fmt: skip
            for alert in watch.look(vitals):
                assert (alert.name in firing) is (alert.until is not None)
                firing ^= {alert.name}
                assert alert.until is None or alert.until >= alert.since
            assert firing == set(watch.firing)
