"""An edited run file: what may change in a run, and what is refused by name."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from barnraise.config.aliases import MOVED
from barnraise.config.changes import FREE_KEYS, FREE_SECTIONS, changes, kept
from barnraise.config.document import Document
from barnraise.config.load import build, dump, load
from barnraise.config.schema import RunFile
from barnraise.core.errors import RunFileError

CONTENT: dict[str, Any] = {
    "model": {"architecture": "gpt2", "config": {"hidden_size": 32, "num_layers": 2}},
    "data": {"kind": "text", "files": ["story.txt"], "context": 32},
    "training": {"learning_rate": 1e-5, "betas": [0.9, 0.99]},
    "workers": [{"name": "a"}],
}


def edited(**overrides: Any) -> RunFile:
    return load(CONTENT, {key.replace("__", "."): value for key, value in overrides.items()})


def test_the_free_keys_exist() -> None:
    """A key that is renamed must be renamed there."""
    for section, keys in FREE_KEYS.items():
        assert set(keys) <= type(getattr(edited(), section)).model_fields.keys()
    assert set(FREE_SECTIONS) <= RunFile.model_fields.keys()


def test_a_run_file_written_and_read_again_has_not_changed(tmp_path: Any) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(dump(edited()))
    before = json.loads(json.dumps(kept(edited())))
    assert changes(before, load(path)) == []


def test_allowed_edits_are_listed() -> None:
    before = kept(edited())
    after = edited(training__tokens=77, controller__port=4000, workers=[{"name": "b"}, {"name": "c"}])
    assert [str(change) for change in changes(before, after)] == [
        "controller.port was 0 and is 4000",
        "training.tokens was 2000000 and is 77",
    ]


def test_sections_about_seeing_a_run_may_change() -> None:
    after = edited(dashboard__port=9000, alerts__email_to=["host@example.org"], tracing__share=0.5)
    assert changes(kept(edited()), after) == []
    old = kept(edited()) | {"dashboard": {"port": 8000}, "alerts": {"webhook_file": "hook"}}
    assert changes(old, after) == [], "a ledger of before may have kept them"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("data.context", 64, "data.context was 32 and is 64"),
        ("model.config", {"hidden_size": 64}, "model.config was {'hidden_size': 32, 'num_layers': 2} and is"),
        ("aggregation.outer_optimizer", "adam", "aggregation.outer_optimizer was 'sgd' and is 'adam'"),
        ("aggregation.rule", "median", "aggregation.rule was 'auto' and is 'median'"),
        ("training.batch_size", 9, "training.batch_size was 8 and is 9"),
        ("run.seed", 1, "run.seed was 0 and is 1"),
    ],
)
def test_forbidden_edits_are_refused_by_name(key: str, value: Any, message: str) -> None:
    content = load(CONTENT).model_dump(mode="json")
    section, name = key.split(".")
    content[section][name] = value
    content["training"]["tokens"] = 5
    with pytest.raises(RunFileError) as refused:
        changes(kept(edited()), build(Document("run file", content)))
    assert message in str(refused.value)
    assert "training.tokens" not in str(refused.value)


def test_a_key_that_did_not_exist_then_had_its_default() -> None:
    before = kept(edited())
    del before["exchange"]["merge_lerp"], before["controller"]["lease"]
    assert changes(before, edited()) == []
    assert [change.key for change in changes(before, edited(controller__lease=9.0))] == ["lease"]
    with pytest.raises(RunFileError, match=r"exchange\.merge_lerp was None and is 0\.25"):
        changes(before, edited(exchange__merge_lerp=0.25))


def old_form(content: dict[str, Any]) -> dict[str, Any]:
    """Return the run file as an older barnraise kept it: under the keys' old names."""
    older = copy.deepcopy(content)
    for old, key in MOVED.items():
        (section, name), (former, spelling) = key.split("."), old.split(".")
        older[former][spelling] = older[section].pop(name)
    return {section: keys for section, keys in older.items() if keys}


def test_a_run_file_kept_by_an_older_barnraise_is_read() -> None:
    before = old_form(kept(edited()))
    assert "exchange" not in before
    assert before["training"]["aggregation_rule"] == "auto"
    assert changes(before, edited()) == []
    assert [str(change) for change in changes(before, edited(aggregation__buffer_size=3))] == [
        "aggregation.buffer_size was 'auto' and is 3"
    ]
    with pytest.raises(RunFileError, match=r"exchange\.compression was 'none' and is 'topk'"):
        changes(before, edited(training__compression="topk"))
