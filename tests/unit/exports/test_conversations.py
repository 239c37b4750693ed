"""Conversations pass through the exported template, and must become the tokens that were trained on."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.chats import CHATML, LLAMA, chat_tokenizer, conversation, unmarked

from barnraise.core.errors import ExportError
from barnraise.data import chats, tokenizers
from barnraise.data.chat_template import ChatTemplate
from barnraise.data.examples import Example, Origin
from barnraise.data.shards import Dataset
from barnraise.exports.conversations import stops_of, talks_of
from barnraise.exports.gguf_file import write_gguf
from barnraise.exports.gguf_vocabulary import vocabulary_of
from barnraise.exports.modelfile import turns_of
from barnraise.exports.round_trip import Prompt, TextEnds, check_tokenizer, load_tokenizer
from barnraise.models.build import build
from barnraise.models.config import describe

torch.set_num_threads(1)


def dataset(folder: Path, template: str, train_on: Any = "assistant") -> Dataset:
    """Conversations as a dataset in `folder`, whose tokenizer splits texts as GPT-2 does."""
    chat_tokenizer("byte-level", folder / "tokenizer", template)
    coder = tokenizers.load(folder / "tokenizer")
    chance = random.Random(1)
    examples = [Example(source=Origin("chats", n), messages=conversation(chance)) for n in range(120)]
    form = chats.ChatForm("chat", coder, chats.template_of(coder, "it"), train_on, context=256)
    chats.build(folder / "data", form, examples[:60], examples[60:])
    return Dataset.open(folder / "data")


def prompts(data: Dataset) -> list[Prompt]:
    coder, files = tokenizers.of(data), {info.name: (data.folder / info.name).read_bytes() for info in data.meta.files}
    template = ChatTemplate.of(files, "it")
    turns = turns_of(lambda talk, answer: template.render(talk, prompt=answer).text)
    return talks_of(data, coder, template, turns)


@pytest.mark.parametrize(
    ("template", "read_off"),
    [
        (CHATML, True),
        (unmarked(CHATML), True),
        (LLAMA, False),  # to GPT-2, two line ends are one token at the end of a prompt, and two before an answer
    ],
    ids=["marked", "plain", "headers"],
)
def test_the_exported_template_gives_the_tokens_of_training(tmp_path: Path, template: str, read_off: bool) -> None:
    data = dataset(tmp_path, template)
    found, rows = prompts(data), data.held_out()["tokens"]
    assert len(found) == 10
    begun = [" ".join(map(str, row.tolist())) for row in rows]
    assert all(any(" ".join(map(str, prompt.ids)) in row for row in begun) for prompt in found) == read_off
    check_tokenizer(found, load_tokenizer(data.folder), TextEnds(eos=tokenizers.of(data).eos_id))


def test_a_broken_template_is_caught(tmp_path: Path) -> None:
    data = dataset(tmp_path, CHATML)
    found, path = prompts(data), data.folder / "chat_template.jinja"
    path.write_text(path.read_text().replace("<|im_start|>assistant\n", "<|im_start|>assistant"))
    with pytest.raises(ExportError, match=r"reads prompt 1 \(.*\) otherwise than the run did: token \d+ is none"):
        check_tokenizer(found, load_tokenizer(data.folder), TextEnds(eos=tokenizers.of(data).eos_id))


def test_where_everything_is_learnt_questions_are_made_of_the_rows(tmp_path: Path) -> None:
    data = dataset(tmp_path, CHATML, train_on="all")
    found = prompts(data)
    assert len(found) == 10
    check_tokenizer(found, load_tokenizer(data.folder), TextEnds(eos=tokenizers.of(data).eos_id))


def test_the_ends_of_answers_are_stops(tmp_path: Path) -> None:
    data = dataset(tmp_path, CHATML)
    coder = tokenizers.of(data)
    assert stops_of(data, coder) == (coder.special_tokens()["<|im_end|>"],)


def test_a_gguf_file_has_the_template_and_the_end_of_a_turn(tmp_path: Path) -> None:
    data = dataset(tmp_path, CHATML)
    files = {info.name: (data.folder / info.name).read_bytes() for info in data.meta.files}
    (stop,) = stops_of(data, tokenizers.of(data))
    config = describe(
        {"architecture": "llama", "config": {"hidden_size": 32, "num_layers": 1, "num_heads": 2}},
        data.meta.vocab_size,
        256,
        eos_id=data.meta.eos_id,
    )
    vocabulary = vocabulary_of(files, data.meta.vocab_size, stop)
    assert vocabulary.begins, "the tokenizer puts <s> before a text"
    write_gguf(tmp_path / "model.gguf", build(config), config, vocabulary, "f16", "barn")
    again = load_tokenizer(tmp_path, gguf_file="model.gguf")
    assert "generation %" not in again.chat_template
    check_tokenizer(prompts(data), again, TextEnds(data.meta.eos_id, (stop,)))
    assert json.loads(files["tokenizer_config.json"])["eos_token"] == again.eos_token
