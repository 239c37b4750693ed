"""The round trip passes a faithful export of a model, and names the first difference of any other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests import pretrained

from barnraise.core.errors import ExportError
from barnraise.data import text
from barnraise.data.shards import Dataset
from barnraise.data.tokenizers import HuggingFaceTokenizer
from barnraise.exports.prompts import prompts_of
from barnraise.exports.round_trip import RoundTrip, TextEnds, check_model, check_tokenizer, load_folder, load_tokenizer
from barnraise.exports.round_trip import written_by as written_by_model
from barnraise.models.build import load
from barnraise.models.config import describe
from barnraise.models.export import filled, save

torch.set_num_threads(1)
ENDS = TextEnds(eos=0)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model that has learned something, and a dataset with its tokenizer."""
    folder = tmp_path_factory.mktemp("round_trip")
    pretrained.write(folder / "model", steps=60)
    (folder / "story.txt").write_text(pretrained.prose(7))
    text.build(folder / "data", [folder / "story.txt"], tokenizer=folder / "model", context=pretrained.CONTEXT)
    return folder


@pytest.fixture
def exported(source: Path, tmp_path: Path) -> Path:
    module = load(source / "model", config_of(source))
    with filled(tmp_path / "out", last="config.json", stale=()) as partial:
        save(partial, module, HuggingFaceTokenizer.load(source / "data").files())
    return tmp_path / "out"


def config_of(source: Path) -> dict[str, Any]:
    return describe({"path": source / "model"}, 300, pretrained.CONTEXT, eos_id=0)


def trip(source: Path, folder: Path) -> RoundTrip:
    """Compare the exported model in `folder` with the one in `source`, as an export does."""
    module = load(source / "model", config_of(source))
    written = written_by_model(module, prompts_of(Dataset.open(source / "data")), ENDS)
    tokenizer = load_tokenizer(folder)
    check_tokenizer([each.prompt for each in written], tokenizer, ENDS)
    return check_model(written, load_folder(folder), ENDS, kind="f32", tokenizer=tokenizer)


def change(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def test_a_faithful_export_passes(source: Path, exported: Path) -> None:
    assert trip(source, exported) == RoundTrip(prompts=10, equal=10, spread=0.0)


def test_a_special_tokens_name_in_the_data_does_not_fail_a_faithful_export(
    source: Path, exported: Path, tmp_path: Path
) -> None:
    """The run reads it as letters, and transformers as the token."""
    source = shutil.copytree(source, tmp_path / "source")
    path, name = source / "named.txt", pretrained.EOS
    path.write_text("".join(f"{name} {line} {name}" for line in pretrained.prose(0).splitlines()))
    shutil.rmtree(source / "data")
    text.build(source / "data", [path], tokenizer=source / "model", context=pretrained.CONTEXT)
    assert trip(source, exported) == RoundTrip(prompts=10, equal=10, spread=0.0)


def test_saving_a_model_prints_nothing(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module, _ = load(source / "model", config_of(source)), capsys.readouterr()
    save(tmp_path, module, {})
    assert capsys.readouterr() == ("", "")


def test_another_tokenizer_is_caught(source: Path, exported: Path) -> None:
    """It has the same tokens and one merge fewer: everything loads, and texts become other tokens."""
    change(exported / "tokenizer.json", lambda whole: whole["model"]["merges"].pop(5))
    said = r"tokenizer reads prompt \d+ \('.*'\) otherwise than the run did: token \d+ is \d+ \('.*'\), and was"
    with pytest.raises(ExportError, match=said):
        trip(source, exported)


def test_an_end_that_is_named_twice_is_one(source: Path, exported: Path) -> None:
    """transformers reads two ends from a GGUF file: that of a text, and that of a turn."""
    change(exported / "generation_config.json", lambda config: config.update(eos_token_id=[0, 0]))
    assert trip(source, exported).equal == 10


def test_another_end_of_a_text_is_caught(source: Path, exported: Path) -> None:
    change(exported / "generation_config.json", lambda config: config.update(eos_token_id=[0, 7]))
    with pytest.raises(ExportError, match=r"has the eos tokens \[0, 7\], but the run trained with \[0\]"):
        trip(source, exported)
    change(exported / "generation_config.json", lambda config: config.update(eos_token_id=0, pad_token_id=5))
    with pytest.raises(ExportError, match=r"has the pad tokens \[5\], but the run trained with \[\]"):
        trip(source, exported)
    change(exported / "tokenizer_config.json", lambda config: config.update(eos_token="!"))
    with pytest.raises(ExportError, match="tokenizer ends a text with token 1, but the run trained with 0"):
        trip(source, exported)


def test_other_weights_are_caught(source: Path, exported: Path) -> None:
    path = exported / "model.safetensors"
    tensors = load_file(path)
    tensors["transformer.h.0.mlp.c_proj.weight"] = tensors["transformer.h.0.mlp.c_proj.weight"].flip(0).contiguous()
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(ExportError, match=r"prompt 1 \('.*'\): the exported model's logits differ by .*% of their"):
        trip(source, exported)


def test_an_output_layer_of_its_own_is_caught(source: Path, exported: Path) -> None:
    """A config that does not tie it to the embeddings leaves it at random values."""
    change(exported / "config.json", lambda config: config.update(tie_word_embeddings=False))
    with pytest.raises(ExportError, match="logits differ"):
        trip(source, exported)


def test_settings_that_change_the_tokens_are_caught(source: Path, exported: Path) -> None:
    """The logits are the same, and the first differing token is named."""
    change(exported / "generation_config.json", lambda config: config.update(suppress_tokens=[*range(1, 260)]))
    with pytest.raises(
        ExportError,
        match=r"the trained model's token \d+ after it is \d+ \('.*'\), the exported model's is \d+ \('.*'\)",
    ):
        trip(source, exported)


def test_a_folder_that_does_not_load_is_caught(source: Path, exported: Path) -> None:
    (exported / "model.safetensors").write_bytes(b"")
    with pytest.raises(ExportError, match="does not load"):
        trip(source, exported)
    (exported / "tokenizer.json").write_text("{")
    with pytest.raises(ExportError, match=r"the exported tokenizer in .* does not load"):
        trip(source, exported)
