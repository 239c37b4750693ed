"""The live view's picture of a moment, and the rows that it is made of."""

from __future__ import annotations

import dataclasses
import io
import math

import pytest
from rich.console import Console

from barnraise.account import nodes
from barnraise.account.chronicle import Happening, plain
from barnraise.account.links import LinkUse
from barnraise.account.nodes import NodeRow
from barnraise.cli import panel
from barnraise.cli.columns import columns
from barnraise.cli.tables import total_table, use_line, use_table
from barnraise.controller.state.fold import apply
from barnraise.controller.state.state import State
from barnraise.core.text import printable
from barnraise.core.types import NodeProfile, ParameterRange
from barnraise.ledger import Assigned, Decision, Judged, NodeChanged, Noted, notes

from ... import decisions as some

SPAN = ParameterRange(0, 10)


def joined(node: str, session: int, time: float = 1.0, rate: float = 100.0, device: str = "cpu") -> NodeChanged:
    profile = NodeProfile(tokens_per_second=rate, device=device)
    return NodeChanged(time, node, "joined", session=session, profile=profile)


def assigned(assignment: int, node: str, bound: int = 50) -> Assigned:
    return some.assigned(2.0, assignment, node, max_staleness=bound, tokens=1000)


def accepted(assignment: int, node: str, staleness: int) -> Judged:
    late = {"version": staleness, "staleness": staleness}
    return some.judged(12.0, assignment, node, tokens=1000, seconds=9.0, **late)


def a_run() -> list[Decision]:
    """Five nodes: one has contributed and works, one is idle, one measures itself, one was killed, one is late."""
    return [
        Noted(0.0, notes.Started(digest="ab" * 32, run="r")),
        *(NodeChanged(0.5, node, "enrolled", key=node) for node in ("busy", "idle", "gone", "late", "new")),
        joined("busy", 1, rate=300.0, device="cuda:0"),
        joined("idle", 2),
        joined("gone", 3),
        joined("new", 4, rate=0.0),
        assigned(1, "busy"),
        accepted(1, "busy", staleness=3),
        assigned(2, "idle"),
        accepted(2, "idle", staleness=1),
        assigned(3, "busy", bound=16),
        NodeChanged(13.0, "gone", "killed", "killed by signal 9"),
    ]


@pytest.fixture
def state() -> State:
    folded = State()
    for decision in a_run():
        apply(folded, decision)
    return folded


def moment(rows: list[NodeRow] | None = None, **changes: object) -> panel.Moment:
    made = panel.Moment(
        heading=panel.Heading(run="barn", mode="asynchronous", seconds=75.0, condition=""),
        progress=panel.PanelProgress(tokens=600_000, budget=1_000_000, rate=8000.0),
        figures=panel.Figures(
            version=9, buffer_size=2, live=3, accepted=12, refused=1, discarded=0, bytes_up=4_500_000,
            bytes_down=88_000_000,
        ),
        losses=[(0, 4.0), (5, 3.0), (9, 2.5)], rows=rows or [], happenings=(),
    )  # fmt: skip
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def drawn(seen: panel.Moment, width: int = 120, height: int = 40) -> list[str]:
    console = Console(file=(stream := io.StringIO()), width=width, height=height)
    console.print(panel.draw(seen, width=width, height=height))
    return stream.getvalue().splitlines()


def test_rows_say_what_each_node_does(state: State) -> None:
    rows = {row.name: row for row in nodes.living(state, {"busy": 19.5, "idle": 21.0}, 20.0)}
    assert {name: row.state for name, row in rows.items()} == {
        "busy": "training", "idle": "idle", "gone": "left", "late": "starting", "new": "starting"
    }  # fmt: skip
    busy = rows["busy"]
    assert (busy.device, busy.staleness, busy.accepted, busy.tokens, busy.share) == ("cuda:0", "3 of 16", 1, 1000, 0.5)
    assert (busy.seen, rows["idle"].seen, rows["gone"].seen) == (0.5, 0.0, None)
    living = [state.nodes["busy"].speed.rate, state.nodes["idle"].speed.rate]
    assert busy.speed == pytest.approx(living[0] / (sum(living) / 2))


def test_a_node_whose_process_ended_with_the_run_did_not_leave(state: State) -> None:
    rows = {row.name: row.state for row in nodes.living(state, {}, 20.0, {"gone"})}
    assert rows["gone"] == "stayed"


def test_nodes_of_a_finished_run_do_not_train_any_more(state: State) -> None:
    apply(state, Noted(14.0, notes.Finished(reason="the token budget is met")))
    rows = {row.name: row.state for row in nodes.living(state, {}, 20.0)}
    assert (rows["busy"], rows["idle"], rows["gone"]) == ("stayed", "stayed", "left")


def test_picture_shows_the_figures(state: State) -> None:
    text = "\n".join(drawn(moment(nodes.living(state, {}, 20.0))))
    for figure in (
        "60.0%",
        "600k of 1.00M tokens",
        "8,000/s",
        "50 s left",
        "2.500",
        "2 of 3 live",
        "4.5 MB",
        "88.0 MB",
    ):
        assert figure in text
    assert "cuda:0" in text
    assert "3 of 16" in text


def test_picture_and_line_tell_f_where_the_rule_has_one() -> None:
    usual = moment()
    robust = moment(figures=dataclasses.replace(usual.figures, f=3))
    assert "2 of 3 live, f 3" in "\n".join(drawn(robust))
    assert "3 live, K 2, f 3 " in panel.line(robust)
    assert ", f " not in "\n".join([*drawn(usual), panel.line(usual)])
    bare = moment(figures=dataclasses.replace(robust.figures, guaranteed=False))
    assert "2 of 3 live, f 3 UNGUARANTEED" in "\n".join(drawn(bare))
    assert "3 live, K 2, f 3 UNGUARANTEED " in panel.line(bare)
    assert "UNGUARANTEED" not in "\n".join([*drawn(robust), panel.line(robust)])


def test_picture_fits_the_terminal() -> None:
    rows = [NodeRow(f"node-{i}", "training", "cpu", 1.0, 5.0, i, 0.0, "-", 0, 0, seen=0.0) for i in range(500)]
    happenings = [Happening(1.0, "left", "n", f"n is gone: {'x' * 150}")] * 20
    lines = drawn(moment(rows, happenings=happenings), width=80, height=24)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert any("more" in line for line in lines)
    assert any("node-499" in line for line in lines), "those with the most tokens are shown"


def test_picture_of_a_run_that_has_not_begun() -> None:
    usual, waits = moment(), "waiting for workers"
    empty = moment(
        heading=dataclasses.replace(usual.heading, condition=waits),
        progress=panel.PanelProgress(tokens=0, budget=1_000_000, rate=0.0),
        figures=dataclasses.replace(usual.figures, accepted=0, version=0),
        losses=[],
    )
    assert any(waits in line for line in drawn(empty))
    assert "left" not in panel.line(empty)
    assert "loss -" in panel.line(empty)


def test_picture_beyond_the_budget() -> None:
    assert "100.0%" in "\n".join(drawn(moment(progress=panel.PanelProgress(1_200_000, 1_000_000, 0.0))))


@pytest.mark.parametrize(
    ("values", "expected"), [([], ""), ([math.nan], ""), ([2.0], "▁"), ([1.0, math.inf, 3.0], "▁█")]
)
def test_sparkline_of_few_values(values: list[float], expected: str) -> None:
    assert panel.sparkline(values) == expected


def test_sparkline_keeps_the_ends_of_a_long_curve() -> None:
    curve = panel.sparkline([100.0 - value for value in range(100)], width=10)
    assert len(curve) == 10
    assert (curve[0], curve[-1]) == ("█", "▁")


def test_columns_are_aligned() -> None:
    lines = [line.plain for line in columns([["a", "bb", "c"], [("long", "red"), "1", "d"]], "<><")]
    assert lines == ["a     bb  c", "long   1  d"]
    assert columns([], "<") == []


@pytest.mark.parametrize("hostile", ["\x1b[2Jgone", "two\nlines", "\x07bell", "\u202eright-to-left", "x" * 10_000])
def test_hostile_text_cannot_control_the_terminal(hostile: str) -> None:
    shown = printable(hostile)
    assert shown.isprintable()
    assert len(shown) <= 160
    assert plain("日本 gpu", 20).isascii()


def test_links_are_shown_with_their_share_of_the_rate() -> None:
    uses = [LinkUse("fast", 125_000.0, 1_200_000.0, 1_250_000.0, 1_250_000.0), LinkUse("free", 1e6, 0.0, None, None)]
    head, fast, free = (str(line).split() for line in use_table(uses))
    assert head == ["link", "Mbit/s", "up", "of", "down", "of"]
    assert fast == ["fast", "1.00", "10", "10%", "9.60", "10", "96%"]
    assert free == ["free", "8.00", "any", "0.00", "any"]
    assert use_line(uses).endswith("fast 1.0/9.6  free 8.0/0.0")
    assert use_line([]) == ""


def test_the_busiest_of_many_links_are_shown() -> None:
    uses = [LinkUse(f"n{number}", float(number * 125_000), 0.0, None, None) for number in range(20)]
    assert [str(line).split()[0] for line in use_table(uses)[1:]] == [f"n{number}" for number in range(12, 20)]


def test_totals_of_links() -> None:
    way = {"bytes": 1_500_000, "packets": 1000, "dropped": 3, "lost": 0}
    content = {"links": [{"name": "one", "link": "10 Mbit/s, 50 ms one way", "up": way, "down": way}]}
    _, row = (str(line) for line in total_table(content))
    assert row.split()[0] == "one"
    assert row.count("1.5 MB") == 2
