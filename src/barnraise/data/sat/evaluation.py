"""Scores of a model's reasoning on held-out formulas, from the independent checker of traces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from barnraise.core.errors import DataError
from barnraise.data.sat import baselines, traces
from barnraise.data.sat.assignments import assignment
from barnraise.data.sat.dataset import held_out_sets, options_of
from barnraise.data.sat.options import SatOptions
from barnraise.data.sat.scores import AnswerCounts, Draws, SatScores, SetScores, band_of, total
from barnraise.data.sat.shown import show
from barnraise.data.sat.tokenizer import SatTokenizer
from barnraise.data.shards import Dataset

Prompts = list[list[int]]
Completions = Sequence[Sequence[int]]
Generate = Callable[[Prompts, int], Completions]
"""Completes prompts, each with at most the given number of tokens."""

LONGEST = 2
"""Tokens that a trace may have, in lengths of the longest right one of its set; a longer trace has lost its way."""


@dataclass(frozen=True)
class Sampler:
    """How several traces of a formula are drawn: `draw` takes prompts, the most tokens, and the number of the draw."""

    draws: Draws
    draw: Callable[[Prompts, int, int], Completions]


def evaluate(dataset: Dataset, generate: Generate, *, limit: int = 500, sampler: Sampler | None = None) -> SatScores:
    """Let `generate` complete the prompts of the first `limit` formulas of each held-out set, and score the traces.

    `generate` takes prompts (lists of token ids) and returns as many completions, without the prompts; tokens after
    `<eos>` are ignored, a completion without one cannot prove anything.
    """
    tokenizer, options = SatTokenizer.load(dataset.folder), options_of(dataset)
    sets, answers = [], []
    for held in held_out_sets(dataset, limit):
        exam = _Exam([_Question(tokenizer, options, row) for row in held.rows], tokenizer)
        exam.answer(generate)
        if sampler is not None:
            exam.draw(sampler)
        sets.append(SetScores(held.name, exam.bands(), held.familiar))
        answers += exam.answers
    example = max(answers, key=_Answer.merit).shown() if answers else ""
    return SatScores(tuple(sets), example, None if sampler is None else sampler.draws)


class _Question:
    """A held-out formula, with the solver's trace, which is right and decides only after propagation."""

    def __init__(self, tokenizer: SatTokenizer, options: SatOptions, row: list[int]) -> None:
        self.style, self.slots = options.style, options.slots
        self.prompt = row[: row.index(tokenizer.colon_id) + 1]
        self.formula, self.trace = tokenizer.formula(row), tokenizer.trace(row)
        self.truth, self.backtracks = traces.verdict(self.trace), traces.backtracks(self.trace, self.style)

    def score(self, written: Sequence[str]) -> traces.TraceScore:
        return traces.score(self.formula, written, style=self.style, slots=self.slots)


class _Answer:
    """A model's answer to a question: its greedy trace, and what is known of further ones."""

    def __init__(self, question: _Question, written: list[str]) -> None:
        self.question, self.written, self.score = question, written, question.score(written)
        self.accepted, self.claims = self.score.valid, [self.score.verdict]

    def again(self, written: list[str]) -> None:
        """Take a further trace into account."""
        score = self.question.score(written)
        self.accepted |= score.valid
        self.claims.append(score.verdict)

    def tally(self, chance: np.random.Generator) -> AnswerCounts:
        formula, truth = self.question.formula, self.question.truth
        claims = Counter(claim for claim in self.claims if claim is not None).most_common(1)
        return AnswerCounts(
            formulas=1,
            satisfiable=int(truth is True),
            verdicts=int(self.score.verdict is truth),
            traces=int(self.score.valid),
            assignments=int(formula.satisfied_by(assignment(self.written, self.question.style))),
            steps=self.score.total,
            accepted=self.score.accepted,
            propagation=int(baselines.by_propagation(formula) is truth),
            decision=int(baselines.by_one_decision(formula, chance) is truth),
            drawn_verdicts=int(self.accepted or (bool(claims) and claims[0][0] is truth)),
            drawn_traces=int(self.accepted),
        )

    def merit(self) -> tuple[bool, int, int, int]:
        """Return a key by which the best example is the greatest: proved, with search, and short."""
        proved = self.score.valid
        backtracks = traces.backtracks(self.written, self.question.style) if proved else 0
        return proved, min(backtracks, 2), self.score.accepted * (not proved), -len(self.written)

    def shown(self) -> str:
        question = self.question
        return show(question.formula, self.written, self.score, style=question.style, slots=question.slots)


class _Exam:
    """The questions of a held-out set, and a model's answers."""

    def __init__(self, questions: list[_Question], tokenizer: SatTokenizer) -> None:
        self.questions, self.tokenizer = questions, tokenizer
        self.most = LONGEST * max((len(question.trace) for question in questions), default=0)
        self.answers: list[_Answer] = []

    def answer(self, generate: Generate) -> None:
        completions = generate(_prompts(self.questions), self.most) if self.questions else []
        written = self._read(completions, len(self.questions))
        self.answers = [_Answer(question, trace) for question, trace in zip(self.questions, written, strict=True)]

    def draw(self, sampler: Sampler) -> None:
        """Draw further traces of each formula, until the checker accepts one."""
        for number in range(1, sampler.draws.number):
            wrong = [answer for answer in self.answers if not answer.accepted]
            if not wrong:
                return
            completions = sampler.draw(_prompts(answer.question for answer in wrong), self.most, number)
            for answer, trace in zip(wrong, self._read(completions, len(wrong)), strict=True):
                answer.again(trace)

    def bands(self) -> dict[str, AnswerCounts]:
        chance = np.random.default_rng(0)
        found: dict[str, list[AnswerCounts]] = {}
        for answer in self.answers:
            found.setdefault(band_of(answer.question.backtracks), []).append(answer.tally(chance))
        return {band: total(tallies) for band, tallies in found.items()}

    def _read(self, completions: Completions, asked: int) -> list[list[str]]:
        if len(completions) != asked:
            raise DataError(f"{len(completions)} completions came back for {asked} prompts")
        return [self.tokenizer.completion(completion) for completion in completions]


def _prompts(questions: Iterable[_Question]) -> Prompts:
    return [question.prompt for question in questions]
