"""The host's dataset without rows, and a site's rows beside it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from barnraise.core.errors import DataError
from barnraise.core.sites import Releases, SiteTerms
from barnraise.core.types import RowRange
from barnraise.data import site_rows, text
from barnraise.data.meta import Meta
from barnraise.data.shards import Dataset

TERMS = SiteTerms(0.2)


@pytest.fixture
def meta(tmp_path: Path) -> Meta:
    return site_rows.build_form(tmp_path / "data", [], tokenizer="bytes", context=16, seed=0)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own.txt").write_text("".join(f"line {number} of the own text\n" for number in range(100)))
    return tmp_path / "own.txt"


def test_the_hosts_dataset_has_the_form_and_no_rows(meta: Meta, tmp_path: Path) -> None:
    dataset = Dataset.open(tmp_path / "data", verify=True)
    assert (dataset.num_rows, dataset.meta.shards, dataset.meta.held_out.rows) == (0, (), 0)
    assert dataset.meta.lengths == (16,)


def test_public_files_become_held_out_rows(own: Path, tmp_path: Path) -> None:
    found = site_rows.build_form(tmp_path / "data", [str(own)], tokenizer="bytes", context=16, seed=0)
    assert found.held_out.rows > 100
    assert not found.shards
    with pytest.raises(DataError, match="do not fill one row"):
        site_rows.build_form(tmp_path / "other", [str(own)], tokenizer="bytes", context=10**4, seed=0)


def test_a_sites_rows_are_made_once_and_again_after_its_files_change(meta: Meta, own: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    first = site_rows.prepared(folder, [str(own)], meta, tmp_path / "data", TERMS)
    told = site_rows.described(first, folder, TERMS)
    made = (folder / "rows" / "meta.json").stat().st_ino
    again = site_rows.prepared(folder, [str(own)], meta, tmp_path / "data", TERMS)
    assert (folder / "rows" / "meta.json").stat().st_ino == made
    assert site_rows.described(again, folder, TERMS) == told
    own.write_text(own.read_text() + "another line\n" * 50)
    changed = site_rows.prepared(folder, [str(own)], meta, tmp_path / "data", TERMS)
    assert changed.num_rows > first.num_rows
    assert site_rows.described(changed, folder, TERMS).digest != told.digest


def test_the_hash_of_equal_rows_differs_between_sites(meta: Meta, own: Path, tmp_path: Path) -> None:
    found = []
    for name in ("ann", "bob"):
        rows = site_rows.prepared(tmp_path / name, [str(own)], meta, tmp_path / "data", TERMS)
        found.append(site_rows.described(rows, tmp_path / name, TERMS))
    assert found[0].digest != found[1].digest
    assert found[0].form == found[1].form == site_rows.form_digest(meta)
    assert (tmp_path / "ann" / "salt").stat().st_mode & 0o77 == 0


def test_a_site_that_releases_no_loss_has_no_held_out_rows_to_measure(meta: Meta, own: Path, tmp_path: Path) -> None:
    rows = site_rows.prepared(tmp_path / "ann", [str(own)], meta, tmp_path / "data", TERMS)
    assert site_rows.described(rows, tmp_path / "ann", TERMS).held_out > 0
    silent = SiteTerms(0.2, Releases(held_out="off"))
    assert site_rows.described(rows, tmp_path / "ann", silent).held_out == 0


def test_records_with_text_are_rows_too(meta: Meta, tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"record {number} has a text of its own"}) for number in range(60)]
    (tmp_path / "own.jsonl").write_text("\n".join(lines))
    rows = site_rows.prepared(tmp_path / "ann", [str(tmp_path / "own.jsonl")], meta, tmp_path / "data", TERMS)
    assert rows.num_rows > 50


def test_rows_behind_the_last_are_the_first_again(meta: Meta, own: Path, tmp_path: Path) -> None:
    rows = site_rows.prepared(tmp_path / "ann", [str(own)], meta, tmp_path / "data", TERMS)
    last, count = rows.num_rows - 1, rows.num_rows
    found = rows.rows(7, last, last + 3)["tokens"]
    expected = np.concatenate([rows.rows(1, last, count)["tokens"], rows.rows(1, 0, 2)["tokens"]])
    assert (found == expected).all()
    for start, stop in [(0, 0), (-1, 2), (0, 2 * count + 1)]:
        with pytest.raises(DataError, match="asked for"):
            rows.rows(1, start, stop)


def test_a_private_task_has_each_row_once_however_the_controller_numbers_it(
    meta: Meta, own: Path, tmp_path: Path
) -> None:
    rows = site_rows.prepared(tmp_path / "ann", [str(own)], meta, tmp_path / "data", TERMS)
    count = rows.num_rows
    asked = [RowRange(7, count - 2, count + 3), RowRange(1, 0, 4), RowRange(3, 2, 6)]
    assert rows.distinct(asked) == [RowRange(0, 0, 6), RowRange(0, count - 2, count)]
    assert rows.distinct([RowRange(1, count, count + 2)]) == []


def test_a_dataset_of_another_form_is_refused(meta: Meta, own: Path, tmp_path: Path) -> None:
    text.build(tmp_path / "made", [own], context=16, held_out=0.2)
    made = site_rows.prepared(tmp_path / "ann", [str(tmp_path / "made")], meta, tmp_path / "data", TERMS)
    assert made.folder == tmp_path / "made"
    text.build(tmp_path / "longer", [own], context=32, held_out=0.2)
    with pytest.raises(DataError, match="context 32, but the run has 16"):
        site_rows.prepared(tmp_path / "ann", [str(tmp_path / "longer")], meta, tmp_path / "data", TERMS)


def test_a_dataset_without_rows_is_refused(meta: Meta, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no rows to train on"):
        site_rows.prepared(tmp_path / "ann", [str(tmp_path / "data")], meta, tmp_path / "data", TERMS)


def test_files_without_a_row_are_refused(meta: Meta, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("few")
    with pytest.raises(DataError):
        site_rows.prepared(tmp_path / "ann", [str(tmp_path / "short.txt")], meta, tmp_path / "data", TERMS)
    with pytest.raises(DataError):
        site_rows.prepared(tmp_path / "ann", [str(tmp_path / "none.txt")], meta, tmp_path / "data", TERMS)
