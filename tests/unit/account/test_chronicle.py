"""The events of a run, in sentences."""

from __future__ import annotations

from pathlib import Path
from string import Formatter

import pytest

from barnraise.account.chronicle import Chronicle, Happening, of_note
from barnraise.account.reducer import RowFeed
from barnraise.ledger import Decision, Ledger, LedgerView, NodeChanged, Noted, notes

from ..cli.test_view import joined


def told(path: Path, decisions: list[Decision]) -> list[Happening]:
    with Ledger(path) as ledger:
        ledger.commit(decisions, {})
    chronicle = Chronicle()
    with LedgerView(path) as view:
        RowFeed(view, [chronicle]).advance()
    return chronicle.take()


def test_chronicle_tells_first_visits_returns_and_restarts_apart(tmp_path: Path) -> None:
    happenings = told(
        tmp_path / "ledger.sqlite",
        [
            NodeChanged(0.0, "a", "enrolled", key="a"),
            joined("a", 7),
            joined("a", 7, rate=200.0),  # it has measured itself: nothing to tell
            NodeChanged(3.0, "a", "left", "silent for 1.2 s"),
            joined("a", 7, time=4.0),
            NodeChanged(5.0, "a", "killed", "killed by signal 9"),
            joined("a", 8, time=6.0),
            NodeChanged(7.0, "a", "ended", "whatever words"),
            joined("a", 9, time=8.0),
            NodeChanged(9.0, "a", "revoked", "it lies"),
        ],
    )
    assert [(item.kind, item.text) for item in happenings] == [
        ("joined", "a joined"),
        ("left", "a is gone: silent for 1.2 s"),
        ("back", "a is back"),
        ("killed", "a is gone: killed by signal 9"),
        ("restarted", "a was started again"),
        ("restarted", "a was started again"),
        ("revoked", "a may no longer take part: it lies"),
    ]


def test_chronicle_tells_events_and_leaves_out_routine(tmp_path: Path) -> None:
    happenings = told(
        tmp_path / "ledger.sqlite",
        [
            Noted(0.0, notes.Started(digest="ab", run="r")),
            Noted(1.0, notes.Evaluated(version=0, loss=None, tokens=0)),
            Noted(2.0, notes.BufferSize(nodes=2, live=3, why="automatic")),
            Noted(3.0, notes.Traffic(up=1, down=2)),
            Noted(4.0, notes.Checkpointed(version=1)),
            Noted(5.0, notes.Paused(reason="1 live node, but the aggregation rule needs 3")),
            Noted(6.0, notes.Continued(reason="")),
            Noted(7.0, notes.Resumed(version=4, epoch=2)),
            Noted(8.0, notes.FrameDropped(reason="too\nlong"), "key\x1b["),
            Noted(9.0, notes.LeftOver(contributions=0, reason="SIGINT")),
            Noted(9.0, notes.LeftOver(contributions=1, reason="SIGINT")),
            Noted(9.5, notes.CheckpointFailed(version=4, reason="disk full")),
            Noted(9.7, notes.Disputed(4, 0, 16, ("a\n", "b"), (0.01, 2.31), (30.0, 30.0))),
            Noted(10.0, notes.Finished(reason="SIGINT")),
        ],
    )
    assert [item.text for item in happenings] == [
        "version 0: no finite loss",
        "K is 2 (3 live)",
        "paused: 1 live node, but the aggregation rule needs 3",
        "work continues",
        "the controller was started again, at version 4",
        "a frame from key [ was dropped: too long",
        "1 contribution left over",
        "a checkpoint failed: disk full",
        "the loss of version 4 is disputed (held-out rows 0 to 15: a 0.010 over 30 predictions, b 2.310 over 30 "
        "predictions): the controller measures it",
        "finished: SIGINT",
    ]
    assert [item.kind for item in of_note(happenings)][:2] == ["paused", "continued"]


SAID = [note for note in notes.Note.__subclasses__() if note.sentence]


@pytest.mark.parametrize("note", SAID, ids=notes.kind_of)
def test_a_sentence_names_fields_of_its_note(note: type[notes.Note]) -> None:
    named = {name for _, name, _, _ in Formatter().parse(note.sentence) if name}
    assert named <= {*note.__struct_fields__, "node"}


def test_a_reason_cannot_name_fields(tmp_path: Path) -> None:
    (happening,) = told(
        tmp_path / "ledger.sqlite", [Noted(1.0, notes.Voided(7, 3, "{node} {assignment}", True), "{reason}")]
    )
    assert happening.text == "a contribution of {reason} is void: {node} {assignment}"


def test_chronicle_reads_on_from_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger, LedgerView(path) as view:
        chronicle = Chronicle()
        feed = RowFeed(view, [chronicle])
        ledger.commit([NodeChanged(0.0, "a", "enrolled"), joined("a", 1)], {})
        feed.advance()
        assert [item.text for item in chronicle.take()] == ["a joined"]
        feed.advance()
        assert chronicle.take() == []
        ledger.commit([NodeChanged(2.0, "a", "left", "left")], {})
        feed.advance()
        assert [item.kind for item in chronicle.take()] == ["left"]
