"""Any records that pyarrow or json writes come back from every form of file, and all their examples are on one side."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import ipc, parquet

from barnraise.config.data_sections import ChatData, TextData
from barnraise.data.gathering import gather, peek

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
MESSAGES = st.lists(st.fixed_dictionaries({"role": st.sampled_from(["user", "system"]), "content": TEXTS}), max_size=3)
ANSWER = [{"role": "assistant", "content": "yes"}]


def lines(records: list[dict[str, Any]], path: Path) -> None:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def escaped(records: list[dict[str, Any]], path: Path) -> None:
    path.write_text(json.dumps(records, indent=1))


def columns(records: list[dict[str, Any]], path: Path) -> None:
    parquet.write_table(pa.Table.from_pylist(records), path, row_group_size=2)


def stream(records: list[dict[str, Any]], path: Path) -> None:
    table = pa.Table.from_pylist(records)
    with pa.OSFile(str(path), "wb") as out, ipc.new_stream(out, table.schema) as file:
        file.write_table(table, max_chunksize=3)


FORMS = st.sampled_from(
    [(lines, "a.jsonl"), (escaped, "a.json"), (columns, "a.parquet"), (stream, "a.arrow"), (escaped, "a.txt")]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(MESSAGES, min_size=1, max_size=12), FORMS)
def test_conversations_come_back(
    asked: list[list[dict[str, str]]], form: tuple[Callable[[list[dict[str, Any]], Path], None], str]
) -> None:
    records = [{"messages": messages + ANSWER, "id": number} for number, messages in enumerate(asked)]
    write, name = form
    with tempfile.TemporaryDirectory() as folder:
        write(records, Path(folder) / name)
        found = list(peek(ChatData(kind="chat", files=[name]), folder))
    assert [example.messages for example in found] == [record["messages"] for record in records]


@settings(max_examples=100, deadline=None)
@given(st.lists(TEXTS, min_size=2, max_size=30), FORMS, st.integers(0, 2**31 - 1))
def test_each_text_is_on_one_side_or_left_out_with_a_reason(
    texts: list[str], form: tuple[Callable[[list[dict[str, Any]], Path], None], str], seed: int
) -> None:
    write, name = form
    texts += ["one more", "and another"]
    with tempfile.TemporaryDirectory() as folder:
        write([{"text": text} for text in texts], Path(folder) / name)
        found = gather(TextData(kind="text", files=[name]), seed, folder)
        training, held_out = (
            Counter(example.text for example in side) for side in (found.training(), found.held_out())
        )
    assert held_out
    assert not training & held_out
    assert training + held_out == Counter({text for text in texts if text.strip()})
    counts = found.counts
    assert counts.records == len(texts) == sum(counts.training.values()) + counts.held_out + counts.equal + counts.empty
