"""Reading run files: what is accepted, and what is said of everything else."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.config import RunFile, document, dump, load, parse_value, template
from barnraise.config.keys import json_schema, sections
from barnraise.core.errors import RunFileError, UnknownNameError
from barnraise.plan.names import names

MINIMAL: dict[str, Any] = {"model": {"architecture": "gpt2"}, "data": {"kind": "text", "files": ["a.txt"]}}

OVERVIEW = """
controller: {use_async_training: true, max_staleness: 50, adaptive_staleness: true, use_zmq: true}
training: {compression: topk, compression_ratio: 0.01, aggregation_rule: bulyan, bulyan_f: 2}
"""

DESIGN = """
run: {name: sat-neo, seed: 0, dir: runs}
model: {architecture: gpt_neo, config: {hidden_size: 128, num_layers: 4, num_heads: 4}}
data: {kind: text, files: ["src/**/*.py"], tokenizer: bytes, context: 128, held_out: 0.05}
controller: {use_async_training: true, max_staleness: 50, adaptive_staleness: true, min_staleness: 5,
             max_staleness_multiplier: 10, use_zmq: true, host: 127.0.0.1, port: 0, buffer_size: auto}
workers: [{name: fast, speed: 2.0}, {name: slow, speed: 0.3, device: cpu}]
training: {tokens: 2000000, batch_size: 8, local_steps: 20, learning_rate: 0.001, inner_optimizer: adamw,
           outer_optimizer: sgd, outer_learning_rate: 1.0,
           compression: topk, compression_ratio: 0.01, aggregation_rule: trimmed_mean, trim_ratio: 0.3}
network: {profile: cellular}
faults: [{at: 0.5, kill: slow}, {at: 0.5, join: {name: new, speed: 1.0}}]
"""


def with_keys(section: str, **keys: Any) -> dict[str, Any]:
    return MINIMAL | {section: MINIMAL.get(section, {}) | keys}


def problems(source: Any, **overrides: Any) -> list[tuple[str, str]]:
    """(key, message) of every problem of a run file that must have some."""
    with pytest.raises(RunFileError) as caught:
        load(source, overrides)
    return [(problem.key, problem.message) for problem in caught.value.problems]


def written(tmp_path: Path, text: str | bytes) -> Path:
    file = tmp_path / "run.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def refusal_of(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(RunFileError) as caught:
        load(written(tmp_path, text))
    return str(caught.value)


def test_every_key_of_the_design_is_read(tmp_path: Path) -> None:
    run_file = load(written(tmp_path, DESIGN))
    assert run_file.run.name == "sat-neo"
    assert run_file.staleness.max_multiplier == 10.0
    assert [worker.speed for worker in run_file.workers] == [2.0, 0.3]
    assert run_file.faults[1].join is not None
    assert run_file.faults[1].join.name == "new"


def test_the_overview_runs_verbatim(tmp_path: Path) -> None:
    rest = 'model: {architecture: gpt_neo}\ndata: {kind: text, files: ["a.txt"]}\n'
    run_file = load(written(tmp_path, OVERVIEW + rest))
    assert (run_file.aggregation.rule, run_file.aggregation.f) == ("bulyan", 2)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2_000_000", 2_000_000),
        ("2e6", 2_000_000),
        ("1.5e3", 1500.0),
        ("1e-3", 0.001),
        ("-.5", -0.5),
        ("0x10", 16),
        ("007", "007"),
        ("12:30", "12:30"),
        ("no", "no"),
        ("2026-11-21", "2026-11-21"),
        ("true", True),
        ("~", None),
        ("", None),
        ("'1'", "1"),
        ("[1, a, {b: 2.0}]", [1, "a", {"b": 2.0}]),
    ],
)
def test_scalars(text: str, value: object) -> None:
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


def test_numbers_fit_the_key() -> None:
    run_file = load(with_keys("training", tokens=2e6, learning_rate=1))
    assert (run_file.training.tokens, run_file.training.learning_rate) == (2_000_000, 1.0)
    assert type(run_file.training.tokens) is int


@pytest.mark.parametrize(
    ("given", "found"), [(2, 2), (2.0, 2), (0, 0), (0.0, 0), (0.2, 0.2), (0.4999, 0.4999), (None, None)]
)
def test_attackers_are_a_whole_number_or_a_share(given: float | None, found: float | None) -> None:
    read = load(with_keys("aggregation", f=given)).aggregation.f
    assert (read, type(read)) == (found, type(found))


@pytest.mark.parametrize("given", [0.5, 1.5, -0.1, -1, 1_000_001, "0.2", True, float("nan"), float("inf")])
def test_attackers_that_are_neither_are_refused(given: object) -> None:
    expected = "must be a whole number from 0 to 1000000, or a share from 0 to below 0.5"
    with pytest.raises(RunFileError, match=f"aggregation.f: is .*, but {expected}"):
        load(with_keys("aggregation", f=given))


def test_the_name_of_an_attack_is_no_section() -> None:
    workers = [{"name": "eve", "attack": "sign_flip"}]
    with pytest.raises(RunFileError, match=r"workers\[0\].attack: is 'sign_flip' .*; write \{kind: sign_flip\}"):
        load(MINIMAL | {"workers": workers})


def test_an_empty_section_has_its_defaults(tmp_path: Path) -> None:
    text = 'model: {architecture: gpt2}\ndata: {kind: text, files: ["a"]}\ntraining:\nworkers:\n'
    assert load(written(tmp_path, text)) == load({"model": MINIMAL["model"], "data": {"kind": "text", "files": ["a"]}})


def test_overrides_count_instead_of_the_file() -> None:
    run_file = load(MINIMAL | {"training": {"tokens": 5000}}, {"training.tokens": 70, "run.name": "other"})
    assert (run_file.training.tokens, run_file.run.name) == (70, "other")


def test_overrides_are_checked() -> None:
    assert problems(MINIMAL, **{"training.tokns": 1}) == [("training.tokns", "unknown key; did you mean 'tokens'?")]


@pytest.mark.parametrize("text", [DESIGN, OVERVIEW + DESIGN[: DESIGN.index("controller")]])
def test_dump_gives_the_same_run_file_back(tmp_path: Path, text: str) -> None:
    run_file = load(written(tmp_path, text))
    assert load(written(tmp_path, dump(run_file))) == run_file


@pytest.mark.parametrize(
    ("section", "keys", "key", "message"),
    [
        (
            "training",
            {"compresion_ratio": 1},
            "compresion_ratio",
            "unknown key; did you mean 'exchange.compression_ratio'?",
        ),
        ("training", {"max_staleness": 1}, "max_staleness", "unknown key here; it is staleness.max"),
        ("aggregation", {"aggregation_rule": 1}, "aggregation_rule", "unknown key here; it is aggregation.rule"),
        ("exchange", {"compresion": 1}, "compresion", "unknown key; did you mean 'compression'?"),
        ("trust", {"buffer_size": 1}, "buffer_size", "unknown key here; it belongs under aggregation"),
        ("controller", {"gradient_clip": 1}, "gradient_clip", "unknown key here; it belongs under training"),
        (
            "controller",
            {"learning_rat": 1},
            "learning_rat",
            "unknown key; did you mean 'learning_rate' under training?",
        ),
        ("run", {"qqq": 1}, "qqq", "unknown key; known here: name, seed, dir"),
        ("training", {"bulyanf": 1}, "bulyanf", "unknown key; did you mean 'aggregation.f'?"),
        ("training", {"tokens": 0}, "tokens", "is 0, but must be a whole number at least 1"),
        ("training", {"tokens": 1.5}, "tokens", "is 1.5, but must be a whole number at least 1"),
        (
            "training",
            {"tokens": 1e26},
            "tokens",
            "is 1e+26, but must be a whole number at least 1 and at most 9.01e+15 (2^53)",
        ),
        (
            "training",
            {"tokens": float("inf")},
            "tokens",
            "is inf, but must be a whole number at least 1 and at most 9.01e+15 (2^53)",
        ),
        (
            "training",
            {"batch_size": "yes"},
            "batch_size",
            "is 'yes' (text), but must be a whole number from 1 to 1048576 or auto",
        ),
        ("exchange", {"overlap": "y"}, "overlap", "is 'y' (text), but must be true or false; write true"),
        (
            "training",
            {"gradient_accumulation_steps": 4},
            "gradient_accumulation_steps",
            "unknown key; it is a key of HF Trainer; there is no such key here: multiply training.batch_size by it; a "
            "node splits a batch to fit its memory by itself",
        ),
        (
            "training",
            {"per_device_train_batchsize": 4},
            "per_device_train_batchsize",
            "unknown key; 'per_device_train_batch_size' is a key of HF Trainer; here it is training.batch_size: rows a "
            "step of one node",
        ),
        ("data", {"max_seq_length": 4}, "max_seq_length", "unknown key; it is a key of TRL; here it is data.context"),
        ("training", {"tokens": True}, "tokens", "is true, but must be a whole number at least 1"),
        ("training", {"learning_rate": "fast"}, "learning_rate", "is 'fast' (text), but must be a number above 0"),
        (
            "training",
            {"learning_rate": "0.1"},
            "learning_rate",
            "is '0.1' (text), but must be a number above 0; write it without quotes",
        ),
        ("training", {"learning_rate": float("nan")}, "learning_rate", "is nan, but must be a number above 0"),
        ("training", {"learning_rate": float("inf")}, "learning_rate", "is inf, but must be a number above 0"),
        (
            "aggregation",
            {"trim_ratio": 0.5},
            "trim_ratio",
            "is 0.5, but must be a number above 0 and below 0.5 or null",
        ),
        ("training", {"betas": [0.9]}, "betas[1]", "is missing; give a number at least 0 and below 1"),
        (
            "training",
            {"betas": 3},
            "betas",
            "is 3, but must be a list of 2 values, each a number at least 0 and below 1",
        ),
        (
            "training",
            {"pace": "matchd"},
            "pace",
            "is 'matchd' (text), but must be fixed, matched or literal; did you mean 'matched'?",
        ),
        ("training", {"schedule": 5}, "schedule", "is 5, but must be the name of a schedule; write it in quotes"),
        (
            "aggregation",
            {"rule": ["krum", 5]},
            "rule[1]",
            "is 5, but must be the name of an aggregation rule; write it in quotes",
        ),
        (
            "aggregation",
            {"rule": {}},
            "rule",
            "is a section of 0 keys, but must be auto or the name of an aggregation rule or a list",
        ),
        ("controller", {"use_zmq": "yes"}, "use_zmq", "is 'yes' (text), but must be true or false; write true"),
        ("aggregation", {"buffer_size": "many"}, "buffer_size", "must be a whole number from 1 to 1000000 or auto"),
        (
            "aggregation",
            {"buffer_size": 0},
            "buffer_size",
            "is 0, but must be a whole number from 1 to 1000000 or auto",
        ),
        ("controller", {"port": 70000}, "port", "is 70000, but must be a whole number from 0 to 65535"),
        ("controller", {"host": None}, "host", "is null, but must be text"),
        ("run", {"name": "a/b"}, "name", "is 'a/b' (text), but must be a name of up to 64 letters"),
        ("data", {"files": "a.txt"}, "files", "is 'a.txt' (text), but must be a list, each text"),
        (
            "data",
            {"mixture": [{"files": []}]},
            "mixture[0].files",
            "is [] (a list), but must be a list with at least one",
        ),
        ("data", {"held_out": 0.9}, "held_out", "is 0.9, but must be a number above 0 and at most 0.5, or a section"),
        ("data", {"held_out": {"flies": ["a"]}}, "held_out.flies", "unknown key; did you mean 'files'?"),
        ("data", {"fields": {"txt": "body"}}, "fields.txt", "unknown key; did you mean 'text'?"),
        ("data", {"train_on": "all"}, "train_on", "unknown key for kind: text; chat and instruct have it"),
        (
            "data",
            {"kind": "txt"},
            "kind",
            "is 'txt' (text), but must be chat or instruct or rows or sat or site or text; did you mean 'text'?",
        ),
        ("data", {"filles": ["b"]}, "filles", "unknown key; did you mean 'files'?"),
    ],
)
def test_each_invalid_value_is_reported_under_its_key(
    section: str, keys: dict[str, Any], key: str, message: str
) -> None:
    found = problems(with_keys(section, **keys))
    assert [name for name, _ in found] == [f"{section}.{key}"]
    assert message in found[0][1]


def test_a_missing_key_says_what_to_give() -> None:
    found = dict(problems({"model": {}, "data": {"kind": "text", "mixture": [{}]}, "workers": [{"speed": 1}]}))
    expected = "is missing; give a list with at least one entry, each text: files, folders"
    assert found["data.mixture[0].files"].startswith(expected)
    assert found["workers[0].name"].startswith("is missing; give a name")


def test_a_misspelled_required_key_is_one_problem() -> None:
    assert problems(MINIMAL | {"workers": [{"nme": "a"}]}) == [("workers[0].nme", "unknown key; did you mean 'name'?")]


def test_missing_sections_are_named() -> None:
    assert [key for key, _ in problems({"run": {}})] == ["model", "data"]


def test_a_data_section_without_kind() -> None:
    assert problems({"model": {}, "data": {"files": ["a"]}}) == [
        ("data.kind", "is missing; it must be chat or instruct or rows or sat or site or text"),
    ]


def test_all_problems_come_at_once_with_their_lines(tmp_path: Path) -> None:
    text = "model: {architecture: gpt2}\ndata:\n  kind: text\n  files: [a]\n  context: 1\ntraining:\n  tokns: 1\n"
    message = refusal_of(tmp_path, text)
    assert message.splitlines()[0].endswith("run.yaml has 2 problems:")
    assert "  line 5: data.context: is 1, but" in message
    assert "  line 7: training.tokns: unknown key; did you mean 'tokens'?" in message


def test_many_problems_stay_on_one_screen() -> None:
    keys = {f"key{index:02}": 1 for index in range(40)}
    with pytest.raises(RunFileError) as caught:
        load(MINIMAL | {"training": keys})
    assert len(str(caught.value).splitlines()) < 24
    assert "and 25 more" in str(caught.value)
    assert len(caught.value.problems) == 40


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; `barnraise init` writes"),
        ("# nothing\n", "is empty"),
        ("- a\n- b\n", "must hold sections such as `model:`"),
        ("model: {a: 1}\nmodel: {b: 2}\n", "run.yaml:2: model: given twice, first on line 1; keep one"),
        ("run: {name: a, name: b}\n", "run.name: given twice"),
        ("run:\n\tname: a\n", "run.yaml:2: not YAML: found character '\\t' that cannot start any token"),
        ("run: {name: a\n", "not YAML: "),
        ("run: !!python/object/apply:os.getcwd []\n", "the tag tag:yaml.org,2002:python/object/apply:os.getcwd is not"),
        ("run: {seed: !!int 'x'}", "run.yaml:1: run.seed: the tag"),
        ("run: {? [a] : 1}\n", "a key must be a plain word"),
        ("a: 1\n---\nb: 2\n", "not YAML: but found another document"),
        (b"run: \xff\n", "byte 0xff is not UTF-8 text"),
        (b"run: \x00\n", "not YAML: "),
        ("run: {seed: !!bool 'x'}", "run.yaml:1: run.seed: the tag"),
        ("a: " + "[" * 60 + "]" * 60, "more than 40 levels"),
        ("a: " + "[" * 600, "not YAML: too deeply nested"),
        ("a: &a [1,2,3]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n", "unknown key"),
        ("x" * 300_000, "more than 262144 bytes"),
    ],
    ids=range(18),
)
def test_text_that_is_no_run_file_is_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert message in refusal_of(tmp_path, text)


def test_deep_nesting_is_refused_whatever_the_recursion_limit_is(tmp_path: Path) -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)  # compilers raise it
    try:
        assert "not YAML: too deeply nested" in refusal_of(tmp_path, "a: " + "[" * 600)
    finally:
        sys.setrecursionlimit(before)


def test_references_do_not_multiply(tmp_path: Path) -> None:
    levels = [f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 9)}]" for level in range(1, 30)]
    assert "more than 20000 values" in refusal_of(tmp_path, "\n".join(["l0: &l0 [1]", *levels]))


def test_a_reference_to_itself(tmp_path: Path) -> None:
    assert "more than 40 levels" in refusal_of(tmp_path, "a: &a [*a]\n")


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    written(tmp_path, "run: {}\n")
    with pytest.raises(RunFileError, match=r"did you mean .*run\.yaml\?"):
        load(tmp_path / "rum.yaml")
    with pytest.raises(RunFileError, match=r"holds run\.yaml"):
        load(tmp_path / "something-else.yaml")
    with pytest.raises(RunFileError, match="there is no folder"):
        load(tmp_path / "nowhere" / "run.yaml")


def test_a_folder_is_no_run_file(tmp_path: Path) -> None:
    with pytest.raises(RunFileError, match="is a folder; give the run file in it"):
        load(tmp_path)


def test_an_endless_file_is_refused() -> None:
    with pytest.raises(RunFileError, match="too many for a run file"):
        load("/dev/zero")


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with suppress(RunFileError):
        assert isinstance(document.parse(content).content, dict)


def loaded(content: dict[str, Any]) -> RunFile | RunFileError:
    try:
        return load(content)
    except RunFileError as error:
        return error


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "at", "join", "x"]), inner),
    max_leaves=6,
)


@given(st.data())
def test_any_values_are_read_or_refused(data: st.DataObject) -> None:
    """Any values behind the known keys give a run file, or problems with a place."""
    content: dict[str, Any] = dict(MINIMAL)
    for section in data.draw(st.sets(st.sampled_from(list(RunFile.model_fields)), max_size=3)):
        known = sorted(json_schema()["$defs"].get(section.capitalize(), {}).get("properties", {"name": None}))
        keys = data.draw(st.dictionaries(st.sampled_from([*known, "zzz"]), VALUES, max_size=3))
        content[section] = data.draw(st.just(keys) | st.just([keys]) | VALUES)
    found = loaded(content)
    if isinstance(found, RunFileError):
        assert found.problems
        assert all(problem.path for problem in found.problems)
    else:
        assert dump(load(document.parse(dump(found)).content)) == dump(found)


@pytest.mark.parametrize("name", template.presets())
def test_a_template_is_its_preset(tmp_path: Path, name: str) -> None:
    assert load(written(tmp_path, template.render(name, names()))) == load(template.preset(name))


@pytest.mark.parametrize("name", template.presets())
def test_every_commented_key_of_a_template_is_a_default(tmp_path: Path, name: str) -> None:
    lines = template.render(name, names()).splitlines()
    active = [
        line.replace("#", "", 1) if line.lstrip().startswith("#") and "# " not in line else line for line in lines
    ]
    assert sum(line != other for line, other in zip(lines, active, strict=True)) > 40
    assert load(written(tmp_path, "\n".join(active))) == load(template.preset(name))


def test_an_unknown_preset() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'text'"):
        template.render("texts", {})


def test_every_key_has_a_meaning() -> None:
    for heading, _, description, keys in sections():
        assert description, heading
        assert all(key.description.endswith((".", "`.")) for key in keys), heading
