"""SAT datasets: formulas with the traces that a DPLL solver leaves on them.

A row is one example (see `tokenizer`), padded to `context`; only the trace is learned, not the formula. No formula
is drawn twice, up to the order of clauses and literals, so none is in both sets. Examples longer than `context` are
left out, in both sets alike; `sat.json` in the dataset's folder records how many, beside the options.

Where formulas are small, unit propagation alone settles nearly all of them. `held_out_backtracking` more are kept for
evaluation whose trace takes a decision back: these need search.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from barnraise.core.errors import DataError, InputError, OptionError, UnknownNameError
from barnraise.data import shards
from barnraise.data.columns import TOKENS
from barnraise.data.meta import Format, Meta, Targets
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.dpll import HEURISTICS, Solver
from barnraise.data.sat.formulas import Formulas, require_within
from barnraise.data.sat.styles import CLAUSES, LITERALS, STYLES, is_padded
from barnraise.data.sat.tokenizer import SatTokenizer

RECORD, BACKTRACKING = "sat.json", "backtracking.bin"
MAX_RECORD_BYTES = 64 * 1024
MAX_EXAMPLES = 20_000_000
MAX_BACKTRACKING = 10_000
_CHUNK = 1000  # rows
_PATIENCE = 30_000  # formulas drawn in a row without a new example before the search ends


@dataclass(frozen=True)
class SatOptions:
    """The options of the `data` section of a run file for `kind: sat`.

    `balanced` keeps as many satisfiable as unsatisfiable formulas. If such formulas are too rare, fewer than
    `held_out_backtracking` are kept.
    """

    formulas: Formulas = field(default_factory=Formulas)
    balanced: bool = True
    style: str = "restated"
    heuristic: str = "first"
    prompt: str = CLAUSES
    context: int = 62
    examples: int = 40_000
    held_out: int = 500
    held_out_backtracking: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for what, value, known in (
            ("trace style", self.style, STYLES),
            ("decision heuristic", self.heuristic, tuple(HEURISTICS)),
        ):
            if value not in known:
                raise UnknownNameError(what, value, known)
        require_within(
            ("context", self.context, 4, 2**20),
            ("examples", self.examples, 1, MAX_EXAMPLES),
            ("held_out", self.held_out, 2, MAX_EXAMPLES),
            ("held_out_backtracking", self.held_out_backtracking, 0, MAX_BACKTRACKING),
        )
        self.tokenizer()
        clauses, shortest = self.slots or self.formulas.fewest_clauses, self.formulas.clause_lengths[0]
        fewest = clauses * (shortest if self.prompt == LITERALS else 1) + 6
        if self.context < fewest:
            raise OptionError(
                f"context is {self.context}, but a formula of {clauses} clauses and the shortest trace need {fewest} "
                "tokens; give a larger context or a smaller clause_ratio"
            )

    @property
    def slots(self) -> int:
        """Return the number of clauses that every prompt is padded to; 0 where prompts are not padded."""
        return self.formulas.slots if is_padded(self.style, self.prompt) else 0

    def tokenizer(self) -> SatTokenizer:
        most = self.formulas.variables[1]
        longest = min(self.formulas.clause_lengths[1], most)
        return SatTokenizer(most, longest, style=self.style, prompt=self.prompt)

    @classmethod
    def of(cls, **values: Any) -> SatOptions:
        """Return the options whose `as_dict` has these values; others have their defaults."""
        drawn = {known.name: values.pop(known.name) for known in fields(Formulas) if known.name in values}
        return cls(Formulas(**drawn), **values)

    def as_dict(self) -> dict[str, Any]:
        """Return all values in one mapping, as in a run file and in sat.json."""
        found = asdict(self)
        del found["formulas"]
        return asdict(self.formulas) | found


@dataclass(frozen=True)
class HeldOutSet:
    """Held-out examples by name: each row has the token ids of a prompt, its trace and `<eos>`, without padding.

    `searching`: each trace takes at least one decision back.
    """

    name: str
    rows: list[list[int]]
    searching: bool = False


@dataclass
class Counts:
    """Counts of the formulas drawn for a dataset, by outcome."""

    kept: int = 0
    repeated: int = 0
    too_long: int = 0  # longer than the context
    surplus: int = 0  # from the class that was full, when balanced
    straight: int = 0  # without backtracking, when that was asked for
    satisfiable: int = 0
    with_decisions: int = 0
    with_backtracking: int = 0


def build(folder: Path | str, options: SatOptions) -> Meta:
    """Make the dataset in `folder`; the same options give the same bytes.

    Raises DataError when the options do not yield enough distinct formulas that fit.
    """
    tokenizer, counts = options.tokenizer(), Counts()
    source = _Examples(options, tokenizer, counts)
    held_out = np.concatenate(list(source.rows(options.held_out)))
    train: list[npt.NDArray[np.uint16]] = list(source.rows(options.examples))
    record: dict[str, object] = {"options": options.as_dict(), "counts": asdict(counts)}
    files = tokenizer.files()
    if options.held_out_backtracking:
        source.counts = Counts()
        files[BACKTRACKING] = source.backtracking(options.held_out_backtracking).astype("<u2").tobytes()
        record["backtracking"] = asdict(source.counts)
    files[RECORD] = json.dumps(record, indent=1).encode()
    return shards.write(
        folder,
        form(options),
        train,
        held_out,
        files=files,
        seed=options.seed,
    )


def form(options: SatOptions) -> Format:
    """Return the form of the rows of a dataset made with `options`, without making data."""
    tokenizer = options.tokenizer()
    return Format(
        kind="sat",
        tokenizer=tokenizer.name,
        context=options.context,
        vocab_size=tokenizer.vocab_size,
        pad_id=tokenizer.pad_id,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
        targets=Targets(after=tokenizer.colon_id, until=tokenizer.eos_id),
    )


def options_of(dataset: shards.Dataset) -> SatOptions:
    """Return the options of a dataset; DataError when it is not a SAT dataset or its record is damaged."""
    path = dataset.folder / RECORD
    try:
        if path.stat().st_size > MAX_RECORD_BYTES:
            raise DataError(f"{path} has more than {MAX_RECORD_BYTES} bytes; make the dataset again")
        given = json.loads(path.read_bytes())["options"]
        return msgspec.convert({**given, "formulas": given}, SatOptions)
    except OSError as error:
        raise DataError(f"{dataset.folder} is not a SAT dataset: it has no {RECORD} ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, RecursionError, InputError) as error:
        raise DataError(f"{path} does not describe a SAT dataset ({error}); make the dataset again") from error


def backtracking(dataset: shards.Dataset, limit: int | None = None) -> npt.NDArray[np.uint16]:
    """Return the first `limit` held-out rows whose trace backtracks, [n, context]; n may be 0.

    DataError when the file is damaged.
    """
    info = next((info for info in dataset.meta.files if info.name == BACKTRACKING), None)
    content = b"" if info is None else (dataset.folder / BACKTRACKING).read_bytes()
    if len(content) % (2 * dataset.meta.context):
        raise DataError(f"{dataset.folder / BACKTRACKING} has {len(content)} bytes; make the dataset again")
    return np.frombuffer(content, "<u2").reshape(-1, dataset.meta.context)[:limit]


def held_out_sets(dataset: shards.Dataset, limit: int | None = None) -> list[HeldOutSet]:
    """Return the held-out sets that are not empty, each with its first `limit` examples.

    The first is named `held out`: its formulas are distributed as those of training.
    """
    eos = dataset.meta.eos_id
    rows = [row[: row.index(eos) + 1] for row in dataset.held_out(limit)[TOKENS].tolist()]
    found = [HeldOutSet("held out", rows)]
    if searched := backtracking(dataset, limit).tolist():
        found.append(HeldOutSet("search", [row[: row.index(eos) + 1] for row in searched], searching=True))
    return found


class _Examples:
    """Draws distinct formulas, solves them and keeps those that fit."""

    def __init__(self, options: SatOptions, tokenizer: SatTokenizer, counts: Counts) -> None:
        self.options, self.tokenizer, self.counts = options, tokenizer, counts
        self.solver = Solver(style=options.style, heuristic=options.heuristic, slots=options.slots)
        self.formulas = options.formulas.draw(np.random.default_rng(options.seed))
        self.seen: set[bytes] = set()  # digests of formulas

    def rows(self, number: int) -> Iterator[npt.NDArray[np.uint16]]:
        """Yield `number` more rows, in arrays of at most _CHUNK."""
        wanted = self._wanted(number)
        for start in range(0, number, _CHUNK):
            rows = np.full((min(_CHUNK, number - start), self.options.context), self.tokenizer.pad_id, dtype=np.uint16)
            for row in rows:
                example = self._next(wanted)
                row[: len(example)] = example
            yield rows

    def backtracking(self, number: int) -> npt.NDArray[np.uint16]:
        """Return `number` more rows whose trace backtracks, or fewer when no more are found."""
        rows = np.full((number, self.options.context), self.tokenizer.pad_id, dtype=np.uint16)
        wanted = self._wanted(number)
        for found in range(number):
            example = self._find(wanted, backtracking=True)
            if example is None:
                return rows[:found]
            rows[found, : len(example)] = example
        return rows

    def _wanted(self, number: int) -> dict[bool, int] | None:
        """Return how many formulas of each verdict to keep; None: in any proportion."""
        return {True: number // 2, False: number - number // 2} if self.options.balanced else None

    def _find(self, wanted: dict[bool, int] | None, *, backtracking: bool = False) -> list[int] | None:
        """Return a new example; None when too many formulas in a row yield none."""
        found = (self._example(formula, wanted, backtracking) for formula in itertools.islice(self.formulas, _PATIENCE))
        return next((example for example in found if example is not None), None)

    def _next(self, wanted: dict[bool, int] | None) -> list[int]:
        example = self._find(wanted)
        if example is not None:
            return example
        raise DataError(
            f"no new example in {_PATIENCE} formulas after {self.counts.kept} ({self.counts.repeated} were repeats, "
            f"{self.counts.too_long} too long for a context of {self.options.context}, {self.counts.surplus} of the "
            "class that was full); ask for fewer examples, more variables, a larger context, or balanced: false"
        )

    def _example(self, formula: Formula, wanted: dict[bool, int] | None, backtracking: bool) -> list[int] | None:
        # no hash(): that of -1 is that of -2
        key = hashlib.blake2b(repr(formula.canonical()).encode(), digest_size=16).digest()
        if key in self.seen:
            self.counts.repeated += 1
            return None
        self.seen.add(key)
        if self.options.slots and len(formula.clauses) > self.options.slots:
            self.counts.too_long += 1
            return None
        result = self.solver.solve(formula)
        if backtracking and not result.num_backtracks:
            self.counts.straight += 1
            return None
        example = self.tokenizer.example(formula, result.trace, self.options.slots)
        if len(example) > self.options.context:
            self.counts.too_long += 1
            return None
        if wanted is not None:
            if not wanted[result.satisfiable]:
                self.counts.surplus += 1
                return None
            wanted[result.satisfiable] -= 1
        self.counts.kept += 1
        self.counts.satisfiable += result.satisfiable
        self.counts.with_decisions += result.num_decisions > 0
        self.counts.with_backtracking += result.num_backtracks > 0
        return example
