"""Trials of a run's model by a user: it solves one formula, or continues one text."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnraise.account.account import manifest
from barnraise.core.errors import DataError, InputError
from barnraise.ledger import RunDirectory

if TYPE_CHECKING:
    from barnraise.data.sat.dimacs import Formula
    from barnraise.data.sat.oracle import Ruling
    from barnraise.data.shards import Dataset

SHORTEST_TRACE = 4
"""Tokens that a model needs at least behind a formula."""

DRAWN_BY_SIZE = ("random", "skewed")
"""Families whose formulas have the numbers of variables and clauses that the options say."""

MOST_DRAWN = 10_000
"""Formulas of a held-out set among which one is drawn."""


@dataclass(frozen=True)
class Solved:
    """A model's trace on one formula, judged by the checker, beside a solver's verdict.

    `shown` is the formula and the trace in full. `proved`: the checker accepts the whole trace. `claims` is the model's
    verdict, None where its trace ends without one. `ruling` is the solver's. `unlike` says how the formula differs from
    all that the model was trained on, "" where it does not.
    """

    shown: str
    proved: bool
    claims: bool | None
    ruling: Ruling
    unlike: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the same by name, for programs."""
        return {
            "text": self.shown,
            "trace_accepted": self.proved,
            "verdict": self.claims,
            "satisfiable": self.ruling.satisfiable,
            "solver": self.ruling.solver,
            "unlike_training": self.unlike,
        }


class FormulaTrial:
    """A model that was trained on satisfiability, and the dataset that it was trained on."""

    def __init__(self, model: Any, dataset: Dataset) -> None:
        from barnraise.data.sat.dataset import options_of
        from barnraise.data.sat.tokenizer import SatTokenizer

        self.model, self.dataset = model, dataset
        self.options, self.tokenizer = options_of(dataset), SatTokenizer.load(dataset.folder)

    @property
    def fits(self) -> str:
        """Describe the formulas that the model can read."""
        slots, context = self.options.slots, self.dataset.meta.context
        room = f"{slots} clauses" if slots else f"{context - SHORTEST_TRACE} tokens"
        return f"up to {self.tokenizer.num_variables} variables, {room} and {self.tokenizer.longest} literals a clause"

    def held_out(self, seed: int) -> Formula:
        """Return a formula that the model was not trained on, from one of the held-out sets, each as often."""
        import numpy as np

        from barnraise.data.sat.dataset import held_out_sets

        chance = np.random.default_rng(seed)
        sets = [held.rows for held in held_out_sets(self.dataset, MOST_DRAWN) if held.rows]
        rows = sets[int(chance.integers(len(sets)))]
        return self.tokenizer.formula(rows[int(chance.integers(len(rows)))])

    def solve(self, formula: Formula) -> Solved:
        """Let the model reason about `formula`; DataError when it is larger than those of its dataset."""
        from barnraise.data.sat import traces
        from barnraise.data.sat.oracle import rule
        from barnraise.data.sat.shown import show
        from barnraise.training.metrics.generation import greedy

        formula, slots, meta = self._fitted(formula), self.options.slots, self.dataset.meta
        assert meta.eos_id is not None
        prompt = self.tokenizer.prompt(formula, slots)
        if len(prompt) + SHORTEST_TRACE > meta.context:
            raise DataError(f"the formula takes {len(prompt)} tokens, but this model reads {self.fits}")
        (ids,) = greedy(self.model, [prompt], context=meta.context, stops=(meta.eos_id,))
        written = self.tokenizer.completion(ids)
        score = traces.score(formula, written, style=self.options.style, slots=slots)
        shown = show(formula, written, score, style=self.options.style, slots=slots)
        return Solved(shown, score.valid, score.verdict, rule(formula), self._unlike(formula))

    def _unlike(self, formula: Formula) -> str:
        """Describe how `formula` is smaller or larger than all that the model was trained on."""
        formulas = self.options.formulas
        if formulas.family not in DRAWN_BY_SIZE:
            return ""
        variables = {abs(literal) for clause in formula.clauses for literal in clause}
        clauses = formulas.fewest_clauses, formulas.slots
        told = [
            f"{number} {what}, those that the model was trained on have {least} to {most}"
            for what, number, (least, most) in (
                ("variables", len(variables), (1, formulas.variables[1])),
                ("clauses", len(formula.clauses), clauses),
            )
            if not least <= number <= most
        ]
        return f"the formula has {'; and '.join(told)}" if told else ""

    def _fitted(self, formula: Formula) -> Formula:
        """Return `formula` with its clauses as the dataset writes them: no literal repeats."""
        from barnraise.data.sat.dimacs import Formula

        slots, tokenizer = self.options.slots, self.tokenizer
        clauses = tuple(tuple(dict.fromkeys(clause)) for clause in formula.clauses)
        largest = max((abs(literal) for clause in clauses for literal in clause), default=0)
        longest = max(map(len, clauses), default=0)
        room = slots or self.dataset.meta.context - SHORTEST_TRACE
        if largest > tokenizer.num_variables or longest > tokenizer.longest or len(clauses) > room:
            raise DataError(
                f"the formula has variables up to {largest}, {len(clauses)} clauses and up to {longest} literals a "
                f"clause, but this model reads {self.fits}"
            )
        if any(not clause or any(-literal in clause for literal in clause) for clause in clauses):
            raise DataError("a clause is empty, or has a variable and its negation; this model has seen no such clause")
        return Formula(tokenizer.num_variables, clauses)


class TextTrial:
    """A model that was trained on text, and its tokenizer."""

    def __init__(self, model: Any, dataset: Dataset) -> None:
        from barnraise.data import tokenizers

        self.model, self.tokenizer, self.context = model, tokenizers.of(dataset), dataset.meta.context

    def complete(self, prompt: str, *, tokens: int, temperature: float, seed: int) -> str:
        """Return the model's continuation of `prompt`, up to `tokens` tokens; the likeliest ones at temperature 0.

        A prompt that is longer than the model's context is cut at its beginning.
        """
        import torch

        ids = self.tokenizer.encode(prompt) or [self.tokenizer.eos_id]  # an empty prompt begins a document
        room = min(tokens, self.context - 1)
        given = torch.tensor([ids[-(self.context - room) :]])
        drawn = {"do_sample": True, "temperature": temperature} if temperature > 0 else {"do_sample": False}
        torch.manual_seed(seed)
        pad = self.tokenizer.eos_id if self.tokenizer.pad_id is None else self.tokenizer.pad_id
        ends = {"eos_token_id": self.tokenizer.eos_id, "pad_token_id": pad}
        with torch.inference_mode():
            written = self.model.generate(
                given, attention_mask=torch.ones_like(given), max_new_tokens=room, top_k=0, **drawn, **ends
            )
        return self.tokenizer.decode(written[0, given.shape[1] :].tolist())


@contextmanager
def opened(run: RunDirectory, *, warn: Callable[[str], None] = lambda text: None) -> Iterator[FormulaTrial | TextTrial]:
    """Open a trial of the model of `run`: that of `model/` if the run is over, else of its newest checkpoint.

    The latter is written to a folder that is removed afterwards. Nothing in the run's folder changes. Raises InputError
    for data of a kind that has no trial, ModelError, CorruptionError.
    """
    from barnraise.assembly.exporting import export_model
    from barnraise.assembly.solving import load_model
    from barnraise.data.shards import Dataset
    from barnraise.models.problems import PROBLEM

    dataset = Dataset.open(run.data)
    model = manifest(run).model
    if PROBLEM in model:
        raise InputError(
            f"{run.path} trains the problem '{model[PROBLEM]['name']}', whose model continues no texts; its model and "
            f"samples are in {run.model} once the run is over"
        )
    if dataset.meta.kind not in TRIALS:
        raise InputError(
            f"{run.path} trains on data of kind '{dataset.meta.kind}'; models can be tried that were trained on "
            f"{' or '.join(TRIALS)}: load others from {run.model} with transformers"
        )
    with tempfile.TemporaryDirectory(prefix="barnraise-try-") as scratch:
        folder = run.model
        if run.holder() is not None or not (folder / "config.json").is_file():
            folder = export_model(run, Path(scratch), warn=warn).folder
        yield TRIALS[dataset.meta.kind](load_model(folder), dataset)


TRIALS: dict[str, type[FormulaTrial] | type[TextTrial]] = {"sat": FormulaTrial, "text": TextTrial}
"""Kinds of data -> the class of their models' trials."""
