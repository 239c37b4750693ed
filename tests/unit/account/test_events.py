"""The ledger's rows as events of named kinds, from a moment on."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnraise.account.events import ALL, DECISIONS, KINDS, NEWS, NOTES, EventFeed, kinds_of
from barnraise.core.errors import UnknownNameError
from barnraise.ledger import Decision, Ledger, LedgerView, NodeChanged, Noted, VersionClosed, VersionMade, notes

from ...decisions import assigned, judged

ROWS: list[Decision] = [
    Noted(0.0, notes.Started(digest="ab" * 32, run="barn")),
    NodeChanged(1.0, "a", "enrolled", key="a"),
    NodeChanged(1.5, "a", "joined", session=1),
    assigned(2.0, 1, "a"),
    judged(6.0, 1, "a"),
    VersionClosed(6.0, 1, (1,), 1, 400, "full"),
    VersionMade(6.5, 1, "cd" * 32, 40),
    Noted(7.0, notes.Evaluated(version=1, loss=3.25, tokens=400)),
    NodeChanged(8.0, "a", "left", "silent \x1b[2J for 1.2 s"),
    NodeChanged(9.0, "a", "joined", session=1),
    assigned(9.5, 2, "a"),
    judged(12.0, 2, "a", verdict="refused", reason="its norm is 1e9 \u202e\n"),
    Noted(13.0, notes.Traffic(up=1, down=2)),
]


@pytest.fixture
def view(tmp_path: Path) -> LedgerView:
    with Ledger(tmp_path / "ledger.sqlite", tmp_path / "segments", run="barn") as ledger:
        ledger.commit(ROWS, {1: b"payload"})
    return LedgerView(tmp_path / "ledger.sqlite")


def kinds(view: LedgerView, wanted: str = "", **options: object) -> list[str]:
    return [event.kind for event in EventFeed(view, kinds_of(wanted), **options).new()]  # type: ignore[arg-type]


def test_names_of_kinds_are_distinct() -> None:
    assert len(set(KINDS)) == len(KINDS) == len(DECISIONS) + len(NOTES)
    assert set(KINDS) >= NEWS
    assert ALL not in KINDS


def test_all_rows_are_events_of_some_kind(view: LedgerView) -> None:
    found = list(EventFeed(view, kinds_of("all")).new())
    assert [event.row for event in found] == list(range(1, len(ROWS) + 1))
    assert [event.kind for event in found] == [
        "started", "enrolled", "joined", "assigned", "accepted", "closed", "made", "evaluated", "left", "back",
        "assigned", "refused", "traffic",
    ]  # fmt: skip
    assert all(event.text.isprintable() for event in found)


def test_the_routine_is_not_shown_unless_asked_for(view: LedgerView) -> None:
    assert kinds(view) == ["joined", "left", "back", "refused"]
    assert kinds(view, "made,evaluated") == ["made", "evaluated"]


def test_events_since_a_moment_know_what_was_before(view: LedgerView) -> None:
    assert kinds(view, since=9.0) == ["back", "refused"], "the node had joined before"
    assert kinds(view, since=100.0) == []


def test_events_of_one_node(view: LedgerView) -> None:
    assert kinds(view, "all", node="b") == []
    assert "traffic" not in kinds(view, "all", node="a")


def test_a_refusal_tells_its_reason(view: LedgerView) -> None:
    (refused,) = EventFeed(view, {"refused"}).new()
    assert refused.text == "2: a's contribution is refused: its norm is 1e9"
    assert (refused.node, refused.time) == ("a", 12.0)


def test_a_feed_yields_each_event_once(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.sqlite", tmp_path / "segments", run="barn") as ledger:
        ledger.commit(ROWS[:3], {})
        with LedgerView(tmp_path / "ledger.sqlite") as view:
            feed = EventFeed(view, NEWS)
            assert [event.kind for event in feed.new()] == ["joined"]
            ledger.commit([NodeChanged(3.0, "a", "killed", "signal 9")], {})
            assert [event.kind for event in feed.new()] == ["killed"]
            assert not list(feed.new())


def test_an_unknown_kind_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'refused'"):
        kinds_of("joined,refuse")


@pytest.mark.parametrize(("since", "first"), [(0.0, 1), (6.2, 7), (6.5, 7), (12.5, 13), (99.0, 14)])
def test_the_first_row_at_a_time(view: LedgerView, since: float, first: int) -> None:
    assert view.first_row(since) == first
