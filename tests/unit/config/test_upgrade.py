"""`check --upgrade` writes a run file with the present names of its keys: it is the same run file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from barnraise.cli import main
from barnraise.config.aliases import MOVED, canonical
from barnraise.config.document import parse
from barnraise.config.keys import at, json_schema
from barnraise.config.load import build
from barnraise.config.template import presets, render, short
from barnraise.config.upgrade import upgraded
from barnraise.core.errors import RunFileError
from barnraise.plan.names import names
from barnraise.plan.resolve import examine

ROOT = Path(__file__).parents[3]
SECTION, SECTIONS = re.compile(r"^(training|controller):", re.MULTILINE), ("'training'", "'controller'")
BASE = "model: {architecture: gpt2}\ndata: {kind: text, files: [a]}\n"
OLD = """\
# head
model: {architecture: gpt2}
data: {kind: text, files: [a]}  # data

# of the controller
controller:
  host: 1.2.3.4  # where

  # K
  # of nodes
  buffer_size: 4  # four
  max_staleness: 3
  min_staleness: 1

workers: [{name: a, memory: 2e9}, {name: b}]
training: {compression: topk,  # best
           # how much
           compression_ratio: 0.01,
           gradient_clip_norm: 3, aggregation_rule: [nnm,
              krum], krum_f: 1, tokens: 5000000}  # end

evaluation:
  by: controller
"""
NEW = """\
# head
model: {architecture: gpt2}
data: {kind: text, files: [a]}  # data

# of the controller
controller:
  host: 1.2.3.4  # where

aggregation:
  # K
  # of nodes
  buffer_size: 4  # four
  rule: [nnm, krum]
  f: 1

staleness:
  max: 3
  min: 1

workers: [{name: a, memory_bytes: 2e9}, {name: b}]
training: {gradient_clip: 3, tokens: 5000000}  # end

exchange:
  compression: topk  # best
  # how much
  compression_ratio: 0.01

evaluation:
  by: controller
"""


def sound(text: str) -> bool:
    try:
        build(parse(text))
    except RunFileError:
        return False
    return True


def written_here() -> Iterator[tuple[str, str]]:
    """(name, text) of every run file of the examples, the presets, the benchmarks and the tests."""
    for path in sorted((ROOT / "examples").glob("*.yaml")):
        text = path.read_text()
        yield path.name, text if "rules:" not in text else yaml.safe_dump(parse(text).content["run"])
    for path in sorted((ROOT / "benchmarks").rglob("*.yaml")):
        yield path.name, BASE + path.read_text()
    for name in presets():
        yield name, short(name)
        yield f"{name}, every key", render(name, names())
    for path in sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and SECTION.search(node.value):
                name = f"{path.relative_to(ROOT)}:{node.lineno}"
                yield from ((name, text) for text in (node.value, BASE + node.value) if sound(text))
            elif isinstance(node, ast.Dict) and any(ast.unparse(key) in SECTIONS for key in node.keys if key):
                try:
                    text = yaml.safe_dump(ast.literal_eval(node), sort_keys=False)
                except (ValueError, TypeError, yaml.YAMLError):
                    continue
                if sound(text):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", text


def same(text: str) -> str:
    """The upgraded text, which must load as the same run file and plan, and have no other spelling left."""
    found = upgraded(text)
    before, after = build(parse(text)), build(parse(found.text))
    assert after == before
    assert examine(after) == examine(before)
    assert not canonical(parse(found.text).content).spelled
    assert upgraded(found.text) == (found.text, True)
    if found.commented:
        assert sorted(re.findall("# .*", found.text)) == sorted(re.findall("# .*", text))
    return found.text


def test_every_run_file_here_stays_the_same() -> None:
    texts = dict(written_here())
    assert {"overview.yaml", "fleet-mixed.yaml", "attacks.yaml", "sparse.yaml"} <= texts.keys()
    old = [text for text in texts.values() if canonical(parse(text).content).spelled]
    assert len(old) > 10
    for text in old:
        same(text)


def test_keys_move_with_their_comments() -> None:
    assert upgraded(OLD) == (NEW, True)
    assert upgraded(OLD.replace("\n", "\r\n")).text == NEW
    assert upgraded(NEW) == (NEW, True)
    same(OLD)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("training: {audits: 0.1}  # looked at\n", "# looked at\ntrust: {audits: 0.1}\n"),
        ("training: {audits: 0.1}\ntrust: {scores: 0.2}\n", "trust: {scores: 0.2, audits: 0.1}\n"),
        ("training: {audits: 0.1}\ntrust:\n", "trust: {audits: 0.1}\n"),
        ("trust:\n  scores: 0.2\ntraining: {audits: 0.1}\n", "trust:\n  scores: 0.2\n  audits: 0.1\n"),
        ("training:\n    betas:\n    - 0.8\n    - 0.9\n    audits: 0.1\n", None),
        ("training:\n  aggregation_rule:\n  - nnm\n  - median\n", "aggregation:\n  rule:\n  - nnm\n  - median\n"),
        ("training:\n  compression: |-\n    topk\n\n  batch_size: 2\n", None),
        ("training:\n  # compression: fp16\n  compression: topk\n", None),
        ("training:\n  compression: topk\n  #batch_size: 8\n", None),
        ('controller: {"buffer_size": 3, gradient_clip_norm: 2}\n', None),
        ("training: {compression: topk, aggregation_options: {}, outer_options: {}}\n", None),
        ("training:\n  compression: &c topk\nrun: {name: *c}\n", None),
    ],
    ids=range(12),
)
def test_forms_of_sections(old: str, new: str | None) -> None:
    found = same(BASE + old)
    assert new is None or found == BASE + new


def test_comments_that_cannot_be_placed_are_dropped() -> None:
    text = '{model: {architecture: gpt2}, data: {kind: text, files: [a]}, # here\n "training": {"audits": 0.1}}'
    found = upgraded(text)
    assert not found.commented
    assert "here" not in found.text
    same(text)


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return values of a key, by its schema."""
    if "anyOf" in schema:
        return st.one_of([values(option) for option in schema["anyOf"]])
    if "x-names" in schema:
        return st.sampled_from(names()[schema["x-names"]])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum", [schema.get("const")]))
    low, above = schema.get("minimum", schema.get("exclusiveMinimum", 0)), "exclusiveMinimum" in schema
    match schema.get("type"):
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(low + above, low + 5)
        case "number":
            high = schema.get("maximum", schema.get("exclusiveMaximum", low + 10))
            return st.floats(low, high, exclude_min=above, exclude_max="exclusiveMaximum" in schema)
        case "array":
            return st.lists(values(schema["items"]), min_size=1, max_size=2)
    return st.none() if schema.get("type") == "null" else st.just({})


def pairs() -> st.SearchStrategy[list[tuple[str, str, Any]]]:
    """Draw (section, name, value) of a few keys under their old or their present names, each key once."""
    keys = st.lists(st.tuples(st.sampled_from(sorted(MOVED.items())), st.booleans()), unique_by=lambda pair: pair[0])
    fixed = st.lists(st.sampled_from(["training.batch_size", "controller.lease", "training.pace"]), unique=True)

    @st.composite
    def drawn(draw: st.DrawFn) -> list[tuple[str, str, Any]]:
        chosen = [(old if former else key, key) for (old, key), former in draw(keys)]
        chosen += [(key, key) for key in draw(fixed)]
        found = []
        for name, key in draw(st.permutations(chosen)):
            section, own = name.split(".")
            found.append((section, own, draw(values(at(tuple(key.split(".")))))))
        return found

    return drawn()


def flow(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...")


@st.composite
def run_files(draw: st.DrawFn) -> str:
    """Draw the text of a run file, with sections in either form and comments in between."""
    lines = draw(st.permutations(BASE.splitlines()))
    sections: dict[str, list[tuple[str, Any]]] = {}
    for section, name, value in draw(pairs()):
        sections.setdefault(section, []).append((name, value))
    for section, keys in draw(st.permutations(list(sections.items()))):
        notes = draw(st.lists(st.sampled_from(["", "  # a note"]), min_size=len(keys), max_size=len(keys)))
        above = draw(st.lists(st.sampled_from([(), ("# above",), ("",)]), min_size=len(keys), max_size=len(keys)))
        head = draw(st.sampled_from(["", "  # of all"]))
        lines = [*lines, *draw(st.sampled_from([(), ("",), ("# heading",)]))]
        if draw(st.booleans()):
            inner = ", ".join(f"{name}: {flow(value)}" for name, value in keys)
            lines = [*lines, f"{section}: {{{inner}}}{head}"]
            continue
        indent = draw(st.sampled_from(["  ", "    "]))
        lines = [*lines, f"{section}:{head}"]
        for (name, value), note, before in zip(keys, notes, above, strict=True):
            lines = [*lines, *(f"{indent}{line}" if line else line for line in before)]
            lines = [*lines, f"{indent}{name}: {flow(value)}{note}"]
    return "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n"]))


@given(run_files())
def test_any_run_file_stays_the_same(text: str) -> None:
    same(text)
    assert upgraded(text).commented


def test_every_section_is_tried() -> None:
    assert {key.partition(".")[0] for key in MOVED.values()} <= json_schema()["properties"].keys()


def test_check_prints_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.yaml").write_text(OLD)
    with pytest.raises(SystemExit) as ended:
        main.main(["check", "run.yaml", "--upgrade"])
    assert ended.value.code == 0
    assert capsys.readouterr() == (NEW, "")
    Path("run.yaml").write_text(OLD.replace("tokens", "tokns"))
    assert main.main(["check", "run.yaml", "--upgrade"]) == 2
    assert "did you mean 'tokens'?" in capsys.readouterr().err
