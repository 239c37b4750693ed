"""Other spellings of keys: each means its key, and none can contradict it."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path as FilePath
from typing import Any

import pytest
import yaml

from barnraise.config import RunFile, load
from barnraise.config.aliases import ALIASES, EACH, Alias, canonical
from barnraise.config.keys import at, known_keys, written
from barnraise.config.problems import Path
from barnraise.config.section import Section
from barnraise.core.errors import RunFileError

BASE: dict[str, Any] = {"model": {"architecture": "gpt2"}, "data": {"kind": "text", "files": ["a"]}}
NAMES = [written(alias.spelling) for alias in ALIASES]
VALUE = 3


def value_of(key: Path) -> Any:
    """A value that the key may have, and that is not its default."""
    found = at(tuple(0 if part == EACH else part for part in key))
    for value in (VALUE, 0.25, "workers", "full", "topk", {"tau": VALUE}, {"clip": 3.0}, not found.get("default")):
        with suppress(RunFileError):
            if value_at(load(run_file(key, value=value)), key) != found.get("default"):
                return value
    raise AssertionError(f"no value for {written(key)}")


def run_file(*paths: Path, rule: str = "", value: Any = VALUE) -> dict[str, Any]:
    """A run file with `value` at each of `paths`; lists have one named worker or fault."""
    content = {**BASE, "workers": [{"name": "a"}], "faults": [{"at": 0.5, "join": {"name": "b"}}]}
    content["aggregation"] = {"rule": rule} if rule else {}
    for path in paths:
        target: Any = content
        for part in path[:-1]:
            target = target[0] if part == EACH else target.setdefault(part, {})
        target[path[-1]] = value
    return content


def value_at(loaded: RunFile, path: Path) -> object:
    value: Any = loaded
    for part in path:
        value = value[0] if part == EACH else getattr(value, str(part))
    return value.model_dump(exclude_unset=True) if isinstance(value, Section) else value


@pytest.mark.parametrize("alias", ALIASES, ids=NAMES)
def test_a_spelling_means_its_key(alias: Alias) -> None:
    value = value_of(alias.key)
    by_spelling = load(run_file(alias.spelling, rule=alias.rule, value=value))
    assert value_at(by_spelling, alias.key) == value
    assert by_spelling == load(run_file(alias.key, rule=alias.rule, value=value))


@pytest.mark.parametrize("alias", ALIASES, ids=NAMES)
def test_a_spelling_beside_its_key_is_refused(alias: Alias) -> None:
    with pytest.raises(RunFileError, match=r"is another spelling of .* is given too; keep one"):
        load(run_file(alias.spelling, alias.key, rule=alias.rule))


def test_two_spellings_of_one_key_are_refused() -> None:
    content = run_file(("training", "sync_window"), ("controller", "sync_window"))
    with pytest.raises(RunFileError, match=r"training\.sync_window: is another spelling of controller\.sync_window"):
        load(content)


@pytest.mark.parametrize("alias", ALIASES, ids=NAMES)
def test_a_spelling_is_no_key_itself(alias: Alias) -> None:
    section = tuple(0 if part == EACH else part for part in alias.spelling[:-1])
    assert alias.spelling[-1] not in known_keys(section)


def test_a_bad_value_is_reported_where_it_was_written() -> None:
    content = BASE | {"training": {"aggregation_rule": "krum", "krum_f": -1}}
    with pytest.raises(RunFileError, match=r"aggregation\.f \(here training\.krum_f\): is -1, but must be"):
        load(content)


@pytest.mark.parametrize("rule", ["mean", "bulyan", ["nnm", "bulyan"]])
def test_a_bound_of_another_rule_is_refused(rule: object) -> None:
    with pytest.raises(RunFileError, match=r"counts only with aggregation\.rule: krum.*write aggregation\.f instead"):
        load(BASE | {"training": {"aggregation_rule": rule, "krum_f": 1}})


@pytest.mark.parametrize("rule", ["multi_krum", ["nnm", "krum"]])
def test_a_bound_counts_for_the_rules_family(rule: object) -> None:
    assert load(BASE | {"training": {"aggregation_rule": rule, "krum_f": 1}}).aggregation.f == 1


def test_the_given_content_is_left_as_it_is() -> None:
    content = run_file(("workers", EACH, "memory"))
    before = repr(content)
    canonical(content)
    assert repr(content) == before


def test_an_override_may_be_another_spelling() -> None:
    assert load(BASE, {"training.gradient_clip_norm": 2}).training.gradient_clip == 2


@pytest.mark.parametrize("given", ["training.compression", "exchange.compression"])
@pytest.mark.parametrize("override", ["training.compression", "exchange.compression"])
def test_an_override_counts_instead_of_a_key_under_either_name(given: str, override: str) -> None:
    section, name = given.split(".")
    assert load(BASE | {section: {name: "topk"}}, {override: "fp16"}).exchange.compression == "fp16"


def test_a_bound_may_override_that_of_the_files_rule() -> None:
    assert load(BASE | {"aggregation": {"rule": "krum", "f": 1}}, {"training.krum_f": 2}).aggregation.f == 2
    with pytest.raises(RunFileError, match=r"counts only with aggregation\.rule: krum, but that is mean"):
        load(BASE | {"aggregation": {"rule": "mean"}}, {"training.krum_f": 2})


def test_both_names_of_a_key_are_refused_where_they_stand(tmp_path: FilePath) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(f"{yaml.safe_dump(BASE)}exchange: {{compression: topk}}\ntraining:\n  compression: fp16\n")
    expected = "run.yaml:9: training.compression: is another spelling of exchange.compression: exchange.compression is"
    with pytest.raises(RunFileError, match=re.escape(expected)):
        load(file)


@pytest.mark.parametrize("section", ["training", "workers", "faults", "controller", "exchange"])
@pytest.mark.parametrize("value", [5, "x", [1], [None], [[1]], {"join": 1}])
def test_sections_of_another_form_are_left_to_the_schema(section: str, value: object) -> None:
    canonical({section: value})
