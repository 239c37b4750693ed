"""The measurer: metrics by name and by function, samples, and what fails."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from barnraise.controller.tensors.evaluator import Evaluator
from barnraise.controller.tensors.measurer import LONGEST_PROMPT, LONGEST_REASON, MOST_FIGURES, Measurer
from barnraise.controller.tensors.time_limit import TookTooLongError, within
from barnraise.core.errors import OptionError
from barnraise.data import text
from barnraise.data.questions import QUESTIONS, Questions, encoded, prompts_of
from barnraise.data.sat import dataset as sat
from barnraise.data.sat.options import SatOptions
from barnraise.data.sat.tokenizer import SatTokenizer
from barnraise.data.shards import Dataset
from barnraise.data.tokenizers import ByteTokenizer
from barnraise.models import chance
from barnraise.models.config import describe
from barnraise.models.exchange.record import Exchange
from barnraise.training.metrics import callables
from barnraise.training.metrics.catalog import Wanted
from barnraise.training.metrics.generation import Stopped
from barnraise.training.metrics.texts import answer_of

MODULE = """
import sys
seen = []
def rows(module, rows, tokenizer):
    seen.append(module.training)
    module.train()
    return {"rows": len(rows), "letters": len(tokenizer.decode(rows["tokens"][0].tolist()))}
def one(module, rows, tokenizer):
    return rows["tokens"].mean() * 0 + 2.5
def raises(module, rows, tokenizer):
    raise KeyError("x" * 1000 + "\\x1b")
def leaves(module, rows, tokenizer):
    sys.exit(3)
def loss(module, rows, tokenizer):
    return 99.0
def nan(module, rows, tokenizer):
    return {"good": 1.0, "bad": float("nan"), "worse": float("inf")}
def many(module, rows, tokenizer):
    return {str(n): n for n in range(1000)}
def text(module, rows, tokenizer):
    return "high"
value = 3
calls = []
def endless(module, rows, tokenizer):
    import threading
    calls.append(1)
    threading.Event().wait(60)
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = "own_metrics"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    yield name
    sys.modules.pop(name, None)


def measurer(
    folder: Path, *metrics: str, samples: int = 0, prompts: tuple[str, ...] = (), seconds: float = 60.0
) -> tuple[Measurer, Any]:
    (folder / "corpus.txt").write_text("the barn is raised by many hands.\n" * 200)
    run = folder / "runs" / "one" / "data"
    run.parent.mkdir(parents=True)
    beside = {QUESTIONS: encoded(prompts_of(prompts, ByteTokenizer(), 32))} if prompts else {}
    text.build(run, [folder / "corpus.txt"], context=32, beside=beside)
    dataset = Dataset.open(run)
    section = {"architecture": "gpt2", "config": {"n_embd": 8, "n_layer": 1, "n_head": 1}}
    config = describe(section, dataset.meta.vocab_size, 32, bos_id=None, eos_id=256, pad_id=257)
    exchange = Exchange.of(config)
    found = Measurer(Evaluator(config, exchange, dataset, 5), Wanted(metrics, samples, 10, seconds))
    found.build()
    return found, found.enter(torch.full((exchange.exchanged,), 0.01))


def test_a_function_gets_the_module_rows_and_tokenizer(functions: str, tmp_path: Path) -> None:
    found, module = measurer(tmp_path, f"{functions}:rows", f"{functions}:one")
    findings = found.measure(module)
    assert findings.values == {"rows": 5.0, "letters": 32.0, "one": 2.5}
    assert not findings.failures
    found.measure(module)
    assert sys.modules[functions].seen == [False, False], "it is in evaluation mode, also after a function changed that"


def test_a_metric_that_fails_is_told_once_and_the_others_are_measured(functions: str, tmp_path: Path) -> None:
    names = [f"{functions}:{name}" for name in ("raises", "leaves", "nan", "many", "text", "one", "value", "missing")]
    found, module = measurer(tmp_path, *names, "exact_match")
    findings = found.measure(module)
    assert findings.values == {"one": 2.5, "good": 1.0}
    assert set(findings.failures) == {*names, "exact_match"} - {f"{functions}:one"}
    for name, words in {
        "raises": "KeyError",
        "leaves": "SystemExit: 3",
        "nan": "bad is nan, worse is inf; figures must be finite",
        "many": f"1000 figures, but a metric may have {MOST_FIGURES}",
        "text": "ValueError",
        "value": "is a int; name a function of (module, rows, tokenizer)",
        "missing": "cannot be imported",
    }.items():
        why = findings.failures[f"{functions}:{name}"]
        assert words in why
        assert len(why) <= LONGEST_REASON
        assert why.isprintable()
    assert "made without questions" in findings.failures["exact_match"]
    again = found.measure(module)
    assert not again.failures
    assert again.values["one"] == 2.5


def test_two_metrics_of_one_name_are_told_apart(functions: str, tmp_path: Path) -> None:
    other = "other_metrics"
    (tmp_path / f"{other}.py").write_text("def one(module, rows, tokenizer):\n    return 1.0\n")
    found, module = measurer(tmp_path, f"{functions}:one", f"{other}:one")
    findings = found.measure(module)
    assert findings.values == {"one": 2.5}
    assert "one is also a figure of another metric" in findings.failures[f"{other}:one"]


def test_a_function_has_no_figure_of_every_version(functions: str, tmp_path: Path) -> None:
    found, module = measurer(tmp_path, f"{functions}:loss")
    findings = found.measure(module)
    assert findings.values == {}
    assert "loss is also a figure of another metric" in findings.failures[f"{functions}:loss"]


def test_samples_begin_with_held_out_text_or_the_prompts_given(tmp_path: Path) -> None:
    found, module = measurer(tmp_path, samples=3)
    samples = found.measure(module).samples
    assert len(samples) == 3
    assert all(len(sample.prompt) == 16 for sample in samples), "half of a short row"
    (tmp_path / "other").mkdir()
    found, module = measurer(tmp_path / "other", samples=2, prompts=("the barn", "hands"))
    assert [sample.prompt for sample in found.measure(module).samples] == ["the barn", "hands"]
    assert all(len(sample.text) <= 10 for sample in found.measure(module).samples)


def test_a_long_prompt_is_cut_at_its_beginning(tmp_path: Path) -> None:
    found, module = measurer(tmp_path, samples=1)
    stops = (256,)
    ids = tuple(b"<script>" * 200)[:1000]
    (found.dataset.folder / QUESTIONS).write_bytes(encoded(Questions(stops, asked=(ids,))))
    object.__setattr__(found.dataset, "meta", _with_questions(found.dataset))
    (sample,) = found.measure(module).samples
    assert len(sample.prompt) == LONGEST_PROMPT
    assert sample.prompt.startswith("...")
    assert sample.text == "", "the prompt leaves no room"


def _with_questions(dataset: Dataset) -> Any:
    import msgspec

    from barnraise.data.meta import FileInfo

    content = (dataset.folder / QUESTIONS).read_bytes()
    info = FileInfo(name=QUESTIONS, bytes=len(content), sha256="0" * 64)
    return msgspec.structs.replace(dataset.meta, files=(*dataset.meta.files, info))


def test_a_measurement_that_is_stopped_gives_nothing(functions: str, tmp_path: Path) -> None:
    found, module = measurer(tmp_path, f"{functions}:one", samples=1)
    found.stop()
    with pytest.raises(Stopped):
        found.measure(module)


def test_nothing_is_imported_from_the_folder_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby's copy of a run has files that another machine sent."""
    run = tmp_path / "runs" / "one"
    (run / "data").mkdir(parents=True)
    for place in (run / "data", tmp_path):
        (place / "evil.py").write_text("raise AssertionError('imported')\n")
    monkeypatch.chdir(tmp_path)
    for name, folder in (("runs.one.data.evil:f", tmp_path), ("data.evil:f", run), ("evil:f", run / "data")):
        monkeypatch.chdir(folder)
        with pytest.raises(OptionError, match="holds no code"):
            callables.load(name, run)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match="AssertionError: imported"):
        callables.load("evil:f", run)


@pytest.mark.parametrize("name", ["nothing:", ":f", "a.:f", "a/b.py:f", "a:f()", "os: path", "a:b:c"])
def test_a_name_of_no_function_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=r"write package\.module:function"):
        callables.load(name)


def test_finite_numbers_alone_are_kept(functions: str, tmp_path: Path) -> None:
    found, module = measurer(tmp_path, f"{functions}:nan")
    assert all(map(math.isfinite, found.measure(module).values.values()))


def test_a_function_that_does_not_return_is_given_up(functions: str, tmp_path: Path) -> None:
    name = f"{functions}:endless"
    found, module = measurer(tmp_path, name, f"{functions}:one", seconds=0.5)
    findings = found.measure(module)
    assert findings.values == {"one": 2.5}
    assert "0.5 s" in findings.failures[name]
    assert "metric_seconds" in findings.failures[name]
    assert found.measure(module).failures == {}
    assert sys.modules[functions].calls == [1], "it is not called again"


def test_an_end_does_not_wait_for_a_function(functions: str, tmp_path: Path) -> None:
    found, module = measurer(tmp_path, f"{functions}:endless")
    threading.Timer(0.5, found.stop).start()
    with pytest.raises(Stopped):
        found.measure(module)


def test_a_problem_that_draws_forever_keeps_nobody_else_waiting() -> None:
    begun = threading.Event()

    def endless() -> None:
        with chance.seeded():
            begun.set()
            threading.Event().wait(60)

    with pytest.raises(TookTooLongError):
        within(0.5, endless, lambda: False)
    assert begun.is_set()
    with chance.seeded(3):
        drawn = torch.rand(1)
    with chance.seeded(3):
        assert torch.equal(torch.rand(1), drawn)


def test_others_that_wait_already_get_their_turn_when_one_is_given_up() -> None:
    begun, got = threading.Event(), threading.Event()

    def endless() -> None:
        with chance.seeded():
            begun.set()
            threading.Event().wait(60)

    def waits() -> None:
        begun.wait()
        with chance.seeded():
            got.set()

    threading.Thread(target=waits, daemon=True).start()
    with pytest.raises(TookTooLongError):
        within(0.5, endless, lambda: False)
    assert got.wait(10)


def test_a_sample_of_formulas_is_a_whole_trace_with_the_checkers_verdict(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one" / "data"
    folder.parent.mkdir(parents=True)
    sat.build(folder, SatOptions.of(variables=(3, 3), examples=20, held_out=6))
    dataset = Dataset.open(folder)
    section = {"architecture": "gpt2", "config": {"n_embd": 8, "n_layer": 1, "n_head": 1}}
    context, end = dataset.meta.context, dataset.meta.eos_id
    config = describe(section, dataset.meta.vocab_size, context, bos_id=None, eos_id=end, pad_id=end)
    exchange = Exchange.of(config)
    found = Measurer(Evaluator(config, exchange, dataset, 5), Wanted((), 2, 1, 60.0))
    found.build()
    samples = found.measure(found.enter(torch.full((exchange.exchanged,), 0.01))).samples
    assert len(samples) == 2
    assert all(one.text.startswith("checker: refused: ") for one in samples), "it has learnt nothing"
    tokenizer = SatTokenizer.load(folder)
    row = dataset.held_out(1)["tokens"].tolist()[0]
    colon = row.index(tokenizer.colon_id) + 1
    told = answer_of(dataset, tokenizer, row[:colon], row[colon:])
    assert told.startswith("checker: accepted\n"), "the dataset's own trace"
    assert told.count("\n") >= 1
