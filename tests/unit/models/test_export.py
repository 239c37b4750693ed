"""Exported models are Hugging Face folders like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from barnraise.core.errors import StorageError
from barnraise.data.tokenizers import ByteTokenizer
from barnraise.models.architectures import ARCHITECTURES
from barnraise.models.build import build
from barnraise.models.config import describe
from barnraise.models.export import filled, save
from barnraise.models.flat import FlatParameters

torch.set_num_threads(1)
BYTES = ByteTokenizer()


def export(folder: Path, module: torch.nn.Module, files: dict[str, bytes] | None = None) -> None:
    with filled(folder, last="config.json", stale=("model*.safetensors*",)) as partial:
        save(partial, module, files or {})


def resolve(name: str) -> dict[str, Any]:
    section = {"architecture": name, "config": {"hidden_size": 32, "num_layers": 2, "num_heads": 4}}
    return describe(section, BYTES.vocab_size, 16, eos_id=BYTES.eos_id, pad_id=BYTES.pad_id)


@pytest.mark.parametrize("name", [*sorted(ARCHITECTURES), "qwen2"])
def test_from_pretrained_gives_the_same_model(tmp_path: Path, name: str) -> None:
    resolved = resolve(name)
    module = build(resolved, seed=3).eval()
    export(tmp_path / "model", module, BYTES.files())
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    rows = torch.arange(32).reshape(2, 16)
    with torch.no_grad():
        assert torch.equal(module(input_ids=rows).logits, again(input_ids=rows).logits)
    assert {path.name for path in (tmp_path / "model").iterdir()} == {
        *("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"),
    }
    assert describe({"path": tmp_path / "model"}, BYTES.vocab_size, 16) == resolved
    generation = GenerationConfig.from_pretrained(tmp_path / "model")
    assert (generation.eos_token_id, generation.pad_token_id) == (BYTES.eos_id, BYTES.pad_id)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    made = again.generate(**tokenizer("hi", return_tensors="pt"), max_new_tokens=3, do_sample=False)
    assert made[0, :2].tolist() == [104, 105]


def test_a_new_export_replaces_the_old_and_leaves_other_files(tmp_path: Path) -> None:
    module, older = build(resolve("gpt2"), seed=3), build(resolve("gpt2"), seed=4)
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "model-00001-of-00002.safetensors").write_text("an older, larger model")
    export(tmp_path, older)
    export(tmp_path, module)
    again = FlatParameters(AutoModelForCausalLM.from_pretrained(tmp_path))
    assert torch.equal(again.vector, FlatParameters(module).vector)
    assert (tmp_path / "README.md").read_text() == "mine"
    assert len(list(tmp_path.glob("*.safetensors"))) == 1
    assert not list(tmp_path.parent.glob("*.partial"))


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        export(tmp_path / "file" / "model", build(resolve("gpt2")))
