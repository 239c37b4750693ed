"""A run that continues a pretrained model: on its own token ids, with its own dropout, to a folder that has both."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from barnraise.assembly import parts
from barnraise.assembly.exporting import export_model
from barnraise.assembly.hosting import open_host
from barnraise.assembly.preparing import prepare
from barnraise.config.load import document
from barnraise.controller.tensors.evaluator import Evaluator
from barnraise.core.errors import RunFileError
from barnraise.data import tokenizers
from barnraise.data.shards import Dataset
from barnraise.ledger import Checkpoints, Ledger, RunDirectory
from barnraise.models.flat import FlatParameters
from barnraise.plan import Purpose
from barnraise.plan.verify import verify

from .. import pretrained

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model that has learned something, in `model`, and text that it has not seen, in `story.txt`."""
    folder = tmp_path_factory.mktemp("pretrained")
    pretrained.write(folder / "model", steps=60)
    (folder / "story.txt").write_text(pretrained.prose(7))
    return folder


@pytest.fixture
def folder(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the working directory, with a copy of `source` in it."""
    shutil.copytree(source, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def content(*, model: dict[str, Any] | None = None, **data: Any) -> dict[str, Any]:
    text = {"kind": "text", "files": ["story.txt"], "context": pretrained.CONTEXT, **data}
    training = {"tokens": 100_000, "batch_size": 4}
    return {"model": {"path": "model"} | (model or {}), "data": text, "workers": [{"name": "a"}], "training": training}


def problems(**data: Any) -> str:
    """Return the problems for which `check` and `train` refuse the run file."""
    with pytest.raises(RunFileError) as caught:
        verify(document(content(**data)), purpose=Purpose.TRAIN)
    return str(caught.value)


def loss_of(evaluator: Evaluator, vector: torch.Tensor) -> float:
    return evaluator.loss(evaluator.model_of(vector))


def prepared(folder: Path, **data: Any) -> RunDirectory:
    plan, _ = verify(document(content(**data)), purpose=Purpose.TRAIN)
    run = RunDirectory.create("pretrained", folder / "runs")
    prepare(plan, run, lambda text: None)
    return run


def test_a_pretrained_model_keeps_its_own_tokenizer(folder: Path) -> None:
    run = prepared(folder)
    dataset, own = Dataset.open(run.data), AutoTokenizer.from_pretrained(folder / "model")
    assert dataset.meta.vocab_size == len(own)
    assert tokenizers.of(dataset).encode(pretrained.prose(3)) == own(pretrained.prose(3))["input_ids"]
    plan, _ = verify(document(content()), purpose=Purpose.TRAIN)
    config = parts.model_config(plan, dataset)
    checkpoint = Checkpoints(run.checkpoints).load_latest().checkpoint
    assert checkpoint is not None
    vector = checkpoint.tensors("parameters")["parameters"]
    trained = FlatParameters(AutoModelForCausalLM.from_pretrained(folder / "model")).vector
    assert torch.equal(vector, trained)
    assert loss_of(parts.evaluator_of(plan, config, plan.exchange(config), dataset), vector) < 2.5, (
        "it knows this text, and 5.7 is by chance"
    )


def test_an_exported_model_has_the_tokenizer_and_the_dropout_of_the_folder(folder: Path) -> None:
    run = prepared(folder)
    Ledger(run.ledger).close()
    shutil.move(folder / "model", folder / "elsewhere")
    exported = export_model(run).folder
    before = json.loads((folder / "elsewhere" / "config.json").read_text())
    after = json.loads((exported / "config.json").read_text())
    assert before["resid_pdrop"] == 0.1
    assert {key: after[key] for key in before if "drop" in key} == {key: before[key] for key in before if "drop" in key}
    own, again = (AutoTokenizer.from_pretrained(path) for path in (folder / "elsewhere", exported))
    assert again(pretrained.prose(3))["input_ids"] == own(pretrained.prose(3))["input_ids"]
    assert again.eos_token_id == own.eos_token_id


def test_a_resume_needs_the_folder_no_more(folder: Path) -> None:
    """The dataset and the checkpoint hold the whole model, so a standby on another machine can continue the run."""
    run = prepared(folder)
    plan, _ = verify(document(content()), purpose=Purpose.TRAIN)
    shutil.rmtree(folder / "model")
    with run.lock():
        host = open_host(run, plan, lambda text: None)
        assert host.machine.settings.tasks.needs.token_bytes == 2
        host.ledger.close()


def test_another_tokenizer_is_refused(folder: Path) -> None:
    told = problems(tokenizer="bytes")
    assert "data.tokenizer: 'bytes' is not the tokenizer of the model in 'model': it has 258 tokens" in told
    assert "the model's own 300; '<|endoftext|>' is no token in it and id 0 in the model's own" in told
    assert "leave data.tokenizer out, or set data.retokenize: true" in told
    pretrained.tokenizer(seed=0, size=290).save_pretrained(folder / "smaller")
    assert "it has 290 tokens, the model's own 300" in problems(tokenizer="smaller")


def test_other_merges_of_the_same_tokens_are_another_tokenizer(folder: Path) -> None:
    shutil.copytree(folder / "model", folder / "other")
    saved = json.loads((folder / "other" / "tokenizer.json").read_text())
    saved["model"]["merges"].reverse()
    (folder / "other" / "tokenizer.json").write_text(json.dumps(saved))
    assert "both have the same 300 tokens, but they differ in model" in problems(tokenizer="other")


def test_the_same_tokenizer_by_another_name_is_none_other(folder: Path) -> None:
    """However the file is written, and whatever it says of padding."""
    own = AutoTokenizer.from_pretrained(folder / "model")
    own.pad_token = own.eos_token
    own.save_pretrained(folder / "copy")
    saved = json.loads((folder / "copy" / "tokenizer.json").read_text())
    saved["truncation"] = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
    (folder / "copy" / "tokenizer.json").write_text(json.dumps(saved, indent=1))
    verify(document(content(tokenizer="copy")), purpose=Purpose.TRAIN)


def test_an_exported_byte_model_keeps_its_byte_tokenizer(folder: Path) -> None:
    for name, file in tokenizers.ByteTokenizer().files().items():
        (folder / "model" / name).write_bytes(file)
    verify(document(content(tokenizer="bytes")), purpose=Purpose.TRAIN)


def test_retokenize_takes_any_tokenizer_that_the_vocabulary_has_room_for(folder: Path) -> None:
    run = prepared(folder, tokenizer="bytes", retokenize=True)
    assert Dataset.open(run.data).meta.tokenizer == "bytes"
    pretrained.tokenizer(size=310).save_pretrained(folder / "larger")
    assert "vocab_size is 300, but the data has 310" in problems(tokenizer="larger", retokenize=True)


def test_a_folder_without_a_tokenizer(folder: Path) -> None:
    (folder / "model" / "tokenizer.json").rename(folder / "tokenizer.json")
    assert "data.tokenizer: is not given, and model.path 'model' has no tokenizer; copy the model's own" in problems()
    plan, _ = verify(document(content(tokenizer="tokenizer.json")), purpose=Purpose.TRAIN)
    assert any("nothing shows that the data has the token ids" in warning.message for warning in plan.warnings)


def test_a_tokenizer_that_is_broken(folder: Path) -> None:
    (folder / "model" / "tokenizer.json").write_text("{")
    assert "model.path: model is not a tokenizer" in problems()


def header(path: Path, **changes: Any) -> None:
    """Write a safetensors file again, with other entries in its header."""
    content = path.read_bytes()
    stop = 8 + int.from_bytes(content[:8], "little")
    entries = json.loads(content[8:stop]) | changes
    written = json.dumps({name: entry for name, entry in entries.items() if entry is not None}).encode()
    path.write_bytes(len(written).to_bytes(8, "little") + written + content[stop:])


def test_weights_are_opened_before_they_are_called_sound(folder: Path) -> None:
    weights = folder / "model" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-100])
    assert (
        f"model.path: model/model.safetensors has {len(whole) - 100} bytes, but by its header {len(whole)}"
        in problems()
    )
    weights.write_bytes(whole[:50])
    assert "is no safetensors file, or is cut short (50 bytes)" in problems()
    weights.write_bytes(b"")
    assert "is no safetensors file, or is cut short (0 bytes)" in problems()
    weights.write_bytes((3).to_bytes(8, "little") + b"{]}")
    assert "is no safetensors file (" in problems()
    weights.write_bytes(whole)
    header(weights, **{"transformer.ln_f.bias": None})
    assert "model lacks 1 parameters of a gpt2 (transformer.ln_f.bias); give a causal" in problems()
    weights.write_bytes(whole)
    header(weights, **{"transformer.ln_f.bias": {"dtype": "F32", "shape": [2, 16], "data_offsets": [0, 128]}})
    assert "transformer.ln_f.bias has the shape [2, 16], but by config.json it has [32]" in problems()
    weights.unlink()
    assert "has no model.safetensors" in problems()
    weights.with_suffix(".bin").write_bytes(b"cos\nsystem\n")
    assert "has pickled weights" in problems()


def test_weights_in_several_files_and_of_a_base_model(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder / "model")
    (folder / "model" / "model.safetensors").unlink()
    model.save_pretrained(folder / "model", max_shard_size="20KB")
    parts_of_it = sorted((folder / "model").glob("model-*.safetensors"))
    assert len(parts_of_it) > 1
    verify(document(content()), purpose=Purpose.TRAIN)
    parts_of_it[1].unlink()
    assert f"has no '{parts_of_it[1].name}', which model.safetensors.index.json names" in problems()
    shutil.copytree(folder / "model", folder / "base", ignore=shutil.ignore_patterns("model*"))
    model.transformer.save_pretrained(folder / "base")
    verify(document(content(model={"path": "base"})), purpose=Purpose.TRAIN)


def test_formulas_have_a_tokenizer_of_their_own(folder: Path) -> None:
    sat = {"kind": "sat", "context": 30, "examples": 60, "held_out": 30, "variables": [3, 3]}
    with pytest.raises(RunFileError, match=r"data\.kind: that of satisfiability problems is not the tokenizer of the"):
        verify(document(content() | {"data": sat}), purpose=Purpose.TRAIN)
    verify(document(content() | {"data": sat | {"retokenize": True}}), purpose=Purpose.TRAIN)


def test_audits_that_judge_need_a_model_without_dropout(folder: Path) -> None:
    audited = content() | {"training": {"tokens": 100_000, "batch_size": 4, "tasks": "stateless", "audits": 0.1}}
    with pytest.raises(RunFileError) as caught:
        verify(document(audited), purpose=Purpose.TRAIN)
    assert "is given, but the model has dropout" in str(caught.value)
    (shown,) = re.findall(r"Set model\.config: ({.*?})", str(caught.value))
    dropout = yaml.safe_load(shown)
    assert dropout == {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    verify(document(audited | {"model": {"path": "model", "config": dropout}}), purpose=Purpose.TRAIN)


def test_config_beside_a_path_sets_dropout_alone(folder: Path) -> None:
    run = prepared(folder, model={"config": {"resid_pdrop": 0.0, "attn_pdrop": 0.3}})
    Ledger(run.ledger).close()
    after = json.loads((export_model(run).folder / "config.json").read_text())
    assert (after["resid_pdrop"], after["embd_pdrop"], after["attn_pdrop"]) == (0.0, 0.1, 0.3)
    assert "model.config: sets n_layer beside path = model" in problems(model={"config": {"n_layer": 3}})
