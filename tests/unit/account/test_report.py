"""The report: what it says, what it escapes, and what its pictures show."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

from barnraise.account import charts, report
from barnraise.account.account import Account, read
from barnraise.account.chronicle import Happening
from barnraise.core.types import Blob, NodeProfile, ParameterRange
from barnraise.ledger import (
    Decision,
    Judged,
    Ledger,
    NodeChanged,
    Noted,
    RunDirectory,
    VersionClosed,
    VersionMade,
    notes,
)
from barnraise.ledger.outcomes import AssignmentRow, LossPoint
from barnraise.wire.manifest import Manifest

from ...decisions import assigned, judged

SPAN = ParameterRange(0, 10)
HOSTILE = "a | b\n## owned <script>alert(1)</script> \x1b[2J ![x](http://example.org)"


def work(assignment: int, node: str, start: float, verdict: str, reason: str = "") -> list[Decision]:
    return [
        assigned(start, assignment, node, tokens=100),
        judged(start + 4.0, assignment, node, verdict=verdict, reason=reason, version=1, staleness=1, tokens=100),
    ]


def make_account(folder: Path, decisions: list[Decision]) -> Account:
    run = RunDirectory.create("barn", folder)
    run.run_file.write_text("run: {name: barn}\n")
    (run.path / "manifest.json").write_bytes(Manifest({"model_type": "gpt2"}, Blob("ab" * 32, 1), 10).encode())
    accepted = [d.assignment for d in decisions if isinstance(d, Judged) and d.verdict == "accepted"]
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        ledger.commit(decisions, dict.fromkeys(accepted, b"payload"))
    return read(run)


def a_run() -> list[Decision]:
    return [
        Noted(0.0, notes.Started(digest="ab" * 32, run="barn")),
        Noted(0.5, notes.Evaluated(version=0, loss=5.0, tokens=0)),
        NodeChanged(1.0, "a", "enrolled", key="a"),
        NodeChanged(1.0, "b", "enrolled", key="b"),
        NodeChanged(1.5, "a", "joined", session=1, profile=NodeProfile(device=HOSTILE[:100])),
        NodeChanged(1.5, "b", "joined", session=1, profile=NodeProfile()),
        *work(1, "a", 2.0, "accepted"),
        *work(2, "b", 3.0, "refused", "stale: 9 versions behind"),
        VersionClosed(7.0, 1, (1,), 1, 100, "full"),
        VersionMade(7.5, 1, "cd" * 32, 40),
        Noted(7.6, notes.Evaluated(version=1, loss=3.25, tokens=100)),
        NodeChanged(8.0, "b", "left", HOSTILE),
        Noted(9.0, notes.Finished(reason="the token budget is met")),
    ]


@pytest.fixture
def text(tmp_path: Path) -> str:
    return report.write_report(make_account(tmp_path, a_run()), None).read_text()


def test_report_tells_the_run(text: str) -> None:
    for fact in (
        "finished: the token budget is met",
        "5.000 at version 0, 3.250 at version 1",
        "stale: 9 versions behind",
    ):
        assert fact in text
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert titles == ["Loss", "Workers", "Refusals", "Events of note", "Machine", "Run file"]


@pytest.mark.parametrize(("owners", "alone"), [(1, True), (2, False), (0, False)])
def test_report_says_how_many_owners_measured_a_loss(owners: int, alone: bool, tmp_path: Path) -> None:
    """The last version was measured by `owners` owners, and the one before by the controller."""
    decisions = a_run()
    decisions[12] = Noted(7.6, notes.Evaluated(version=1, loss=3.25, tokens=100, owners=owners))
    text = report.write_report(make_account(tmp_path, decisions), None).read_text()
    assert ("nodes of one owner alone measured the last loss" in text) == alone
    assert ("| measured by |" in text) == (owners > 0)
    assert not owners or (f"| 3.2500 | {owners} owner" in text and "| 5.0000 | the controller |" in text)


def test_report_escapes_what_comes_from_outside(text: str) -> None:
    before_run_file = text.partition("## Run file")[0]
    assert "<script>" not in text
    assert "\x1b" not in text
    assert "\n## owned" not in text
    assert not re.search(r"(?<!\\)\]\(http", text)
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", before_run_file)
    assert pictures == ["report/loss.png", "report/timeline.png"]


def test_tables_are_rectangular(text: str) -> None:
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1


def test_report_names_the_pictures_it_has_written(tmp_path: Path) -> None:
    path = report.write_report(make_account(tmp_path, a_run()), None)
    for name in re.findall(r"!\[.*?\]\((.*?)\)", path.read_text()):
        assert image.imread(path.parent / name).shape[1] >= 1000


def test_report_of_a_run_that_never_trained(tmp_path: Path) -> None:
    text = report.write_report(make_account(tmp_path, []), None).read_text()
    assert "The run is not finished." in text
    assert "never measured" in text


def test_report_is_replaced(tmp_path: Path) -> None:
    account = make_account(tmp_path, a_run())
    account.run.report.write_text("old")
    assert report.write_report(account, None).read_text().startswith("# barn-")


def colours(path: Path) -> set[int]:
    """Return the colours of a picture as 0xRRGGBB."""
    red, green, blue = np.moveaxis(np.round(image.imread(path)[..., :3] * 255).astype(int), -1, 0)
    return set(np.unique((red << 16) + (green << 8) + blue).tolist())


def rgb(colour: str) -> int:
    return int(colour.removeprefix("#"), 16)


def piece(number: int, node: str, outcome: str, start: float = 0.0, stop: float | None = 1.0) -> AssignmentRow:
    return AssignmentRow(number, node, start, stop, outcome, 10)  # type: ignore[arg-type]


@pytest.mark.parametrize("drawn", [{"accepted", "lost"}, {"refused", "discarded", "open"}])
def test_timeline_colours_outcomes(drawn: set[str], tmp_path: Path) -> None:
    path = tmp_path / "timeline.png"
    stops = {"open": None}
    pieces = [piece(n, "a", outcome, n, stops.get(outcome, n + 1.0)) for n, outcome in enumerate(sorted(drawn))]
    charts.timeline_chart(path, pieces, [Happening(0.0, "joined", "a", "a joined")], 5.0)
    shown = {outcome for outcome, colour in charts.OUTCOMES.items() if rgb(colour) in colours(path)}
    assert shown - {"open"} == drawn - {"open"}  # its grey is in the letters too


def test_a_timeline_without_nodes_is_empty(tmp_path: Path) -> None:
    charts.timeline_chart(tmp_path / "timeline.png", [], [], 0.0)
    assert rgb(charts.BLUE) not in colours(tmp_path / "timeline.png")


def test_crowded_timeline_keeps_those_with_the_most_tokens() -> None:
    pieces = [piece(n, f"node-{n}", "accepted") for n in range(90)] + [piece(99, "node-77", "accepted")]
    lanes = charts._lanes(pieces, [])
    assert len(lanes) == charts.MOST_LANES
    assert "node-77" in lanes


def test_neighbouring_bars_become_one() -> None:
    assert charts._merged([(0.0, 1.0), (1.05, 2.0), (3.0, 4.0), (3.5, 3.6)], 0.1) == [(0.0, 2.0), (3.0, 4.0)]


def test_loss_chart_with_and_without_a_curve(tmp_path: Path) -> None:
    losses = [LossPoint(version, version * 1000, version * 10.0, 5.0 - version) for version in range(4)]
    resumed = [Happening(12.0, "resumed", "", "the controller was started again")]
    charts.loss_chart(tmp_path / "curve.png", losses, resumed)
    charts.loss_chart(tmp_path / "empty.png", [], [])
    assert rgb(charts.BLUE) in colours(tmp_path / "curve.png")
    assert rgb(charts.BLUE) not in colours(tmp_path / "empty.png")
