"""The facts for a forecast: speeds, links, presence and counted tokens of a known fleet, from decisions and ledgers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnraise.account.calibration import Calibration, calibrate, of_decisions
from barnraise.core.types import NodeProfile
from barnraise.ledger import Decision, LedgerView, NodeChanged, Noted, VersionMade, notes
from barnraise.transport.links.presets import parse

from ...decisions import assigned, judged
from ...simulated_runs import MACHINES, TOKENS, beginning, directory, played


def joined(time: float, node: str, rate: float = 100.0, **link: Any) -> NodeChanged:
    return NodeChanged(time, node, "joined", session=1, profile=NodeProfile(rate, **link))  # type: ignore[arg-type]


def tasks(
    node: str, seconds: float, count: int = 6, first: int = 1, start: float = 0.0, **terms: Any
) -> list[Decision]:
    """A node's tasks of 400 tokens, one after the other."""
    found: list[Decision] = []
    for number in range(count):
        begin = start + number * seconds
        found += [assigned(begin, first + number, node, **terms), judged(begin + seconds, first + number, node)]
    return found


@pytest.fixture(scope="module")
def simulated() -> list[Decision]:
    return played()


def test_speeds_of_a_simulated_fleet_are_recovered(simulated: list[Decision]) -> None:
    found = of_decisions(beginning(simulated, 0.3))
    assert {name: found.nodes[name].rate for name, _, _ in MACHINES} == {
        name: pytest.approx(rate, rel=0.1) for name, rate, _ in MACHINES
    }


def test_links_of_a_simulated_fleet_are_recovered(simulated: list[Decision]) -> None:
    found = of_decisions(beginning(simulated, 0.3))
    size = 12_000  # about a payload's
    for name, _, preset in MACHINES:
        seen, link = found.nodes[name].link, parse(preset)
        assert seen.delay == pytest.approx(link.up.delay, rel=0.2)
        assert size / seen.up == pytest.approx(size / link.up.rate, abs=0.02)
        assert size / seen.down == pytest.approx(size / link.down.rate, abs=0.02)


def test_all_tokens_are_counted(simulated: list[Decision]) -> None:
    found = of_decisions(simulated)
    assert found.counted == sum(tokens for _, tokens in found.arrivals.values()) >= TOKENS
    assert found.finished == notes.BUDGET_MET
    assert len(found.evaluating) >= 4


def test_a_ledger_tells_the_same_as_its_decisions(simulated: list[Decision], tmp_path: Path) -> None:
    rows = beginning(simulated, 0.4)
    with LedgerView(directory(tmp_path, rows).ledger) as view:
        assert calibrate(view) == of_decisions(rows)


def test_a_ledger_is_read_until_a_time(simulated: list[Decision], tmp_path: Path) -> None:
    cut = beginning(simulated, 0.3)[-1].time
    with LedgerView(directory(tmp_path, simulated).ledger) as view:
        assert calibrate(view, until=cut) == of_decisions(row for row in simulated if row.time <= cut)


def test_a_window_of_newest_rows_counts_all_tokens(simulated: list[Decision], tmp_path: Path) -> None:
    rows = beginning(simulated, 0.5)
    whole = of_decisions(rows)
    with LedgerView(directory(tmp_path, rows).ledger) as view:
        found = calibrate(view, window=200)
    assert found.counted == whole.counted
    assert 0 < len(found.arrivals) < len(whole.arrivals)
    assert {name: node.since for name, node in found.nodes.items()} == {
        name: node.since for name, node in whole.nodes.items()
    }
    assert found.nodes["ann"].rate == pytest.approx(4000.0, rel=0.15)


def test_a_result_behind_another_does_not_count_its_wait() -> None:
    rows = [joined(0.0, "a"), assigned(0.0, 1, "a"), assigned(0.0, 2, "a"), judged(4.0, 1, "a"), judged(8.0, 2, "a")]
    assert of_decisions(rows).nodes["a"].rate == pytest.approx(100.0)


def test_expected_transfers_are_no_computing() -> None:
    rows = [joined(0.0, "a"), *tasks("a", 6.0, compute=4.0, send=2.0)]
    assert of_decisions(rows).nodes["a"].rate == pytest.approx(100.0)
    alone = [joined(0.0, "a")]
    for number in range(5):
        alone += [
            assigned(10.0 * number, number + 1, "a", compute=4.0, send=2.0),
            judged(10.0 * number + 6.0, number + 1, "a"),
        ]
    assert of_decisions(alone).nodes["a"].rate == pytest.approx(100.0)


def test_a_node_that_waits_for_its_link_is_as_fast_as_it_says() -> None:
    rows: list[Decision] = [joined(0.0, "a"), joined(0.0, "b")]
    for number in range(5):
        for name, first, send in (("a", 1, 4.0), ("b", 20, 0.5)):
            given = 10.0 * number
            rows += [
                assigned(given, first + number, name, compute=4.0, send=send),
                judged(given + 10.0, first + number, name, seconds=2.0),
            ]
    found = of_decisions(sorted(rows, key=lambda row: row.time))
    assert found.nodes["a"].rate == pytest.approx(200.0)
    assert found.nodes["b"].rate == pytest.approx(400.0 / 9.5)  # its link does not explain the time


def test_the_first_task_of_a_session_does_not_count() -> None:
    rows: list[Decision] = [joined(0.0, "a"), assigned(0.0, 1, "a"), judged(40.0, 1, "a")]
    assert of_decisions(rows).nodes["a"].rate == pytest.approx(10.0)  # there is no other yet
    rows += tasks("a", 4.0, first=2, start=40.0)
    assert of_decisions(rows).nodes["a"].rate == pytest.approx(100.0)
    rows += [NodeChanged(70.0, "a", "left"), joined(100.0, "a"), assigned(100.0, 20, "a"), judged(160.0, 20, "a")]  # type: ignore[arg-type]
    assert of_decisions(rows).nodes["a"].rate == pytest.approx(100.0)


def test_refused_and_void_contributions_do_not_count() -> None:
    rows: list[Decision] = [
        joined(0.0, "a"),
        *tasks("a", 4.0, count=3),
        assigned(20.0, 9, "a"),
        judged(21.0, 9, "a", verdict="refused", reason="stale"),
        Noted(22.0, notes.Voided(3, 1, "damaged", True), "a"),
        Noted(22.0, notes.Voided(3, 1, "damaged", True), "a"),
    ]
    found = of_decisions(rows)
    assert found.counted == 800
    assert sorted(found.arrivals) == [1, 2]


def test_presence_is_known_from_joins_and_departures() -> None:
    rows = [
        joined(1.0, "a"),
        joined(2.0, "a"),  # another session, without a departure
        NodeChanged(5.0, "a", "left"),  # type: ignore[arg-type]
        NodeChanged(6.0, "a", "silent"),  # type: ignore[arg-type]
        joined(9.0, "a"),
        joined(1.0, "b"),
        NodeChanged(4.0, "b", "revoked"),  # type: ignore[arg-type]
        NodeChanged(1.0, "c", "enrolled"),  # type: ignore[arg-type]
    ]
    found = of_decisions(sorted(rows, key=lambda row: row.time)).nodes
    assert (found["a"].spans, found["a"].since, found["a"].came) == ([(1.0, 5.0)], 9.0, 1.0)
    assert (found["b"].spans, found["b"].since, found["b"].banned) == ([(1.0, 4.0)], None, True)
    assert "c" not in found


def test_a_claim_counts_within_the_observed_range() -> None:
    rows = [
        *(joined(0.0, name, rate) for name, rate in (("a", 200.0), ("b", 200.0), ("boaster", 1e9), ("modest", 1e-3))),
        joined(0.0, "like", 160.0),
        joined(0.0, "silent", 0.0),
        *tasks("a", 4.0),
        *tasks("b", 5.0, first=20),
    ]
    found = of_decisions(rows).rates()
    assert (found["a"], found["b"]) == (pytest.approx(100.0), pytest.approx(80.0))
    assert (found["boaster"], found["modest"]) == (pytest.approx(100.0), pytest.approx(80.0))
    assert found["like"] == pytest.approx(80.0)  # nodes reach 45% of what they claim
    assert found["silent"] == pytest.approx(90.0)


def test_a_measured_link_comes_before_expectations_and_claims() -> None:
    claim = {"up_bytes_per_second": 1e6, "down_bytes_per_second": 2e6, "latency_seconds": 0.5}
    rows: list[Decision] = [joined(0.0, "a", **claim)]
    assert of_decisions(rows).nodes["a"].link == (1e6, 2e6, 0.5)
    rows += [VersionMade(0.0, 1, "cd" * 32, 4000), *tasks("a", 4.0, compute=3.0, fetch=0.1, send=0.3)]
    up, down, delay = of_decisions(rows).nodes["a"].link
    assert (up, down, delay) == (pytest.approx(40 / 0.2), 2e6, pytest.approx(0.1))
    rows.append(Noted(30.0, notes.Tuned(0, 4, up=500.0, down=600.0, round_trip=0.4), "a"))
    assert of_decisions(rows).nodes["a"].link == (500.0, 600.0, 0.2)


def test_a_node_without_any_figure_has_a_link_that_delays_nothing() -> None:
    link = of_decisions([joined(0.0, "a")]).nodes["a"].link
    assert link.up == link.down > 1e8
    assert link.delay == 0.0


def test_a_pause_of_the_host_stops_the_clock(tmp_path: Path) -> None:
    rows: list[Decision] = [
        joined(0.0, "a"),
        *tasks("a", 4.0, count=5),
        assigned(20.0, 6, "a"),
        Noted(22.0, notes.HostPaused()),
        judged(24.0, 6, "a"),
        Noted(122.0, notes.HostContinued()),
        *tasks("a", 4.0, first=7, start=122.0),
    ]
    found = of_decisions(rows)
    assert (found.rested, found.resting, found.clock(146.0)) == (100.0, None, 46.0)
    assert found.nodes["a"].rate == pytest.approx(100.0)
    assert max(time for time, _ in found.arrivals.values()) == 46.0
    assert found.counted == 12 * 400
    paused = of_decisions(rows[:14])
    assert (paused.resting, paused.clock(1000.0)) == (22.0, 22.0)
    with LedgerView(directory(tmp_path, rows).ledger) as view:
        assert calibrate(view, window=4).clock(146.0) == 46.0


def test_an_empty_run_has_no_facts() -> None:
    assert of_decisions([]) == Calibration()
