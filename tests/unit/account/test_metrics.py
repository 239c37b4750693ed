"""The values of metrics and the samples of a run, in the account, the report, the status and trackers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from barnraise.account import report
from barnraise.account.account import Account
from barnraise.account.facts import facts
from barnraise.account.metrics import Measurements, VersionSamples, one_line
from barnraise.account.run_status import MOST_SAMPLES, Marks, from_afar, printable_of, status_of
from barnraise.account.tracking.following import Tracking
from barnraise.ledger import Decision, Head, Noted, notes
from barnraise.ledger.measured import TextSample

from .test_report import a_run, make_account
from .test_tracking import scalars

HOSTILE = "\x1b]52;c;Y3VybA==\x07\u202e```\n## owned\n<script>alert(1)</script> [x](http://evil)\n" * 20
FIRST = TextSample("Once", " upon a time")


def measured(metrics: list[str], *found: notes.Measured) -> list[Decision]:
    """A run whose run file names `metrics`, and which has these measurements before its end."""
    content = {"evaluation": {"metrics": metrics}}
    *before, end = a_run()
    noted = [Noted(8.0 + number / 10, note) for number, note in enumerate(found)]
    return [Noted(0.1, notes.RunFile("", content)), *before, *noted, end]


def account(folder: Path, metrics: list[str], *found: notes.Measured) -> Account:
    return make_account(folder, measured(metrics, *found))


TWO = (
    notes.Measured(0, 0, {"exact_match": 0.0}, (FIRST,)),
    notes.Measured(1, 100, {"exact_match": 0.25, "bleu": 12.345678}, (TextSample("Once", HOSTILE),)),
)


def test_the_newest_values_and_samples_are_facts_and_json(tmp_path: Path) -> None:
    found = account(tmp_path, ["perplexity", "exact_match"], *TWO)
    lines = dict(facts(found))
    assert lines["metrics"] == "perplexity 25.79, exact_match 0.25, bleu 12.35 at version 1 (held out)"
    assert lines["sample"].startswith("version 1: Once -> ")
    assert lines["sample"].isprintable()
    assert len(lines["sample"]) < 300
    told = json.loads(json.dumps(found.as_json()))
    assert told["metrics"] == {"perplexity": math.exp(3.25), "exact_match": 0.25, "bleu": 12.345678}
    assert told["samples"]["version"] == 1
    assert told["samples"]["texts"] == [{"prompt": "Once", "text": HOSTILE}]


def test_a_run_without_metrics_tells_of_none(tmp_path: Path) -> None:
    found = make_account(tmp_path, a_run())
    assert not {"metrics", "sample"} & set(dict(facts(found)))
    assert not {"metrics", "samples"} & set(found.as_json())
    assert "## Metrics" not in report.write_report(found, None).read_text()


def test_the_report_has_each_version_and_the_first_and_newest_samples(tmp_path: Path) -> None:
    text = report.write_report(account(tmp_path, ["exact_match"], *TWO), None).read_text()
    table = text.partition("## Metrics")[2].partition("## Samples")[0]
    assert [line for line in table.splitlines() if line.startswith("| ")] == [
        "| version | exact\\_match | bleu |",
        "| 0 | 0 |  |",
        "| 1 | 0.25 | 12.35 |",
    ]
    samples = text.partition("## Samples")[2].partition("## Workers")[0]
    assert samples.index("Version 1:") < samples.index("Version 0:")
    assert "Once\n->  upon a time" in samples


def test_hostile_text_ends_no_block_and_has_no_control_characters(tmp_path: Path) -> None:
    text = report.write_report(account(tmp_path, [], *TWO), None).read_text()
    samples = text.partition("## Samples")[2].partition("\n## Workers")[0]
    assert "\x1b" not in text
    assert "\u202e" not in text
    fence = "````"
    assert samples.count(f"\n{fence}\n") == 2, "the longer fence opens and closes"
    inside = samples.partition(f"\n{fence}\n")[2].partition(f"\n{fence}\n")[0]
    assert inside.count("## owned") == HOSTILE.count("## owned")


def test_an_observer_gets_few_samples_and_printable_lines(tmp_path: Path) -> None:
    many = notes.Measured(1, 100, {"bleu": 1.0}, tuple(TextSample(f"{n}", HOSTILE) for n in range(16)))
    found = account(tmp_path, [], many)
    whole = status_of(found, 1000, None, Marks(Head(1, "ab" * 32), ""))
    assert len(whole.told["samples"]["texts"]) == 16
    heard = printable_of(from_afar(whole))
    assert len(heard.told["samples"]["texts"]) == MOST_SAMPLES
    assert all(text.isprintable() for _, text in heard.facts)


def test_a_metric_that_failed_is_told_with_its_version(tmp_path: Path) -> None:
    decisions = measured([], TWO[0])
    decisions.insert(-1, Noted(8.5, notes.MetricFailed(1, "mine:bleu", "KeyError: \x1b[2J")))
    found = make_account(tmp_path, decisions)
    texts = [one.text for one in found.happenings]
    assert "metric mine:bleu has no figure for version 1: KeyError: [2J" in texts
    assert "version 0: exact_match 0" in texts
    assert "mine:bleu" in report.write_report(found, None).read_text().partition("## Events")[2]


def test_trackers_get_the_values_of_metrics(tmp_path: Path) -> None:
    found = account(tmp_path, [], *TWO, notes.Measured(2, 200, {"recall@5": 0.5}))
    tracking = Tracking(found.run, ["tensorboard"])
    tracking.advance()
    tracking.close()
    told = scalars(found.run.path / "tracking" / "tensorboard")
    assert sorted(told["evaluation/exact_match"]) == [(0, 0.0), (1, 0.25)]
    assert told["evaluation/recall_5"] == [(2, 0.5)]
    assert told["evaluation/bleu"] == [(1, pytest.approx(12.345678))]


def test_trackers_keep_figures_apart_that_differ_in_odd_letters(tmp_path: Path) -> None:
    notes_of = [notes.Measured(version, 0, {"été@": 1.0, "äté?": 2.0, "_t__": 3.0}) for version in (0, 1)]
    found = account(tmp_path, [], *notes_of)
    tracking = Tracking(found.run, ["tensorboard"])
    tracking.advance()
    tracking.close()
    told = scalars(found.run.path / "tracking" / "tensorboard")
    for name, value in (("_t__", 1.0), ("_t___2", 2.0), ("_t___3", 3.0)):
        assert sorted(told[f"evaluation/{name}"]) == [(0, value), (1, value)]


def test_a_line_has_the_end_of_its_prompt() -> None:
    told = one_line(TextSample("a\n" * 500 + "the end", "word " * 100))
    prompt, _, text = told.partition(" -> ")
    assert prompt.startswith("...")
    assert prompt.endswith("a the end")
    assert len(prompt) == 60
    assert len(text) == 160
    assert one_line(TextSample("so", "\n")) == "so -> (nothing)"


def test_the_latest_value_of_each_metric_has_its_version() -> None:
    found = Measurements({0: {"a": 1.0, "b": 2.0}, 3: {"a": 0.5}}, None, VersionSamples(3, (FIRST,)))
    assert found.names == ["a", "b"]
    assert found.latest == {"a": (3, 0.5), "b": (0, 2.0)}
