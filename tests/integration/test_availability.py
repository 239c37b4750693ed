"""The definition of availability in the benchmark of failing machines: `benchmarks/_availability.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from barnraise.ledger import notes
from barnraise.ledger.decisions import Change, Decision, NodeChanged, Noted, VersionClosed, VersionMade

from ..decisions import assigned, judged

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import _availability

    return _availability


def working(first: int, last: int) -> list[tuple[float, Decision]]:
    """Decisions of a run in which a contribution is accepted and a version is made in each of these seconds."""
    found: list[tuple[float, Decision]] = []
    for second in range(first, last):
        found.append((second + 0.2, judged(second + 0.2, second + 1, "a")))
        found.append((second + 0.4, VersionMade(second + 0.4, second + 1, "ab" * 32, 40)))
    return found


BESIDE: list[Decision] = [
    NodeChanged(4.5, "a", Change.SILENT, "its lease ended"),
    Noted(4.5, notes.Released(9, "the node has left"), "a"),
    assigned(4.5, 9, "b", redo=9),
    judged(4.5, 9, "b", verdict="refused", reason="stale"),
    judged(4.5, 9, "b", digest="", num_bytes=0, tokens=0),
    VersionClosed(4.5, 5, (1,), 1, 400, "full"),
]


@pytest.mark.parametrize("decision", BESIDE, ids=lambda decision: type(decision).__name__)
def test_a_second_with_nothing_but_other_decisions_is_lost(measure: ModuleType, decision: Decision) -> None:
    """A lost lease, released or assigned work, a refusal and a finding do not count as accepted work of any node."""
    found = measure.availability([*working(0, 4), (4.7, decision), *working(5, 8)], 8.3)
    assert found.seconds == 8
    assert found.lost == [pytest.approx(4.2)]
    assert found.share(found.available) == pytest.approx(7 / 8)
    assert found.longest_wait == pytest.approx(2.0)


def test_work_that_is_accepted_but_enters_no_version_is_half_of_it(measure: ModuleType) -> None:
    seen = [*working(0, 4), (4.7, judged(4.7, 9, "b")), *working(5, 8)]
    found = measure.availability(seen, 8.3)
    assert (found.share(found.accepting), found.share(found.moving)) == (1.0, pytest.approx(7 / 8))
    assert found.share(found.available) == pytest.approx(7 / 8)


def test_the_end_of_a_run_that_stands_still_counts(measure: ModuleType) -> None:
    found = measure.availability(working(0, 4), 10.3)
    assert (found.seconds, len(found.lost), found.longest_wait) == (10, 6, pytest.approx(7.1))


@pytest.mark.parametrize("seen", [[], [(1.0, BESIDE[0])]])
def test_a_run_that_never_worked_has_no_seconds(measure: ModuleType, seen: Sequence[tuple[float, Decision]]) -> None:
    found = measure.availability(seen, 60.0)
    assert found.seconds == 0
    assert math.isnan(found.share(found.available))


def test_recovery_is_told_until_accepted_work_and_until_the_next_version(measure: ModuleType) -> None:
    seen = [(1.0, judged(1.0, 1, "a")), (2.5, BESIDE[0]), (4.0, judged(4.0, 2, "b")), (4.5, working(4, 5)[1][1])]
    assert measure.until_accepted(seen, 2.0) == pytest.approx(2.0)
    assert measure.until_step(seen, 2.0) == pytest.approx(2.5)
    assert measure.until_accepted(seen, 5.0) == math.inf
