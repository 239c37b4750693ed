"""The options of a SAT dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from barnraise.core.errors import OptionError, UnknownNameError
from barnraise.data.sat.collection import FormulaLimits
from barnraise.data.sat.dpll import HEURISTICS
from barnraise.data.sat.formulas import Formulas, require_within
from barnraise.data.sat.source import Source
from barnraise.data.sat.styles import CLAUSES, LITERALS, STYLES, is_padded
from barnraise.data.sat.tokenizer import SatTokenizer

MAX_EXAMPLES = 20_000_000
MAX_SET = 10_000
"""Formulas of a held-out set."""

MAX_SETS = 32
USUAL_EXAMPLES = 40_000
"""Formulas to train on where neither their number nor a token budget is given."""

MAX_FRESH = 1 << 28
"""Tokens of formulas that are made where `examples` is left out; a run with more passes over them again."""

MAX_STAGED = 1 << 30
"""Tokens of a run with stages, whose rows are all made."""

MARGIN = 1.05
"""Tokens of the last stage over those of the budget: the rows of lost tasks are not trained on."""

TRAINING = "training"
"""The name of the formulas to train on, or of those before the first stage."""

NATURAL = "held out"
"""The name of the held-out formulas that are distributed as those of training."""


@dataclass(frozen=True)
class HeldOutChoice:
    """A held-out set beside the natural one: its name, its number of formulas and their distribution."""

    name: str
    formulas: int
    source: Source

    def __post_init__(self) -> None:
        require_within((f"formulas of the held-out set '{self.name}'", self.formulas, 1, MAX_SET))

    @property
    def searching(self) -> bool:
        """Return whether each trace takes a decision back."""
        return bool(self.source.backtracking) and self.source.backtracking[0].at_least > 0

    @classmethod
    def of(cls, given: Mapping[str, Any], base: Source) -> HeldOutChoice:
        """Return the set that an entry of `held_out_sets` describes; keys without a value have those of training."""
        entry = {name: value for name, value in given.items() if value is not None}
        name, number, band = entry.pop("name"), entry.pop("formulas"), entry.pop("backtracking", None)
        values = base.as_dict() | {"backtracking": [], "pairs": 0.0, "files": [], "renamings": False} | entry
        if band is not None:
            values["backtracking"] = [{**band, "satisfiable": 0.5 if values["balanced"] else None}]
        source = Source.of(values)
        if values:
            raise TypeError(f"a held-out set has no {', '.join(values)}")
        return cls(name, number, source)

    def as_dict(self) -> dict[str, Any]:
        """Return the entry of `held_out_sets`, with all values."""
        found = {"name": self.name, "formulas": self.formulas} | self.source.as_dict()
        bands = [{"at_least": band.at_least, "at_most": band.at_most} for band in self.source.backtracking]
        del found["pairs"], found["renamings"]
        return found | {"backtracking": bands[0] if bands else None}


@dataclass(frozen=True)
class CurriculumStage:
    """Formulas to train on once `after` tokens were trained on, up to the next stage."""

    after: int
    source: Source

    @classmethod
    def of(cls, given: Mapping[str, Any], base: Source) -> CurriculumStage:
        """Return the stage that an entry of `stages` describes; keys without a value have those of `base`."""
        entry = {name: value for name, value in given.items() if value is not None}
        after, values = entry.pop("after"), base.as_dict() | entry
        source = Source.of(values)
        if values:
            raise TypeError(f"a stage has no {', '.join(values)}")
        return cls(after, source)

    def as_dict(self) -> dict[str, Any]:
        """Return the entry of `stages`, with all values."""
        return {"after": self.after} | self.source.as_dict()


@dataclass(frozen=True)
class Amount:
    """The number of formulas to train on; where it is None, as many as a budget of `tokens` tokens takes."""

    examples: int | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        if self.examples is not None:
            require_within(("examples", self.examples, 1, MAX_EXAMPLES))

    @property
    def number(self) -> int | None:
        """Return the number of formulas; None where `fresh` tokens say how many."""
        return USUAL_EXAMPLES if self.examples is None and self.tokens is None else self.examples

    @property
    def fresh(self) -> int:
        """Return the tokens of the rows to make, where no number of formulas is given."""
        return min(self.tokens or 0, MAX_FRESH)


def stage_name(place: int) -> str:
    """Return the name of a stage by its place in the list."""
    return f"stage {place + 1}"


class TrainingPart(NamedTuple):
    """Formulas to train on, and the tokens of their rows where no number of formulas is given."""

    source: Source
    tokens: int


@dataclass(frozen=True)
class SatOptions:
    """The options of the `data` section of a run file for `kind: sat`.

    With `packing` several examples share a row. `held_out` formulas are distributed as those to train on, or those of
    the last stage; each of `held_out_sets` has a distribution of its own. Before the first of the `stages` formulas are
    those of `source`.
    """

    source: Source = field(default_factory=Source)
    style: str = "restated"
    heuristic: str = "first"
    prompt: str = CLAUSES
    context: int = 62
    packing: bool = False
    amount: Amount = field(default_factory=Amount)
    held_out: int = 500
    held_out_sets: tuple[HeldOutChoice, ...] = ()
    stages: tuple[CurriculumStage, ...] = ()
    solver_limit: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        for what, value, known in (
            ("trace style", self.style, STYLES),
            ("decision heuristic", self.heuristic, tuple(HEURISTICS)),
        ):
            if value not in known:
                raise UnknownNameError(what, value, known)
        require_within(("context", self.context, 4, 2**20), ("held_out", self.held_out, 2, MAX_EXAMPLES))
        require_within(("solver_limit", self.solver_limit, 1, 10**9))
        self.tokenizer()
        self._check_sets()
        self._check_stages()
        for source in self.sources.values():
            self._check_room(source)

    def _check_sets(self) -> None:
        names = [NATURAL, TRAINING, *map(stage_name, range(len(self.stages)))]
        names += [found.name for found in self.held_out_sets]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise OptionError(f"a held-out set has the name '{twice}', which is taken; give each a name of its own")
        if len(self.held_out_sets) > MAX_SETS:
            raise OptionError(
                f"there are {len(self.held_out_sets)} held-out sets, but may be {MAX_SETS}; leave some out"
            )

    def _check_stages(self) -> None:
        if not self.stages:
            return
        if self.amount.examples is not None:
            raise OptionError(
                f"there are stages and examples ({self.amount.examples}); leave examples out: a stage has as many as "
                "the tokens that it lasts take"
            )
        tokens = self.amount.tokens
        if tokens is None or tokens > MAX_STAGED:
            has = "no token budget" if tokens is None else f"{tokens:,} tokens"
            raise OptionError(f"there are stages, and {has}; give training.tokens, at most {MAX_STAGED:,}")
        for place, stage in enumerate(self.stages):
            before = self.stages[place - 1].after if place else -1
            if stage.after <= before:
                raise OptionError(
                    f"stage {place + 1} begins after {stage.after:,} tokens, but stage {place} after {before:,}: two "
                    "stages do not overlap; give ascending numbers"
                )
            if stage.source.files and not stage.source.renamings:
                raise OptionError(
                    f"stage {place + 1} has files without renamings, which give each formula once; leave "
                    "renamings: false out"
                )
            if stage.after >= tokens:
                raise OptionError(
                    f"stage {place + 1} begins after {stage.after:,} tokens, but the run has {tokens:,}; lower it, or "
                    "raise training.tokens"
                )

    def _check_room(self, source: Source) -> None:
        """Raise OptionError where no formula of `source` fits the context."""
        if source.files and not self.slots:
            return  # their sizes are not known yet
        clauses, shortest = self.slots or source.formulas.fewest_clauses, source.formulas.clause_lengths[0]
        fewest = clauses * (shortest if self.prompt == LITERALS else 1) + 6
        if self.context < fewest:
            raise OptionError(
                f"context is {self.context}, but a formula of {clauses} clauses and the shortest trace need {fewest} "
                "tokens; give a larger context or a smaller clause_ratio"
            )

    @property
    def formulas(self) -> Formulas:
        """Return the sizes and the family of the formulas to train on."""
        return self.source.formulas

    @property
    def parts(self) -> dict[str, TrainingPart]:
        """Return the formulas to train on in their order, by name: those of a stage come after those of another."""
        if not self.stages:
            return {TRAINING: TrainingPart(self.source, self.amount.fresh)}
        stages = [*([] if self.stages[0].after == 0 else [CurriculumStage(0, self.source)]), *self.stages]
        ends = [*(stage.after for stage in stages[1:]), (self.amount.tokens or 0) * MARGIN]
        names = list(map(stage_name, range(len(self.stages))))
        names = [TRAINING, *names] if len(stages) > len(names) else names
        return {
            name: TrainingPart(stage.source, round(end) - stage.after)
            for name, stage, end in zip(names, stages, ends, strict=True)
        }

    @property
    def natural(self) -> Source:
        """Return the distribution of the held-out formulas without a set of their own."""
        return self.stages[-1].source if self.stages else self.source

    def is_familiar(self, source: Source) -> bool:
        """Return whether formulas of `source` are of the kinds and sizes that are trained on."""
        return any(
            part.source.files == source.files and part.source.formulas.contains(source.formulas)
            for part in self.parts.values()
        )

    @property
    def sources(self) -> dict[str, Source]:
        """Return the distributions of formulas, by the name of a part of training or of a held-out set."""
        parts = {name: part.source for name, part in self.parts.items()}
        return parts | {found.name: found.source for found in self.held_out_sets}

    @property
    def slots(self) -> int:
        """Return the number of clauses that every prompt is padded to; 0 where prompts are not padded."""
        if not is_padded(self.style, self.prompt):
            return 0
        return max(source.formulas.slots for source in self.sources.values())

    def limits(self, source: Source) -> FormulaLimits:
        """Return the largest formulas of files that `source` may have."""
        longest = source.formulas.variables[1] if self.prompt == LITERALS else source.formulas.longest
        return FormulaLimits(
            source.formulas.variables[1], longest, self.slots or None, self.solver_limit, self.heuristic
        )

    def tokenizer(self) -> SatTokenizer:
        """Return the tokenizer for the formulas of training and of all held-out sets."""
        kinds = [source.formulas for source in self.sources.values()]
        most, longest = max(kind.num_names for kind in kinds), max(kind.longest for kind in kinds)
        return SatTokenizer(most, longest, style=self.style, prompt=self.prompt)

    @classmethod
    def of(cls, **values: Any) -> SatOptions:
        """Return the options whose `as_dict` has these values; others have their defaults."""
        source = Source.of(values)
        sets = tuple(HeldOutChoice.of(given, source) for given in values.pop("held_out_sets", ()))
        stages = tuple(CurriculumStage.of(given, source) for given in values.pop("stages", ()))
        amount = Amount(values.pop("examples", None), values.pop("tokens", None))
        return cls(source=source, amount=amount, held_out_sets=sets, stages=stages, **values)

    def as_dict(self) -> dict[str, Any]:
        """Return all values in one mapping, as in a run file and in sat.json."""
        found = asdict(self)
        for name in ("source", "amount"):
            del found[name]
        found["held_out_sets"] = [choice.as_dict() for choice in self.held_out_sets]
        found["stages"] = [stage.as_dict() for stage in self.stages]
        return self.source.as_dict() | asdict(self.amount) | found
