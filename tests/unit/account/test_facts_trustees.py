"""Trustees in a run's account: they answer questions about lists, and contribute nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnraise.account import facts, nodes, story
from barnraise.account.account import read
from barnraise.config.load import dump, load
from barnraise.core.types import Blob, NodeProfile
from barnraise.ledger import Decision, Ledger, LedgerView, NodeChanged, Noted, RunDirectory, VersionClosed, notes
from barnraise.wire.manifest import Manifest

from ...decisions import assigned, judged
from ..cli.test_status import RUN_FILE

NONE = {"tokens": 0, "local_steps": 0, "rows": (), "base": 0}
ROWS: list[Decision] = [
    Noted(0.0, notes.Started(digest="ab" * 32, run="barn")),
    NodeChanged(1.0, "t1", "enrolled", key="t", role="trustee"),
    NodeChanged(1.0, "a", "enrolled", key="a"),
    NodeChanged(1.5, "t1", "joined", session=1, profile=NodeProfile()),
    NodeChanged(1.5, "a", "joined", session=2, profile=NodeProfile(tokens_per_second=100.0)),
    assigned(2.0, 1, "a", kind="masked"),
    judged(6.0, 1, "a", result="update", norm=0.0, loss=0.0),
    VersionClosed(6.0, 1, (1,), 1, 400, "full"),
    assigned(6.0, 2, "t1", kind="vet", **NONE),
    judged(6.1, 2, "t1", result="vetted", digest="", tokens=0, num_bytes=0),
    assigned(6.2, 3, "t1", kind="unmask", **NONE),
    judged(6.3, 3, "t1", result="unmasked", digest="ef" * 32, tokens=0, num_bytes=2_000_000),
]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    found = RunDirectory.create("barn", tmp_path)
    found.run_file.write_text(dump(load(RUN_FILE)))
    (found.path / "manifest.json").write_bytes(Manifest({"model_type": "gpt2"}, Blob("ab" * 32, 1), 10).encode())
    with Ledger(found.ledger, found.segments, run="barn") as ledger:
        ledger.commit(ROWS, {1: b"payload", 3: b"sums"})
    return found


def test_answers_are_neither_contributions_nor_measurements(run: RunDirectory) -> None:
    told = dict(facts.facts(read(run)))
    assert told["work"] == "1 contribution accepted, 0 refused, 0 left over at the end; 2 answers of trustees"
    assert told["workers"] == "1 of 1 contributed; 1 trustee"


def test_a_trustee_neither_trains_nor_is_idle(run: RunDirectory) -> None:
    rows = nodes.recorded(read(run).nodes, running=True, finished=False)
    assert [(row.name, row.state, row.accepted) for row in rows] == [("t1", "trustee", 0), ("a", "idle", 1)]


def test_the_story_of_a_trustee(run: RunDirectory) -> None:
    with LedgerView(run.ledger) as view:
        lines = [line.text for line in story.of_node(view, "t1")]
    assert lines[-4:] == [
        "2: t1 is asked which entries of the list of version 1 it refuses",
        "2: t1 answered in 4.0 s",
        "3: t1 is asked for sums of masks of version 1",
        "3: t1 answered in 4.0 s with 2.0 MB of sums",
    ]


def test_the_story_of_a_masked_update_has_no_figures_that_nobody_knows(run: RunDirectory) -> None:
    with LedgerView(run.ledger) as view:
        lines = [line.text for line in story.of_assignment(view, 1)]
    assert lines[1] == "1: a's contribution is accepted, in time: 4 steps in 4.0 s, 40 B"
