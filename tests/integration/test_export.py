"""`export` of prepared runs: every form of each architecture gives the model and the tokenizer that were trained."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import pretrained
from tests.chats import chat_tokenizer, conversation
from transformers import AutoTokenizer

from barnraise.account.account import manifest
from barnraise.assembly.exporting import export_model
from barnraise.assembly.preparing import prepare
from barnraise.cli.export import tell
from barnraise.config.load import load
from barnraise.core.errors import DataError, ExportError, InputError, ModelError, StorageError, UnknownNameError
from barnraise.exports.gguf_file import ends_of
from barnraise.ledger import Checkpoints, Ledger, RunDirectory
from barnraise.models.vectors import digest
from barnraise.plan.purpose import SERVE
from barnraise.plan.resolve import resolve
from barnraise.verification.verify import verify

from ..campaigns import campaign

torch.set_num_threads(1)
ARCHITECTURES = ("gpt2", "gpt_neo", "llama", "qwen2")
SIZES = {"hidden_size": 64, "num_layers": 2, "num_heads": 4}
TEXT = {"kind": "text", "context": 32}
ADAPTER = {"adapter": {"rank": 4}}


def trained(folder: Path, model: dict[str, Any], data: dict[str, Any] | None = None, **training: Any) -> RunDirectory:
    """A run with a checkpoint of weights that are far from their start, as those of training."""
    (folder / "story.txt").write_text(pretrained.prose(3))
    content: dict[str, Any] = {
        "run": {"name": "barn"},
        "model": model,
        "data": data if data and "kind" in data else {**TEXT, "files": [str(folder / "story.txt")], **(data or {})},
        "training": {"tokens": 12_000, "batch_size": 4, "local_steps": 4, "auto_tune": False} | training,
    }
    plan = resolve(load(content), purpose=SERVE, nodes=2)
    run = RunDirectory.create("barn", folder)
    prepare(plan, run, lambda text: None)
    Ledger(run.ledger).close()
    checkpoints = Checkpoints(run.checkpoints)
    start = checkpoints.load_latest().checkpoint
    assert start is not None
    vector = start.tensors("parameters")["parameters"]
    vector += 0.1 * torch.randn(vector.shape, generator=torch.Generator().manual_seed(0))
    tensors = {"parameters": {"parameters": vector}}
    checkpoints.save(1, ledger_id=0, parameters_digest=digest(vector), state=b"", tensors=tensors)
    return run


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    pretrained.tokenizer().save_pretrained(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


def chats(folder: Path, template: str, context: int = 128) -> dict[str, Any]:
    """The part of a run file that trains on conversations, which `template` writes."""
    chat_tokenizer("byte-level", folder / "coder", template)
    chance = random.Random(1)
    lines = (json.dumps({"messages": conversation(chance)}) for _ in range(160))
    (folder / "talk.jsonl").write_text("\n".join(lines))
    return {
        "kind": "chat",
        "files": [str(folder / "talk.jsonl")],
        "tokenizer": str(folder / "coder"),
        "context": context,
        "deduplicate": "none",
        "held_out": 0.4,
        "skip_bad": 160,
    }


def ending(last: str, others: str = "<|im_end|>") -> str:
    """A chat template that ends the last answer of a conversation with another token than the answers before it."""
    return (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
        f"{{{{ '{last}' if loop.last else '{others}' }}}}"
        "{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )


NEEDS_SYSTEM = (
    "{% if messages[0].role != 'system' %}{{ raise_exception('a system message comes first') }}{% endif %}"
    + ending("<|im_end|>")
)


def scratch(name: str) -> dict[str, Any]:
    return {"architecture": name, "config": SIZES | ({} if name.startswith("gpt") else {"num_key_value_heads": 2})}


@pytest.mark.parametrize(
    ("name", "training"),
    [
        *(pytest.param(name, {}, id=f"{name}-full") for name in ARCHITECTURES),
        pytest.param("gpt2", ADAPTER, id="gpt2-adapters"),
        *(campaign(name, ADAPTER, id=f"{name}-adapters") for name in ARCHITECTURES if name != "gpt2"),
    ],
)
def test_ten_prompts_give_the_same_tokens(tmp_path: Path, tokenizer: Path, name: str, training: dict[str, Any]) -> None:
    run = trained(tmp_path, scratch(name), {"tokenizer": str(tokenizer)}, **training)
    forms = ["model", *(["adapter"] if training else []), *(["gguf"] if name != "gpt_neo" else [])]
    for form in forms:
        found = export_model(run, form=form, round_trip=True).checked
        assert found is not None
        assert (found.prompts, found.equal) == (10, 10), form
        assert found.spread < (0.01 if form == "gguf" else 1e-5)
    if name != "gpt_neo":
        found = export_model(run, tmp_path / "q8", form="gguf", kind="q8_0", round_trip=True).checked
        assert found is not None
        assert 0.001 < found.spread < 0.1
        assert {path.name for path in (tmp_path / "q8").iterdir()} == {"barn-Q8_0.gguf", "Modelfile", "README.md"}


def test_bytes_as_gguf(tmp_path: Path) -> None:
    found = export_model(trained(tmp_path, scratch("llama")), form="gguf", round_trip=True)
    assert found.checked is not None
    assert found.checked.equal == 10
    again = AutoTokenizer.from_pretrained(found.folder, gguf_file="barn-F16.gguf")
    assert again("hé")["input_ids"] == list("hé".encode())


def test_formulas_are_no_text(tmp_path: Path) -> None:
    sat = {"kind": "sat", "context": 30, "examples": 60, "held_out": 30, "variables": [3, 3]}
    run = trained(tmp_path, scratch("llama"), sat)
    found = export_model(run, round_trip=True).checked
    assert found is not None
    assert found.equal == found.prompts == 10


def test_the_card_tells_of_the_run(tmp_path: Path) -> None:
    pretrained.write(tmp_path / "base")
    (tmp_path / "base" / "README.md").write_text("---\nlicense: mit\n---\n")
    run = trained(tmp_path, {"path": str(tmp_path / "base")}, **ADAPTER)
    text = (export_model(run).folder / "README.md").read_text()
    assert "license: mit\nbase_model: base\n" in text
    assert f"SHA-256 {manifest(run).dataset.digest}" in text
    assert f"SHA-256 {manifest(run).exchange.frozen[0].blob.digest}" in text
    assert "A gpt2 with" in text
    assert f"barnraise verify {run.path.name}" in text
    assert str(tmp_path) not in text, "the host's folders stay private"
    card = (export_model(run, form="adapter").folder / "README.md").read_text()
    assert "PeftModel.from_pretrained" in card
    (run.model / "README.md").write_text("mine")
    export_model(run)
    assert (run.model / "README.md").read_text() == "mine"


def test_the_chat_template_has_a_file_of_its_own(tmp_path: Path, tokenizer: Path) -> None:
    config = json.loads((tokenizer / "tokenizer_config.json").read_text())
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    (tokenizer / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": template}))
    run = trained(tmp_path, scratch("llama"), {"tokenizer": str(tokenizer)})
    folder = export_model(run).folder
    assert (folder / "chat_template.jinja").read_text() == template
    talk = [{"role": "user", "content": "hi"}]
    assert AutoTokenizer.from_pretrained(folder).apply_chat_template(talk, tokenize=False) == "user: hi\n"
    gguf = export_model(run, form="gguf").folder
    assert AutoTokenizer.from_pretrained(gguf, gguf_file="barn-F16.gguf").chat_template == template
    modelfile = (gguf / "Modelfile").read_text()
    assert '{{ if eq .Role "user" }}user: {{ .Content }}\n{{ else' in modelfile
    assert 'PARAMETER stop "<|endoftext|>"' in modelfile
    assert not [finding for part in verify(run).parts if part.name == "model" for finding in part.findings]


@pytest.mark.parametrize(
    ("template", "context"),
    [(NEEDS_SYSTEM, 128), ("the" * 33 + ending("<|im_end|>"), 64)],
    ids=["a template that refuses a question alone", "prompts longer than the context has room for"],
)
def test_pieces_of_rows_are_compared_where_no_conversation_can_be(tmp_path: Path, template: str, context: int) -> None:
    run = trained(tmp_path, scratch("llama"), chats(tmp_path, template, context))
    warnings: list[str] = []
    found = export_model(run, round_trip=True, warn=warnings.append).checked
    assert found is not None
    assert found.equal == found.prompts == 10
    (warning,) = warnings
    assert warning.startswith("the round trip does not check the chat template: the template refuses a question")
    config = run.data / "tokenizer_config.json"
    other = json.dumps(json.loads(config.read_text()) | {"eos_token": "!"})
    config.write_text(other + " " * (config.stat().st_size - len(other)))
    with pytest.raises(ExportError, match="the exported tokenizer ends a text with token"):
        export_model(run, round_trip=True)


def test_a_round_trip_without_prompts_says_that_it_compares_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "odd.txt").write_text("\ufffd" * 20_000)
    run = trained(tmp_path, scratch("llama"), {"files": [str(tmp_path / "odd.txt")]})
    warnings: list[str] = []
    found = export_model(run, round_trip=True, warn=warnings.append)
    (warning,) = warnings
    assert warning.startswith("the round trip compares no tokens: no piece of the held-out rows has a text that leaves")
    tell(found, json=False)
    assert capsys.readouterr().out.endswith("round trip: no tokens were compared\n")
    tell(found, json=True)
    assert json.loads(capsys.readouterr().out)["logits_differ"] is None


@pytest.mark.parametrize(
    ("last", "file_ends", "lost"),
    [("</s>", ["</s>", "<|im_end|>"], []), ("<|im_start|>", ["</s>", "<|im_start|>"], ["<|im_end|>"])],
    ids=["eos and another", "two others"],
)
def test_gguf_with_several_ends_of_an_answer(tmp_path: Path, last: str, file_ends: list[str], lost: list[str]) -> None:
    run = trained(tmp_path, scratch("llama"), chats(tmp_path, ending(last)))
    warnings: list[str] = []
    found = export_model(run, form="gguf", round_trip=True, warn=warnings.append)
    assert found.checked is not None
    assert found.checked.prompts == 10
    ids = AutoTokenizer.from_pretrained(run.data).convert_tokens_to_ids
    assert ends_of(found.folder / "barn-F16.gguf")[0] == ids(file_ends)
    modelfile = (found.folder / "Modelfile").read_text()
    assert [line for line in modelfile.splitlines() if "stop" in line] == [
        f'PARAMETER stop "{token}"' for token in (*file_ends, *lost)
    ]
    assert [f"{', '.join(map(repr, lost))} are left out of the file" in text for text in warnings] == [True] * len(lost)


def test_the_types_and_names_that_there_are(tmp_path: Path) -> None:
    run = trained(tmp_path, scratch("gpt2"))
    for alias in ("hf", "merged"):
        assert export_model(run, form=alias).folder == run.model
    with pytest.raises(UnknownNameError, match="unknown form of an exported model 'ggufs'; did you mean 'gguf'"):
        export_model(run, form="ggufs")
    with pytest.raises(UnknownNameError, match="unknown type of a GGUF file 'q4_0'"):
        export_model(run, form="gguf", kind="q4_0")
    with pytest.raises(InputError, match="--type f16 is a type of a GGUF file, but the form is model; add --as gguf"):
        export_model(run, kind="f16")


def test_a_model_without_a_place_in_gguf_is_refused_before_anything_is_written(tmp_path: Path, tokenizer: Path) -> None:
    run = trained(tmp_path, scratch("gpt_neo"))
    with pytest.raises(ModelError, match=r"llama\.cpp itself has no gpt_neo"):
        export_model(run, form="gguf")
    whole = json.loads((tokenizer / "tokenizer.json").read_text())
    whole["normalizer"] = {"type": "Lowercase"}
    (tokenizer / "tokenizer.json").write_text(json.dumps(whole))
    run = trained(tmp_path, scratch("llama"), {"tokenizer": str(tokenizer)})
    with pytest.raises(DataError, match=r"llama\.cpp normalizes no text"):
        export_model(run, form="gguf")
    assert not (run.path / "gguf").exists()


def test_a_failed_round_trip_leaves_the_folder_as_it_was(tmp_path: Path, tokenizer: Path) -> None:
    """The tokenizer of the dataset is damaged behind the run's back: its rows were made by another."""
    run = trained(tmp_path, scratch("gpt2"), {"tokenizer": str(tokenizer)})
    export_model(run, round_trip=True)
    before = {path.name: path.read_bytes() for path in run.model.iterdir()}
    config = run.data / "tokenizer_config.json"
    other = json.dumps(json.loads(config.read_text()) | {"eos_token": "!"})
    config.write_text(other + " " * (config.stat().st_size - len(other)))
    with pytest.raises(ExportError, match="tokenizer ends a text with token 1, but the run trained with 0"):
        export_model(run, round_trip=True)
    assert {path.name: path.read_bytes() for path in run.model.iterdir()} == before
    assert not list(run.path.glob(".*partial"))


def test_a_disk_that_takes_nothing(tmp_path: Path) -> None:
    run = trained(tmp_path, scratch("gpt2"))
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"is a file, but a model is a folder: give another with --to FOLDER"):
        export_model(run, tmp_path / "file", form="gguf")
    with pytest.raises(StorageError, match=r"cannot be written .*; free some space or choose another folder"):
        export_model(run, tmp_path / "file" / "gguf", form="gguf")
