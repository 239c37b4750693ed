"""Datasets of conversations and of prompts with completions."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.chats import chat_tokenizer

from barnraise.core.errors import DataError
from barnraise.data import chats, tokenizers
from barnraise.data.chats import ChatForm, PackedCounts
from barnraise.data.examples import Example, Origin
from barnraise.data.shards import Dataset


def talk(number: int, answer: str | None = None) -> Example:
    said = f"Barn {number} has {number * 7 % 53} beams." if answer is None else answer
    messages = [{"role": "user", "content": f"And barn {number}?"}, {"role": "assistant", "content": said}]
    return Example(source=Origin("talk.jsonl", number + 1), messages=messages)


def form(folder: Path, **changes: Any) -> ChatForm:
    if not folder.exists():
        chat_tokenizer("byte-level", folder)
    coder = tokenizers.load(folder)
    fields = {"kind": "chat", "tokenizer": coder, "template": chats.template_of(coder, "it"), "train_on": "assistant"}
    return ChatForm(**{**fields, "context": 128, **changes})


def build(folder: Path, training: list[Example], **options: Any) -> tuple[Dataset, PackedCounts]:
    changes = options.pop("changes", {})
    _, counts = chats.build(folder / "data", form(folder / "coder", **changes), training, [talk(1000)], **options)
    return Dataset.open(folder / "data", verify=True), counts


def test_each_example_is_in_the_rows_once_with_its_answer(tmp_path: Path) -> None:
    dataset, counts = build(tmp_path, [talk(number) for number in range(200)])
    coder: Any = tokenizers.of(dataset)
    rows = np.concatenate([dataset.rows(shard, 0, info.rows) for shard, info in enumerate(dataset.meta.shards)])
    asked, answered = [], []
    for row in rows:
        places = [*np.flatnonzero(row["begins"]), 128]
        for start, stop in pairwise(places):
            ids, trained = row["tokens"][start:stop], row["trained"][start:stop]
            if trained.any():
                asked.append(coder.shown(ids.tolist()))
                answered.append(coder.shown(ids[trained].tolist()))
    assert sorted(answered) == sorted(f"Barn {n} has {n * 7 % 53} beams.<|im_end|>" for n in range(200))
    assert all(text.startswith("<|im_start|>user\nAnd barn ") for text in asked)
    assert (counts.examples, counts.rows, counts.truncated) == (200, len(rows), 0)
    assert counts.tokens > 0.8 * rows["tokens"].size
    assert dataset.meta.kind == "chat"


def test_the_template_travels_with_the_dataset(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    own = tmp_path / "own.jinja"
    chat_tokenizer("byte-level", tmp_path / "coder")
    own.write_text("{% for m in messages %}{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}")
    template = chats.template_of(tokenizers.load(tmp_path / "coder"), "it", own)
    dataset, _ = build(tmp_path, [talk(number) for number in range(9)], changes={"template": template})
    read = AutoTokenizer.from_pretrained(dataset.folder)
    assert (
        read.apply_chat_template(talk(3).messages, tokenize=False)
        == "user>And barn 3?</s>assistant>Barn 3 has 21 beams.</s>"
    )


def test_the_same_examples_and_seed_give_the_same_dataset(tmp_path: Path) -> None:
    given = [talk(number) for number in range(99)]
    first, again = (build(tmp_path / name, given, seed=3)[0].meta for name in ("a", "b"))
    assert [info.sha256 for info in first.shards] == [info.sha256 for info in again.shards]


def test_long_examples_are_cut_and_those_without_an_answer_left_are_dropped(tmp_path: Path) -> None:
    late = Example(source=Origin("late", 1), messages=[{"role": "user", "content": "x " * 200}, *talk(1).messages[1:]])
    _, counts = build(tmp_path, [talk(1), talk(2, "word " * 200), late])
    assert (counts.examples, counts.truncated, counts.unanswered) == (2, 2, 1)
    text = counts.text(128)
    assert "2 examples longer than 128 tokens lost their end" in text
    assert "1 were left out since their answer begins behind 128 tokens" in text


def test_rows_without_several_examples_have_no_column_for_it(tmp_path: Path) -> None:
    dataset, counts = build(tmp_path, [talk(number) for number in range(20)], changes={"packed": False})
    assert dataset.num_rows == counts.examples == 20
    assert [column.name for column in dataset.meta.fields] == ["tokens", "trained"]


def test_bad_examples_end_the_preparation_or_are_counted(tmp_path: Path) -> None:
    question = Example(source=Origin("talk.jsonl", 7), messages=[{"role": "user", "content": "And?"}])
    with pytest.raises(DataError, match=r"talk\.jsonl:7: .*no answer to learn.*set data\.skip_bad to more than 0"):
        build(tmp_path, [talk(1), question])
    _, counts = build(tmp_path, [talk(1), question], skip_bad=1)
    assert (counts.examples, counts.bad) == (1, 1)
    assert "1 were left out as bad (the first: talk.jsonl:7" in counts.text(128)
    with pytest.raises(DataError, match=r"set data\.skip_bad to more than 1"):
        build(tmp_path, [question, question], skip_bad=1)


def test_too_few_examples_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no training row of 128 tokens"):
        build(tmp_path, [])
    with pytest.raises(DataError, match=r"no held-out row of 128 tokens"):
        chats.build(tmp_path / "data", form(tmp_path / "coder"), [talk(1)], [])
