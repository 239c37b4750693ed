"""Checks of a run file's metrics and samples before anything is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from barnraise.config.document import parse
from barnraise.core.errors import RunFileError
from barnraise.plan.metrics import num_questions, wanted_of
from barnraise.plan.purpose import SERVE
from barnraise.plan.verify import verify
from barnraise.training.metrics.catalog import Wanted

SMALL = {"hidden_size": 16, "num_layers": 1, "num_heads": 2}


def check(folder: Path, evaluation: dict[str, Any], data: dict[str, Any] | None = None, **model: Any) -> Any:
    (folder / "text.txt").write_text("a barn is raised by many hands.\n" * 100)
    pairs = [{"prompt": f"{n} and one?", "completion": f" {n + 1}"} for n in range(100)]
    choices = [{"question": f"{n} and one?", "choices": [f"{n + 1}", "none"], "answer": 0} for n in range(100)]
    for name, records in (("pairs", pairs), ("choices", choices)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    data = {"kind": "text", "files": ["text.txt"], "context": 32} | (data or {})
    data["files"] = [str(folder / name) for name in data["files"]] if data["kind"] != "sat" else None
    content = {
        "model": {"architecture": "gpt2", "config": SMALL} | model,
        "data": {key: value for key, value in data.items() if value is not None},
        "run": {"dir": str(folder)},
        "evaluation": evaluation,
    }
    return verify(parse(json.dumps(content).encode(), "run.yaml"), purpose=SERVE)


PAIRS = {"kind": "instruct", "files": ["pairs.jsonl"], "context": 64}
CHOSEN = {"kind": "instruct", "files": ["choices.jsonl"], "context": 64}
FORMULAS = {"kind": "sat", "files": None, "context": 62}


def test_metrics_that_fit_are_taken_and_take_memory(tmp_path: Path) -> None:
    plan, with_metrics = check(tmp_path, {"metrics": ["loss", "perplexity", "choice_accuracy"], "samples": 2}, CHOSEN)
    _, without = check(tmp_path, {"metrics": ["loss", "perplexity"]}, CHOSEN)
    assert wanted_of(plan.run_file) == Wanted(("choice_accuracy",), 2, 64)
    assert num_questions(plan.run_file) == plan.run_file.evaluation.rows
    model = 4 * with_metrics.sizes.parameters
    assert with_metrics.controller_memory_bytes >= without.controller_memory_bytes + model


def test_samples_alone_need_few_questions_and_prompts_none(tmp_path: Path) -> None:
    plan, _ = check(tmp_path, {"samples": 3}, PAIRS)
    assert num_questions(plan.run_file) == 3
    plan, _ = check(tmp_path, {"samples": 3, "prompts": ["a", "b"]}, PAIRS)
    assert (num_questions(plan.run_file), wanted_of(plan.run_file).samples) == (0, 2)


@pytest.mark.parametrize(
    ("evaluation", "data", "words"),
    [
        ({"metrics": ["exact_macth"]}, PAIRS, "unknown metric 'exact_macth'; did you mean 'exact_match'?"),
        ({"metrics": ["exact_match"]}, None, "is exact_match, which needs prompts with answers: data.kind chat or"),
        (
            {"metrics": ["formulas"]},
            PAIRS,
            "needs held-out formulas: data.kind sat; this run has data of",
        ),
        ({"metrics": ["choice_accuracy"]}, FORMULAS, "needs records with choices and label"),
        ({"metrics": ["choice_accuracy"]}, PAIRS, "the first 100 records have no choices with a label; map them"),
        ({"metrics": ["problem"]}, None, "needs a problem of your own"),
        ({"metrics": ["nowhere.at_all:bleu"]}, PAIRS, "'nowhere.at_all:bleu' cannot be imported: ModuleNotFoundError"),
        ({"metrics": ["json:dumb"]}, PAIRS, "cannot be imported: AttributeError"),
        ({"metrics": ["math:pi"]}, PAIRS, "is a float; name a function of (module, rows, tokenizer)"),
        ({"metrics": ["a b:c"]}, PAIRS, "is no Python function; write package.module:function"),
        ({"metrics": "exact_match"}, PAIRS, "evaluation.metrics"),
        ({"metrics": ["perplexity"] * 17}, PAIRS, "evaluation.metrics"),
        ({"samples": 17}, PAIRS, "evaluation.samples: is 17"),
        ({"sample_tokens": 0}, PAIRS, "evaluation.sample_tokens: is 0"),
        ({"prompts": [""]}, PAIRS, "evaluation.prompts"),
        ({"prompts": ["x"]}, FORMULAS, "evaluation.prompts: is given, but data of kind sat is no text"),
        ({"sat_samples": 4}, PAIRS, "evaluation.sat_samples: is 4, but data of kind instruct has no formulas"),
        ({"sat_samples": 0}, FORMULAS, "evaluation.sat_samples: is 0"),
        ({"sat_samples": 65}, FORMULAS, "evaluation.sat_samples: is 65"),
        ({"sat_temperature": 0.0}, FORMULAS, "evaluation.sat_temperature: is 0.0"),
        ({"compute_metrics": "f"}, PAIRS, "evaluation.metrics"),
        ({"eval_table_size": 4}, PAIRS, "evaluation.samples"),
        ({"metric": ["loss"]}, PAIRS, "did you mean 'metrics'"),
    ],
)
def test_bad_metrics_are_named(
    evaluation: dict[str, Any], data: dict[str, Any] | None, words: str, tmp_path: Path
) -> None:
    with pytest.raises(RunFileError) as caught:
        check(tmp_path, evaluation, data)
    assert words in str(caught.value)


def test_a_model_that_writes_no_text_makes_no_samples(tmp_path: Path) -> None:
    with pytest.raises(RunFileError, match=r"evaluation\.samples: is given, but only a causal_lm writes text"):
        check(tmp_path, {"samples": 1}, architecture="bert")
