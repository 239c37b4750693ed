"""`barnraise story`: what the ledger says of an assignment or a node, in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from barnraise.cli.main import main
from barnraise.core.types import NodeProfile, ParameterRange, RowRange
from barnraise.ledger import (
    Decision,
    Ledger,
    NodeChanged,
    Noted,
    RunDirectory,
    VersionClosed,
    VersionMade,
    notes,
)

from ...decisions import assigned, judged

SPAN, ROWS = ParameterRange(0, 10), (RowRange(0, 0, 4),)
DECISIONS: list[Decision] = [
    NodeChanged(1.0, "7", "enrolled", "invite 0123456789abcdef", key="7"),
    NodeChanged(1.5, "7", "joined", session=1, profile=NodeProfile(2000.0)),
    NodeChanged(1.5, "b", "enrolled", key="b"),
    assigned(2.0, 1, "7"),
    NodeChanged(3.0, "7", "left", "silent for 1.2 s \x1b[2J"),
    Noted(3.0, notes.Released(1, "silent for 1.2 s"), "7"),
    assigned(4.0, 2, "b", redo=1),
    judged(6.0, 2, "b", num_bytes=40_000),
    VersionClosed(6.0, 1, (2,), 1, 400, "full"),
    VersionMade(6.5, 1, "cd" * 32, 4000),
    assigned(7.0, 3, "b", base=1, local_steps=1, cursor=8),
    judged(
        8.0, 3, "b", verdict="refused", reason="stale: 3 versions behind", base=1, version=4, staleness=3, steps=1,
        norm=0.0, seconds=1.0,
    ),
]  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory.create("barn", tmp_path)
    run.run_file.write_text("")
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        ledger.commit(DECISIONS, {2: b"payload"})
    return run


def told(run: RunDirectory, capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    try:
        ended: object = main(["story", str(run.path), *arguments])
    except SystemExit as left:
        ended = left.code
    assert ended == code
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.err


def texts(told: str) -> list[str]:
    return [line.partition(" s  ")[2] for line in told.splitlines()]


def test_the_story_of_an_assignment_goes_to_its_end(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert texts(told(run, capsys, "1")) == [
        "1: 7 is to take 4 steps (400 tokens) from version 0, at rate 0.1; at most 50 versions late",
        "1: is released from 7: silent for 1.2 s",
        "2: b is to take 4 steps (400 tokens, work of 1 again) from version 0, at rate 0.1; at most 50 versions late",
    ]
    assert texts(told(run, capsys, "2"))[1:] == [
        "2: b's contribution is accepted, in time: 4 steps in 4.0 s, 40.0 kB, norm 0.1, loss 2.000",
        "2: goes into version 1, alone (the buffer closed: full)",
        "2: version 1 is made, 4.0 kB to publish",
    ]
    assert texts(told(run, capsys, "3"))[1:] == ["3: b's contribution is refused: stale: 3 versions behind"]


def test_the_story_of_a_node_is_its_own(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    lines = texts(told(run, capsys, "7"))  # a node's name comes before an assignment's number
    assert lines[0] == "7 proved its key by invite 0123456789abcdef"
    assert lines[1] == "7 joined; it says that it trains on 2,000 tokens/s"
    assert len(lines) == 5
    assert "\x1b" not in "".join(lines)
    for last in range(1, 6):
        assert texts(told(run, capsys, "7", "--last", str(last))) == lines[-last:]
    assert texts(told(run, capsys, "7", "--last", "0")) == lines
    assert texts(told(run, capsys, "b"))[-1] == "3: b's contribution is refused: stale: 3 versions behind"


def test_a_pause_is_told_of_the_nodes_that_wait_for_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDirectory.create("rest", tmp_path)
    run.run_file.write_text("")
    pause, on = notes.HostPaused("it is hot \x1b[2J"), notes.HostContinued()
    decisions: list[Decision] = [
        *(NodeChanged(1.0, node, "enrolled", key=node) for node in "abc"),
        NodeChanged(2.0, "a", "joined", session=1),
        NodeChanged(2.0, "b", "joined", session=1),
        NodeChanged(3.0, "b", "left", "enough"),
        Noted(4.0, pause),
        NodeChanged(5.0, "b", "joined", session=2),
        NodeChanged(5.5, "b", "joined", session=3),
        NodeChanged(6.0, "a", "left", "enough"),
        Noted(7.0, on),
        Noted(8.0, notes.HostPaused()),
        Noted(9.0, notes.Stopping("asked to finish")),
    ]
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        ledger.commit(decisions, {})
    waits, over = "waits: the host paused the run", "no longer waits: the pause is over"
    assert texts(told(run, capsys, "a"))[1:] == [
        "a joined", f"a {waits}: it is hot [2J", "a left: enough"
    ]  # fmt: skip
    assert texts(told(run, capsys, "b"))[1:] == [
        "b joined", "b left: enough", "b joined", f"b {waits}: it is hot [2J", "b joined", f"b {over}", f"b {waits}",
        f"b {over}",
    ]  # fmt: skip
    assert texts(told(run, capsys, "c")) == ["c proved its key"]
    assert texts(told(run, capsys, "b", "--last", "2")) == [f"b {waits}", f"b {over}"]


def test_the_story_of_a_copy_names_its_original(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDirectory.create("copied", tmp_path)
    run.run_file.write_text("")
    decisions: list[Decision] = [
        *(NodeChanged(1.0, node, "enrolled", key=node) for node in "ab"),
        assigned(2.0, 1, "a"),
        Noted(9.0, notes.Copied(1, "b", 3.2), "a"),
        assigned(9.0, 2, "b", redo=1),
        Noted(11.0, notes.Released(1, notes.COPY_CAME_FIRST), "a"),
    ]
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        ledger.commit(decisions, {})
    assert texts(told(run, capsys, "1"))[1:] == [
        "1: a's result is 3 s late: b gets a copy",
        "2: b is to take 4 steps (400 tokens, work of 1 again) from version 0, at rate 0.1; at most 50 versions late",
        "1: is released from a: a copy of it came first",
    ]


def test_a_program_gets_the_decisions(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.loads(line) for line in told(run, capsys, "2", "--json").splitlines()]
    assert [row["sort"] for row in rows] == ["Assigned", "Judged", "VersionClosed", "VersionMade"]
    assert rows[1]["decision"]["num_bytes"] == 40_000


@pytest.mark.parametrize("what", ["4", "nobody", "9" * 30, "-1", "1'; DROP TABLE nodes"])
def test_an_unknown_assignment_or_node_is_refused_with_the_known_ones(
    run: RunDirectory, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    said = told(run, capsys, "--", what, code=2)
    assert "has neither an assignment nor a node" in said
    assert "its nodes are 7, b" in said


def test_a_measurement_is_told_in_sentences_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured: dict[str, Any] = {"kind": "evaluate", "base": 7, "rows": (RowRange(2, 16, 32),), "local_steps": 1}
    found: dict[str, Any] = {"base": 7, "tokens": 0, "num_bytes": 0, "digest": ""}
    decisions: list[Decision] = [
        NodeChanged(1.0, "b", "enrolled", key="b"),
        assigned(2.0, 1, "b", **measured),
        judged(6.0, 1, "b", verdict="refused", reason="loss is -1", **found),
        assigned(7.0, 2, "b", redo=1, **measured),
        judged(9.0, 2, "b", loss=2.5, weight=30.0, **found),
    ]
    run = RunDirectory.create("measured", tmp_path)
    run.run_file.write_text("")
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        ledger.commit(decisions, {})
    assert texts(told(run, capsys, "b"))[1:] == [
        "1: b is to measure the loss of version 7 on held-out rows 16 to 31",
        "1: b's result is refused: loss is -1",
        "2: b is to measure the loss of version 7 on held-out rows 16 to 31, instead of 1",
        "2: b found a loss of 2.500 in 4.0 s, the mean of 30 predictions",
    ]
