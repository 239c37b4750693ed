"""The answers of the ledger to the report, the summary and `status`: outcomes, losses, traffic, news."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnraise.core.types import NodeProfile, ParameterRange
from barnraise.ledger import (
    Assigned,
    Decision,
    Judged,
    Ledger,
    LedgerView,
    NodeChanged,
    Noted,
    VersionClosed,
    VersionMade,
    notes,
)
from barnraise.ledger.notes import Traffic
from barnraise.ledger.outcomes import LossPoint, Outcomes

from ... import decisions as some

SPAN = ParameterRange(0, 10)


def assigned(assignment: int, node: str, time: float) -> Assigned:
    return some.assigned(time, assignment, node, tokens=100)


def judged(assignment: int, node: str, time: float, verdict: str = "accepted") -> Judged:
    reason, late = "stale" if verdict == "refused" else "", {"version": 1, "staleness": 1}
    return some.judged(time, assignment, node, verdict=verdict, reason=reason, tokens=100, seconds=1.0, **late)


def closed(version: int, contributions: tuple[int, ...], time: float) -> list[Decision]:
    return [
        VersionClosed(time, version, contributions, 1, 100 * len(contributions), "full"),
        VersionMade(time + 0.5, version, "cd" * 32, 40),
    ]


def evaluated(version: int, loss: float | None, time: float) -> Noted:
    return Noted(time, notes.Evaluated(version=version, loss=loss, tokens=10**6))


def released(assignment: int, node: str, time: float, reason: str = "gone") -> Noted:
    return Noted(time, notes.Released(assignment=assignment, reason=reason), node)


@pytest.fixture
def view(tmp_path: Path) -> LedgerView:
    """Six assignments, one of each outcome and one that was accepted, but left over."""
    decisions: list[Decision] = [
        Noted(0.0, notes.Started(digest="ab" * 32, run="r")),
        evaluated(0, 4.0, 0.5),
        NodeChanged(1.0, "a", "enrolled", key="a"),
        NodeChanged(1.0, "b", "enrolled", key="b"),
        NodeChanged(1.5, "a", "joined", session=1, profile=NodeProfile(device="cpu")),
        NodeChanged(1.6, "a", "joined", session=1, profile=NodeProfile(device="cuda")),
        *(assigned(number, "a", 2.0 + number) for number in range(1, 6)),
        assigned(6, "b", 8.5),
        assigned(7, "a", 8.6),
        judged(1, "a", 9.0),
        *closed(1, (1,), 9.0),
        Noted(9.6, notes.Traffic(up=10, down=20)),
        judged(2, "a", 10.0),
        *closed(2, (2,), 10.0),
        evaluated(1, 3.0, 10.9),  # measured on version 1, when version 2 was there already
        judged(3, "a", 11.0, "refused"),
        released(6, "b", 11.5),
        released(7, "a", 11.6),
        Noted(11.7, notes.Reopened(assignment=7), "a"),
        judged(4, "a", 12.0),
        Noted(12.5, notes.Stopping(reason="SIGINT")),
        Noted(12.5, notes.LeftOver(contributions=1, reason="SIGINT")),
        judged(7, "a", 13.0, "discarded"),
        released(5, "a", 13.2),  # not lost: the run does not need it any more
        evaluated(2, None, 13.5),
        Noted(14.0, notes.Traffic(up=30, down=50)),
        Noted(15.0, notes.Finished(reason="SIGINT")),
    ]
    payloads = {d.assignment: b"p" for d in decisions if isinstance(d, Judged) and d.verdict == "accepted"}
    with Ledger(tmp_path / "ledger.sqlite", tmp_path / "segments") as ledger:
        ledger.commit(decisions, payloads)
    return LedgerView(tmp_path / "ledger.sqlite")


def test_contributions_left_over_at_the_end_count_as_discarded(view: LedgerView) -> None:
    totals = view.totals()
    assert (totals.accepted, totals.refused, totals.discarded) == (2, 1, 2)
    assert (totals.tokens, totals.version, totals.contributors) == (200, 2, 1)


def test_nodes_add_up(view: LedgerView) -> None:
    a, b = view.nodes()
    assert a.outcomes == Outcomes(assigned=6, accepted=2, found=0, refused=1, discarded=2, lost=0)
    assert a.outcomes.open == 1
    assert (b.outcomes.assigned, b.outcomes.lost, b.outcomes.open, b.tokens) == (1, 1, 0, 0)
    assert (a.device, b.device) == ("cuda", "")
    assert a.tokens + b.tokens == view.totals().tokens


def test_pieces_hold_the_outcome_of_every_assignment(view: LedgerView) -> None:
    pieces = {piece.assignment: piece for piece in view.assignments()}
    assert [pieces[number].outcome for number in range(1, 8)] == [
        "accepted", "accepted", "refused", "discarded", "open", "lost", "discarded"
    ]  # fmt: skip
    assert (pieces[1].node, pieces[1].start, pieces[1].stop, pieces[1].tokens) == ("a", 3.0, 9.0, 100)
    assert (pieces[5].stop, pieces[6].stop, pieces[7].stop) == (13.2, 11.5, 13.0)


def test_the_slower_of_two_copies_counts_as_discarded_and_not_as_lost(tmp_path: Path) -> None:
    """Work that two nodes did is neither open for the slower node, nor lost by it."""
    decisions: list[Decision] = [
        *(NodeChanged(1.0, node, "enrolled", key=node) for node in "ab"),
        assigned(1, "a", 2.0),
        some.assigned(5.0, 2, "b", tokens=100, redo=1),
        released(1, "a", 6.0, notes.COPY_CAME_FIRST),
        judged(2, "b", 6.0),
    ]
    with Ledger(tmp_path / "ledger.sqlite", tmp_path / "segments") as ledger:
        ledger.commit(decisions, {2: b"p"})
    view = LedgerView(tmp_path / "ledger.sqlite")
    a, b = view.nodes()
    assert (a.outcomes.lost, a.outcomes.discarded, a.outcomes.open) == (0, 1, 0)
    assert b.outcomes.accepted == 1
    assert [piece.outcome for piece in view.assignments()] == ["discarded", "accepted"]


def test_losses_stand_at_their_own_version(view: LedgerView) -> None:
    assert view.losses() == [LossPoint(0, 0, 0.0, 4.0), LossPoint(1, 100, 9.5, 3.0)]


def test_traffic_is_the_newest(view: LedgerView) -> None:
    assert view.newest(Traffic) == Traffic(30, 50)
    assert view.end == 15.0


def test_news_are_nodes_and_events_in_order(view: LedgerView) -> None:
    news = view.news()
    assert [row_id for row_id, _ in news] == sorted(row_id for row_id, _ in news)
    assert {type(decision) for _, decision in news} == {NodeChanged, Noted}
    assert not any(isinstance(decision, Noted) and decision.kind == "traffic" for _, decision in news)
    assert view.news(news[-2][0]) == news[-1:]
    assert view.news(news[-1][0]) == []


def test_an_empty_ledger_has_an_account(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger.sqlite").close()
    with LedgerView(tmp_path / "ledger.sqlite") as view:
        assert (view.assignments(), view.losses(), view.news(), view.newest(Traffic), view.end) == (
            [],
            [],
            [],
            None,
            0.0,
        )
        assert (view.totals().version, view.nodes()) == (-1, [])


def test_voided_contributions_are_not_counted(tmp_path: Path) -> None:
    """A judged one is refused, with its reason; one that fell with its version is discarded; versions hold neither."""
    decisions: list[Decision] = [
        NodeChanged(0.0, "a", "enrolled", key="k"),
        NodeChanged(1.0, "a", "joined", session=1, profile=NodeProfile()),
        *(assigned(number, "a", 2.0) for number in (1, 2, 3)),
        *(judged(number, "a", 3.0) for number in (1, 2, 3)),
        VersionClosed(4.0, 1, (1, 2, 3), 1, 300, "full"),
        Noted(4.1, notes.Voided(assignment=1, version=1, reason="lies", judged=True), "a"),
        Noted(4.1, notes.Voided(assignment=2, version=1, reason="damaged", judged=False), "a"),
        VersionMade(4.5, 1, "cd" * 32, 40),
    ]
    with Ledger(tmp_path / "ledger.sqlite", tmp_path / "segments") as ledger:
        ledger.commit(decisions, dict.fromkeys((1, 2, 3), b"p"))
    with LedgerView(tmp_path / "ledger.sqlite") as view:
        totals, (node,), (version,) = view.totals(), view.nodes(), view.versions()
        assert (totals.accepted, totals.refused, totals.discarded, totals.tokens) == (1, 1, 1, 100)
        assert (node.outcomes.accepted, node.outcomes.refused, node.outcomes.discarded, node.tokens) == (1, 1, 1, 100)
        assert (version.num_contributions, version.tokens) == (1, 100)
        assert view.refusals() == {"lies": 1}
        assert [piece.outcome for piece in view.assignments()] == ["refused", "discarded", "accepted"]
