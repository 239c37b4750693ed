"""Scores of a model's reasoning on held-out formulas, from the independent checker of traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from barnraise.core.errors import DataError
from barnraise.data.columns import TOKENS
from barnraise.data.sat import traces
from barnraise.data.sat.dataset import SatOptions, backtracking, options_of
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.styles import TRAIL_STYLES
from barnraise.data.sat.tokenizer import SatTokenizer
from barnraise.data.sat.trail import CONFLICT, END, TraceStep
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

    `generate` takes prompts (lists of token ids, also of several lengths) and returns as many completions, without the
    prompts; tokens after `<eos>` are ignored, a completion without one cannot prove anything.
    """
    options, tokenizer = options_of(dataset), SatTokenizer.load(dataset.folder)
    scores = _evaluate(tokenizer, options, dataset.held_out(limit)[TOKENS].tolist(), generate)
    searched = backtracking(dataset, limit).tolist()
    return replace(scores, backtracking=_evaluate(tokenizer, options, searched, generate)) if searched else scores


def _evaluate(tokenizer: SatTokenizer, options: SatOptions, rows: list[list[int]], generate: Generate) -> SatScores:
    style, slots = options.style, options.slots
    prompts = [row[: row.index(tokenizer.colon_id) + 1] for row in rows]
    completions = generate(prompts)
    if len(completions) != len(prompts):
        raise DataError(f"{len(completions)} completions came back for {len(prompts)} prompts")
    formulas = [tokenizer.formula(prompt) for prompt in prompts]
    right = [tokenizer.trace(row) for row in rows]  # by the solver, which decides only after propagation
    truths = [traces.verdict(trace) for trace in right]
    written = [tokenizer.completion(completion) for completion in completions]
    scores = [traces.score(f, w, style=style, slots=slots) for f, w in zip(formulas, written, strict=True)]
    satisfiable = sum(map(bool, truths))
    decided = [any(step.words[:1] == ("D",) for step in traces.steps(trace, style)) for trace in right]
    settled = sum(bool(truth) or not decides for truth, decides in zip(truths, decided, strict=True))
    searches = [traces.backtracks(trace, style) > 0 for trace in written]
    best = max(range(len(scores)), key=lambda k: (scores[k].valid, searches[k], scores[k].accepted))
    return SatScores(
        formulas=len(rows),
        steps_accepted=sum(score.accepted for score in scores) / max(1, sum(score.total for score in scores)),
        traces_accepted=sum(score.valid for score in scores) / len(rows),
        verdicts_right=sum(s.verdict is truth for s, truth in zip(scores, truths, strict=True)) / len(rows),
        majority=max(satisfiable, len(rows) - satisfiable) / len(rows),
        propagation=settled / len(rows),
        example=show(formulas[best], written[best], scores[best], slots, style),
    )


def show(
    formula: Formula, tokens: Sequence[str], score: traces.TraceScore, slots: int = 0, style: str = "terse"
) -> str:
    """Format a formula and a trace on it in full, one step a line, or one trail a line in the trail styles."""
    lines = ["formula: " + " and ".join(f"({' or '.join(map(str, clause))})" for clause in formula.clauses)]
    steps = traces.steps(tokens, style)
    lines += _trails(steps, score.accepted) if style in TRAIL_STYLES else _steps(formula, steps, score.accepted, slots)
    lines.append(f"checker: {'accepted' if score.valid else 'refused: ' + score.reason}")
    return "\n".join(lines)


def _steps(formula: Formula, steps: Sequence[TraceStep], accepted: int, slots: int) -> Iterator[str]:
    padding = max(0, slots - len(formula.clauses))
    names = {"D": "decide", "U": "unit", "B": "back:"}
    for number, step in enumerate(steps):
        kind, rest = step.words[0], list(step.words[1:])
        head = f"{names[kind]} {rest.pop(0)}" if kind in names and rest else kind
        if padding and rest[-padding:] == ["T"] * padding:
            rest = rest[:-padding]
        mark = "" if number < accepted else "  <- not accepted"
        yield f"  {head:<10} {' '.join(rest)}{mark}".rstrip()


def _trails(steps: Sequence[TraceStep], accepted: int) -> Iterator[str]:
    """Yield a line for each trail that the trace writes: up to a conflict, or to the end of a step."""
    line: list[str] = []
    for number, step in enumerate(steps):
        for token in step.tokens:
            line.append(token)
            if token in (CONFLICT, END):
                yield f"  {' '.join(line)}"
                line = []
        if number == accepted:
            yield f"  {' '.join(line)}  <- not accepted"
            line = []
    if line:
        yield f"  {' '.join(line)}"
