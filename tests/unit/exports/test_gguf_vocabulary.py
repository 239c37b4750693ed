"""A tokenizer in a GGUF file is the same tokenizer, or is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests import pretrained
from transformers import AutoTokenizer

from barnraise.core.errors import DataError
from barnraise.data.tokenizers import ByteTokenizer, HuggingFaceTokenizer
from barnraise.exports.gguf_file import write_gguf
from barnraise.exports.gguf_vocabulary import CONTROL, NORMAL, UNUSED, USER_DEFINED, template_of, vocabulary_of
from barnraise.models.build import build
from barnraise.models.config import describe

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXT = "The barn's roof, it's 1234 boards.\n\n  A   lamp é 木 \t end"


def files(folder: Path, **model: Any) -> dict[str, bytes]:
    pretrained.tokenizer().save_pretrained(folder)
    found = HuggingFaceTokenizer.load(folder).files()
    whole = json.loads(found["tokenizer.json"])
    whole["model"] |= model
    return found | {"tokenizer.json": json.dumps(whole).encode()}


def split_by(content: bytes, *patterns: str, behavior: str = "Isolated") -> bytes:
    whole = json.loads(content)
    splits = [{"type": "Split", "pattern": {"Regex": p}, "behavior": behavior, "invert": False} for p in patterns]
    level = whole["pre_tokenizer"] | {"use_regex": False}
    whole["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*splits, level]}
    return json.dumps(whole).encode()


@pytest.mark.parametrize("split", ["gpt-2", "qwen2"])
def test_transformers_reads_the_same_tokenizer(tmp_path: Path, split: str) -> None:
    found = files(tmp_path / "tokenizer")
    if split == "qwen2":
        found["tokenizer.json"] = split_by(found["tokenizer.json"], QWEN2)
    own = HuggingFaceTokenizer(found, "here")
    config = describe(
        {"architecture": "llama", "config": {"hidden_size": 32, "num_layers": 1, "num_heads": 2}}, 310, 16
    )
    vocabulary = vocabulary_of(found, 310)
    assert vocabulary.pre == split
    assert vocabulary.tokens[309] == "[PAD309]"
    assert [vocabulary.types[0], vocabulary.types[5], vocabulary.types[309]] == [CONTROL, NORMAL, UNUSED]
    write_gguf(tmp_path / "model.gguf", build(config), config, vocabulary, "f16", "barn")
    again = AutoTokenizer.from_pretrained(tmp_path, gguf_file="model.gguf")
    assert again(TEXT)["input_ids"] == own.encode(TEXT)
    assert again.eos_token_id == own.eos_id


def test_bytes_have_no_merges() -> None:
    vocabulary = vocabulary_of(ByteTokenizer().files(), 258)
    assert (vocabulary.merges, vocabulary.eos, vocabulary.pad, vocabulary.bos) == ([], 256, 257, None)
    assert not vocabulary.begins


def test_added_tokens_that_are_not_special_are_told(tmp_path: Path) -> None:
    found = files(tmp_path)
    whole = json.loads(found["tokenizer.json"])
    whole["added_tokens"].append(whole["added_tokens"][0] | {"id": 300, "content": "<think>", "special": False})
    vocabulary = vocabulary_of(found | {"tokenizer.json": json.dumps(whole).encode()}, 301)
    assert vocabulary.types[300] == USER_DEFINED


def test_a_tokenizer_that_begins_each_text_is_told(tmp_path: Path) -> None:
    own = pretrained.tokenizer()
    own.bos_token = pretrained.EOS
    own.save_pretrained(tmp_path)
    found = HuggingFaceTokenizer.load(tmp_path).files()
    config = json.loads(found["tokenizer_config.json"]) | {"add_bos_token": True}
    assert not vocabulary_of(found, 300).begins
    assert vocabulary_of(found | {"tokenizer_config.json": json.dumps(config).encode()}, 300).begins


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": {"type": "WordLevel", "vocab": {"a": 0}}}, "this one is WordLevel with decoder ByteLevel"),
        ({"byte_fallback": True}, "this one is BPE with byte fallback"),
        (
            {"normalizer": {"type": "Lowercase"}},
            r"llama\.cpp normalizes no text, and this tokenizer does \(Lowercase\)",
        ),
        ({"end_of_word_suffix": "</w>"}, "has no prefixes or suffixes of pieces"),
        ({"split": r"\d"}, r"splits a text in a way that barnraise does not know .*known: gpt-2, llama-bpe, qwen2"),
    ],
)
def test_a_tokenizer_of_another_kind_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    found = files(tmp_path)
    whole = json.loads(found["tokenizer.json"])
    if "split" in change:
        whole = json.loads(split_by(found["tokenizer.json"], change["split"]))
    elif "model" in change or "normalizer" in change:
        whole |= change
    else:
        whole["model"] |= change
    with pytest.raises(DataError, match=f"{said}.*export with --as model"):
        vocabulary_of(found | {"tokenizer.json": json.dumps(whole).encode()}, 300)


def test_a_vocabulary_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="ids up to 299, but the model's vocabulary 290"):
        vocabulary_of(files(tmp_path), 290)
    with pytest.raises(DataError, match=r"has no tokenizer\.json"):
        vocabulary_of({}, 290)


def test_the_chat_template_is_found_where_transformers_puts_it() -> None:
    def config(template: object) -> dict[str, bytes]:
        return {"tokenizer_config.json": json.dumps({"chat_template": template}).encode()}

    assert template_of({}) is None
    assert template_of(config("old")) == "old"
    assert template_of(config("old") | {"chat_template.jinja": b"new"}) == "new"
    several = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    assert template_of(config(several)) == "plain"
