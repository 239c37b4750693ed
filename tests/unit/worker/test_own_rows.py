"""The rows of a worker whose data stay with it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.state_machine.engine import WORKER_SETTINGS, told

from barnraise.core.errors import DataError, RunFailedError
from barnraise.core.sites import OwnFiles, Releases, SiteTerms
from barnraise.core.types import Batches, ParameterRange, RowRange, Train
from barnraise.data import site_rows, text
from barnraise.data.meta import Meta
from barnraise.models.exchange.layout import Layout
from barnraise.training.causal_lm import CausalLM
from barnraise.transport import Keys
from barnraise.wire.private import Private
from barnraise.worker import own_rows
from barnraise.worker.executor import WorkerExecutor
from barnraise.worker.options import WorkerOptions

SITE = told(site=SiteTerms(0.2, Releases(loss="off")))


def options_of(folder: Path, own: OwnFiles | None) -> WorkerOptions:
    return WorkerOptions("tcp://127.0.0.1:1", "", "ann", Keys.generate(), folder / "data", own=own)


@pytest.fixture
def meta(tmp_path: Path) -> Meta:
    return site_rows.build_form(tmp_path / "data", [], tokenizer="bytes", context=16, seed=0)


def test_a_worker_without_files_is_told_what_the_run_needs(meta: Meta, tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match="--data"):
        own_rows.require_kind(SITE, options_of(tmp_path, None), meta)
    with pytest.raises(RunFailedError, match="without --data"):
        own_rows.require_kind(WORKER_SETTINGS, options_of(tmp_path, OwnFiles(("a.txt",))), meta)
    own_rows.require_kind(SITE, options_of(tmp_path, OwnFiles(("a.txt",))), meta)


def test_a_dataset_without_rows_is_refused_where_rows_are_the_runs(meta: Meta, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no rows to train on"):
        own_rows.require_kind(WORKER_SETTINGS, options_of(tmp_path, None), meta)
    (tmp_path / "a.txt").write_text("a line of text\n" * 80)
    rows = text.build(tmp_path / "made", [tmp_path / "a.txt"], context=16, held_out=0.2)
    own_rows.require_kind(WORKER_SETTINGS, options_of(tmp_path, None), rows)


def test_random_batches_hold_no_row_of_a_site_twice(meta: Meta, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {number} of its text\n" for number in range(90)))
    own = site_rows.prepared(tmp_path / "own", [str(tmp_path / "a.txt")], meta, tmp_path / "data", SiteTerms(0.2))
    trainer: Any = SimpleNamespace(
        flat=SimpleNamespace(vector=torch.zeros(4), layout=Layout.of([("w", (4,))])),
        device=torch.device("cpu"),
        exchanges_on_device=False,
        problem=CausalLM(),
    )
    settings = told(site=SiteTerms(0.2), private=Private(1.0, 1.0, 1.0), uplink={"codec": "none"})
    executor = WorkerExecutor(trainer, own, settings)
    count = own.num_rows
    for start, rows in ((count - 3, 3), (count, 0)):  # the controller knows a rounded number of rows
        task = Train(
            id=1, base=0, batches=Batches((RowRange(4, start, count + 2),), 2, 0), tokens=80, local_steps=2,
            learning_rate=0.1, rung=0, parameters=(ParameterRange(0, 4),), max_staleness=9,
        )  # fmt: skip
        assert [len(batch["input_ids"]) for batch in executor.batches(task)] == [rows, rows]


def test_the_owner_may_release_less_than_the_run_asks_for(tmp_path: Path) -> None:
    own = OwnFiles(("a.txt",), Releases(seconds="off"))
    assert own_rows.terms_for(SITE, options_of(tmp_path, own)).releases == Releases(loss="off", seconds="off")


def test_a_fault_of_the_files_is_told_to_the_owner_alone(meta: Meta, tmp_path: Path) -> None:
    said: list[str] = []
    options = options_of(tmp_path, OwnFiles((str(tmp_path / "secret.txt"),)))
    with pytest.raises(RunFailedError) as caught:
        own_rows.make(meta, own_rows.terms_for(SITE, options), options, said.append)
    assert "secret" not in str(caught.value)
    assert any("secret" in line for line in said)


def test_the_rows_are_kept_beside_the_cache_or_where_the_owner_says(meta: Meta, tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("a line of the owner's text\n" * 80)
    for folder, expected in (("", tmp_path / "own"), (str(tmp_path / "there"), tmp_path / "there")):
        options = options_of(tmp_path, OwnFiles((str(tmp_path / "own.txt"),), folder=folder))
        made = own_rows.make(meta, own_rows.terms_for(SITE, options), options, lambda text: None)
        assert made.dataset.folder == expected / "rows"
        assert made.described.rows >= made.dataset.num_rows > 50
