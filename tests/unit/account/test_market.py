"""Whether a market of nodes and tasks stands, and why not: in `status`, the report and the JSON of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from barnraise.account.account import read
from barnraise.account.facts import facts
from barnraise.account.market import NOT_YET, UNTOLD, expected
from barnraise.account.report import write_report
from barnraise.ledger import Decision, Noted, RunDirectory, notes
from barnraise.matching.base import NO_STANDING_MARKET, ONE_LANE
from barnraise.matching.catalog import CATALOG, keeps_market

from ..cli.test_status import BEGINNING, make_run, status_of

MARKET, OTHER = "gale_shapley", "fifo"
TRAINING = {"local_steps": 5, "batch_size": 4}  # a task has 20 rows: a shard of 80 is a lane


def a_run(folder: Path, scheduler: str, rows: list[int], *told: notes.Note) -> RunDirectory:
    content: dict[str, Any] = {"controller": {"scheduler": scheduler}, "training": TRAINING}
    also: list[Decision] = [Noted(9.0, note) for note in (notes.RunFile("", content), *told)]
    run = make_run(folder, [*BEGINNING, *also])
    (run.data / "meta.json").write_text(json.dumps({"kind": "text", "shards": [{"rows": count} for count in rows]}))
    return run


@pytest.mark.parametrize(
    ("scheduler", "rows", "stands", "why"),
    [
        (MARKET, [80, 80], True, f"a market stands: {NOT_YET}"),
        (MARKET, [79, 80], False, f"no market stands: {ONE_LANE}"),
        (MARKET, [1000], False, f"no market stands: {ONE_LANE}"),
        (OTHER, [80, 80], False, f"no market stands: {OTHER}: {NO_STANDING_MARKET}"),
        ("of another time", [80], None, f"not known whether a market stands: {UNTOLD.why}"),
        (MARKET, [], None, "not known whether a market stands: the dataset's description cannot be read"),
    ],
)
def test_a_run_tells_it_before_its_controller_has(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    scheduler: str,
    rows: list[int],
    stands: bool | None,
    why: str,
) -> None:
    run = a_run(tmp_path, scheduler, rows)
    if not rows:
        (run.data / "meta.json").write_text("{")
    assert f"matching {why}" in " ".join(status_of(run, capsys).split())
    assert why.partition(":")[0] in write_report(read(run), None).read_text()
    told = json.loads(status_of(run, capsys, "--json"))
    assert (told["market"], told["market_events"], told["stability"]) == (stands, None, None)
    assert told["no_market"] == ("" if stands else why.partition(": ")[2])


def test_notes_of_the_controller_override_the_computed_market_state(tmp_path: Path) -> None:
    figures = notes.Matched(2, 3, 9, 4, 1.0, 1.0, 0.0)
    stood = read(a_run(tmp_path / "1", OTHER, [80], figures))
    assert (stood.dispatch.market.stands, stood.as_json()["market_events"]) == (True, 9)
    gone = read(a_run(tmp_path / "2", MARKET, [80, 80], figures, notes.NoMarket("it broke down")))
    assert (gone.dispatch.market.stands, gone.as_json()["no_market"]) == (False, "it broke down")
    lines = [text for label, text in facts(gone) if label == "matching"]
    assert [line.startswith("no market stands: it broke down") for line in lines] == [False, True]


@pytest.mark.parametrize("name", CATALOG.names())
def test_each_scheduler_says_of_itself_what_its_catalog_declares(name: str) -> None:
    assert (CATALOG.create(name).no_market() == NO_STANDING_MARKET) is not keeps_market(name)
    assert (expected(name, [80, 80], 20).stands is True) is keeps_market(name)
