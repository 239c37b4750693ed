"""Scores of a model's reasoning on held-out formulas, from the independent checker of traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from barnraise.core.errors import DataError
from barnraise.data.columns import TOKENS
from barnraise.data.sat import traces
from barnraise.data.sat.dataset import backtracking, options_of
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.tokenizer import SatTokenizer
from barnraise.data.shards import Dataset

Generate = Callable[[list[list[int]]], Sequence[Sequence[int]]]


@dataclass(frozen=True)
class SatScores:
    """Shares in [0, 1] over `formulas` held-out formulas.

    `steps_accepted`: of all steps generated, those the checker accepts; of each trace it accepts the steps before the
    first wrong one. `traces_accepted`: whole traces that prove their verdict. `verdicts_right`: the last token is the
    right verdict, whatever came before. `majority`: the share of the commoner verdict; `propagation`: the share that is
    right if a formula counts as unsatisfiable exactly where unit propagation alone meets a conflict. `backtracking` has
    the same of the formulas whose traces take a decision back, where the dataset keeps some apart.
    """

    formulas: int
    steps_accepted: float
    traces_accepted: float
    verdicts_right: float
    majority: float
    propagation: float
    example: str
    backtracking: SatScores | None = None


def evaluate(dataset: Dataset, generate: Generate, *, limit: int = 500) -> SatScores:
    """Let `generate` complete the prompts of the first `limit` held-out rows of each kind, and score the traces.

    `generate` takes prompts (lists of token ids, all of one length) and returns as many completions, without the
    prompts; tokens after `<eos>` are ignored, a completion without one cannot prove anything.
    """
    style, tokenizer = options_of(dataset).style, SatTokenizer.load(dataset.folder)
    scores = _evaluate(tokenizer, style, dataset.held_out(limit)[TOKENS].tolist(), generate)
    searched = backtracking(dataset, limit).tolist()
    return replace(scores, backtracking=_evaluate(tokenizer, style, searched, generate)) if searched else scores


def _evaluate(tokenizer: SatTokenizer, style: str, rows: list[list[int]], generate: Generate) -> SatScores:
    prompts = [row[: row.index(tokenizer.colon_id) + 1] for row in rows]
    completions = generate(prompts)
    if len(completions) != len(prompts):
        raise DataError(f"{len(completions)} completions came back for {len(prompts)} prompts")
    formulas = [tokenizer.formula(prompt) for prompt in prompts]
    right = [tokenizer.trace(row) for row in rows]  # by the solver, which decides only after propagation
    truths = [traces.verdict(trace) for trace in right]
    written = [tokenizer.completion(completion) for completion in completions]
    slots = len(prompts[0]) - 2
    scores = [traces.score(f, w, style=style, slots=slots) for f, w in zip(formulas, written, strict=True)]
    satisfiable = sum(map(bool, truths))
    settled = sum(bool(truth) or "D" not in trace for truth, trace in zip(truths, right, strict=True))
    best = max(range(len(scores)), key=lambda k: (scores[k].valid, "B" in written[k], scores[k].accepted))
    return SatScores(
        formulas=len(rows),
        steps_accepted=sum(score.accepted for score in scores) / max(1, sum(score.total for score in scores)),
        traces_accepted=sum(score.valid for score in scores) / len(rows),
        verdicts_right=sum(s.verdict is truth for s, truth in zip(scores, truths, strict=True)) / len(rows),
        majority=max(satisfiable, len(rows) - satisfiable) / len(rows),
        propagation=settled / len(rows),
        example=show(formulas[best], written[best], scores[best], slots),
    )


def show(formula: Formula, tokens: Sequence[str], score: traces.TraceScore, slots: int = 0) -> str:
    """Format a formula and a trace on it in full, one step a line."""
    padding = max(0, slots - len(formula.clauses))
    lines = ["formula: " + " and ".join(f"({' or '.join(map(str, clause))})" for clause in formula.clauses)]
    words = {"D": "decide", "U": "unit", "B": "back:"}
    for number, step in enumerate(traces.steps(tokens)):
        head, rest = (f"{words[step[0]]} {step[1]}", step[2:]) if step[0] in words and step[1:] else (step[0], step[1:])
        if padding and rest[-padding:] == ["T"] * padding:
            rest = rest[:-padding]
        mark = "" if number < score.accepted else "  <- not accepted"
        lines.append(f"  {head:<10} {' '.join(rest)}{mark}".rstrip())
    lines.append(f"checker: {'accepted' if score.valid else 'refused: ' + score.reason}")
    return "\n".join(lines)
