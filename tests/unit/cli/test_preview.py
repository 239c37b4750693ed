"""`barnraise data preview`, and the first example in `barnraise check`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.chats import CHATML, chat_tokenizer, unmarked

from barnraise.cli import main

TALK = [{"role": "user", "content": "Who raised it?"}, {"role": "assistant", "content": "Many hands."}]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    chat_tokenizer("byte-level", tmp_path / "coder")
    Path("talk.jsonl").write_text("".join(json.dumps({"messages": TALK, "n": n}) + "\n" for n in range(30)))
    Path("asked.jsonl").write_text(json.dumps({"prompt": "Who?", "completion": " Hands."}) + "\n")
    Path("said.jsonl").write_text(json.dumps({"text": "Many hands raised the barn."}) + "\n")
    Path("story.txt").write_text("Many hands raised the barn. " * 40)


def run_file(**data: Any) -> str:
    usual = {"kind": "chat", "files": ["talk.jsonl"], "tokenizer": "coder", "context": 48, "deduplicate": "none"}
    content = {
        "run": {"name": "talk"},
        "model": {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
        "data": usual | data,
        "training": {"tokens": 4000, "batch_size": 2, "local_steps": 2},
        "workers": [{"name": "ann"}],
    }
    Path("run.yaml").write_text(yaml.safe_dump(content))
    return "run.yaml"


def run(*arguments: str) -> int:
    try:
        return main.main(list(arguments))
    except SystemExit as ended:
        return int(ended.code or 0)


def test_preview_shows_the_rendered_examples_and_what_is_learnt(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("data", "preview", run_file(), "--examples", "2") == 0
    out = capsys.readouterr().out
    assert out.count("<|im_start|>assistant\n\u27e6Many hands.<|im_end|>\u27e7\n") == 2
    assert "1. talk.jsonl:1: " in out
    assert "Tokens between \u27e6 and \u27e7 are learnt. 2 examples shown." in out


def test_preview_lists_ids(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("data", "preview", run_file(), "--ids", "--examples", "1") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("      ")]
    assert [line[0] for line in lines] == [str(place) for place in range(len(lines))]
    assert lines[-2][2:] == ["learnt", "'<|im_end|>'"]


def test_preview_as_json_has_ids_and_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("data", "preview", run_file(train_on="all"), "--json") == 0
    found = json.loads(capsys.readouterr().out)["examples"]
    assert len(found) == 3
    assert len(found[0]["ids"]) == len(found[0]["learnt"]) == len(found[0]["tokens"])
    assert all(found[0]["learnt"])
    assert "".join(part["text"] for part in found[0]["parts"]).startswith("<|im_start|>user\nWho raised it?")


def test_preview_shows_prompts_texts_and_cuts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("data", "preview", run_file(kind="instruct", files=["asked.jsonl"])) == 0
    assert "<s>Who?\u27e6 Hands.</s>\u27e7" in capsys.readouterr().out
    assert run("data", "preview", run_file(kind="text", files=["said.jsonl"])) == 0
    assert "\u27e6Many hands raised the barn.</s>\u27e7" in capsys.readouterr().out
    assert run("data", "preview", run_file(kind="text", files=["story.txt"], tokenizer="bytes", context=16)) == 0
    assert "story.txt: 16 tokens, 16 of them learnt; 1,105 more do not fit into a row" in capsys.readouterr().out


def test_preview_of_formulas_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run.yaml").write_text(
        "run: {name: a}\nmodel: {architecture: gpt2}\ndata: {kind: sat}\ntraining: {tokens: 9}\n"
    )
    assert run("data", "preview", "run.yaml") != 0
    assert "data of the kind 'sat' has no examples in files" in capsys.readouterr().err


def test_check_shows_the_first_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", run_file()) == 0
    assert "\u27e6Many hands.<|im_end|>\u27e7" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "key", "message"),
    [
        ({"tokenizer": "bytes"}, "data.chat_template", "the tokenizer bytes has no chat template"),
        ({"chat_template": "none.jinja"}, "data.chat_template", "no chat template at none.jinja"),
        ({"chat_template": "bad.jinja"}, "data.chat_template", "the chat template is no Jinja template"),
        ({"chat_template": "odd.jinja"}, "data.files", "has no {% generation %} marks"),
        ({"chat_template": "strict.jinja"}, "data.files", "talk.jsonl:1: the chat template refuses it: no users here"),
    ],
)
def test_check_names_what_is_wrong_with_a_template(
    data: dict[str, Any], key: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.jinja").write_text("{% for %}")
    Path("odd.jinja").write_text(unmarked(CHATML) + "{{ messages | length }}")
    Path("strict.jinja").write_text("{{ raise_exception('no users here') }}")
    assert run("check", run_file(**data)) != 0
    error = capsys.readouterr().err
    assert key in error
    assert message in error
