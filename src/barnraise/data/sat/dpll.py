"""A DPLL solver that records its reasoning: a model learns to imitate the trace.

The algorithm (Davis, Logemann and Loveland, 1962): while a clause is unit, its literal must hold; otherwise decide a
literal; at a conflict return to the last open decision and take its other side; when none is open the formula is
unsatisfiable. It is deterministic and keeps its own stack, so depth is bounded by memory alone. Clauses are simplified
one by one, which keeps the code plain and is quick up to some hundred variables; there is no clause learning.

A trace is a list of tokens:

    D l     decide that literal l holds
    U l     literal l holds by unit propagation: some clause has no other literal left
    B l     conflict: some clause has no literal left; go back to the last open decision, -l, and take l instead
    SAT     every clause holds
    UNSAT   conflict, and no decision is open

In the *restated* style each of D, U and B is followed by the whole current formula, one token a clause in the formula's
order: `T` for a clause that holds, `F` for one with no literal left, else its remaining literals, as `1,-3`. The k-th
clause stays the k-th token, so that simplifying is the same small step at every place: models learn it an order of
magnitude sooner than traces that drop clauses or spell them literal by literal. `slots` pads with `T` to a fixed number
of clauses. The styles that write the literals that hold are in `trail`.

>>> solve(Formula(2, ((1, 2), (-1,))), style="restated").trace
['U', '-1', '2', 'T', 'U', '2', 'T', 'T', 'SAT']
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from barnraise.core.errors import OptionError, UnknownNameError
from barnraise.data.sat import lowest, trail
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.styles import RESTATED, STYLES, TRAIL_STYLES

Rest = tuple[int, ...] | None  # remaining literals of a clause; None when it holds
State = list[Rest]
Choice = Callable[[State], int]
HOLDS, EMPTY = "T", "F"


@dataclass(frozen=True)
class DpllResult:
    """The solver's result: `model` gives every variable a literal (None: unsatisfiable); `trace` proves it.

    `num_backtracks` counts the decisions that were taken back.
    """

    satisfiable: bool
    model: list[int] | None
    trace: list[str]
    num_decisions: int
    num_backtracks: int


def solve(
    formula: Formula,
    *,
    style: str = "terse",
    heuristic: str = "two_sided",
    slots: int = 0,
    max_decisions: int | None = None,
) -> DpllResult:
    """Solve `formula`, tracing in `style` and deciding by `heuristic` (see HEURISTICS).

    `max_decisions` bounds the work: OptionError when it does not suffice.
    """
    return Solver(style=style, heuristic=heuristic, slots=slots, max_decisions=max_decisions).solve(formula)


def clause_token(literals: Iterable[int]) -> str:
    """Return a clause as one token: its literals by variable, without repeats; `F` when there are none."""
    return ",".join(map(str, sorted(set(literals), key=_by_variable))) or EMPTY


class Solver:
    """Runs `solve` on many formulas, and keeps the tokens of clauses from one to the next."""

    def __init__(self, *, style: str, heuristic: str, slots: int = 0, max_decisions: int | None = None) -> None:
        if style not in STYLES:
            raise UnknownNameError("trace style", style, STYLES)
        if heuristic not in HEURISTICS:
            raise UnknownNameError("decision heuristic", heuristic, HEURISTICS)
        self.style, self.choose = style, _CHOICES.get(heuristic)
        self.restates = style == RESTATED
        self.slots, self.max_decisions = slots, max_decisions
        self.names = _Names({None: HOLDS})

    def solve(self, formula: Formula) -> DpllResult:
        steps, literals = self._lowest(formula) if self.choose is None else _Search(self, formula).run(self.choose)
        return DpllResult(
            satisfiable=literals is not None,
            model=None if literals is None else _model(formula, literals),
            trace=trail.render(steps, self.style) if self.style in TRAIL_STYLES else steps,
            num_decisions=steps.count("D"),
            num_backtracks=steps.count("B"),
        )

    def _lowest(self, formula: Formula) -> tuple[list[str], list[int] | None]:
        found = lowest.search(formula, self.max_decisions)
        if found is None:
            raise _too_many(self.max_decisions)
        steps, literals = found
        return (_Search(self, formula).repeat(steps) if self.restates else steps), literals


class _Names(dict[Rest, str]):
    """The token of each clause."""

    def __missing__(self, rest: Rest) -> str:
        self[rest] = clause_token(rest or ())
        return self[rest]


class _Search:
    def __init__(self, solver: Solver, formula: Formula) -> None:
        self.solver, self.formula = solver, formula
        self.trace: list[str] = []
        self.padding = [HOLDS] * (solver.slots - len(formula.clauses))
        self.literals: list[int] = []  # those that hold, oldest first
        self.open: list[
            tuple[int, int, State]
        ] = []  # open decisions: literal, number of literals that held, state before
        self.num_decisions = 0

    def run(self, choose: Choice) -> tuple[list[str], list[int] | None]:
        """Return the steps, and the literals that hold in the end (None: unsatisfiable)."""
        state = self._given()
        while True:
            if () in state:
                if not self.open:
                    return [*self.trace, "UNSAT"], None
                literal, state = self._back()
                state = self._assign("B", literal, state)
            elif unit := next((rest[0] for rest in state if rest and len(rest) == 1), 0):
                state = self._assign("U", unit, state)
            elif any(state):
                state = self._decide(choose(state), state)
            else:
                return [*self.trace, "SAT"], self.literals

    def repeat(self, steps: Sequence[str]) -> list[str]:
        """Return a terse trace with the restated clauses."""
        state = self._given()
        for kind, word in zip(steps[:-1:2], steps[1:-1:2], strict=True):
            if kind == "D":
                state = self._decide(int(word), state)
                continue
            if kind == "B":
                _, state = self._back()
            state = self._assign(kind, int(word), state)
        return [*self.trace, steps[-1]]

    def _given(self) -> State:
        return [tuple(sorted(set(clause), key=_by_variable)) for clause in self.formula.clauses]

    def _back(self) -> tuple[int, State]:
        """Take the last open decision back; return its other side, and the clauses that remained before it."""
        literal, held, state = self.open.pop()
        del self.literals[held:]
        return -literal, state

    def _assign(self, kind: str, literal: int, state: State) -> State:
        """Return the clauses that remain once `literal` holds."""
        solver, negated = self.solver, -literal
        state = [
            None if rest is None or literal in rest else _without(rest, negated) if negated in rest else rest
            for rest in state
        ]
        self.literals.append(literal)
        self.trace += (kind, str(literal))
        if solver.restates:
            self.trace += [solver.names[rest] for rest in state]
            self.trace += self.padding
            return state
        return [rest for rest in state if rest is not None]

    def _decide(self, literal: int, state: State) -> State:
        self.num_decisions += 1
        limit = self.solver.max_decisions
        if limit is not None and self.num_decisions > limit:
            raise _too_many(limit)
        self.open.append((literal, len(self.literals), state))
        return self._assign("D", literal, state)


def _model(formula: Formula, literals: Iterable[int]) -> list[int]:
    """Return the model; variables that were never assigned are free, and set to true."""
    held = {abs(literal): literal for literal in literals}
    return [held.get(variable, variable) for variable in range(1, formula.num_variables + 1)]


def _too_many(limit: int | None) -> OptionError:
    return OptionError(f"the formula needs more than {limit} decisions; raise max_decisions")


def _without(clause: tuple[int, ...], literal: int) -> tuple[int, ...]:
    return tuple(other for other in clause if other != literal)


def _by_variable(literal: int) -> tuple[int, int]:
    return abs(literal), literal


def _first(state: State) -> int:
    """Return the first literal of the first clause: the easiest to imitate."""
    return next(rest[0] for rest in state if rest)


def _shortest(state: State) -> int:
    """Return the first literal of the first shortest clause."""
    return min(filter(None, state), key=len)[0]


def _two_sided(state: State) -> int:
    """Return a literal that prunes on both sides: its variable has the largest product of its two sides' weights.

    The rule is Freeman's (1995); a clause weighs 5^-length, as in Li and Anbulagan (1997).
    """
    weight: defaultdict[int, float] = defaultdict(float)
    for rest in filter(None, state):
        share = 5.0 ** -len(rest)
        for literal in rest:
            weight[literal] += share

    def value(variable: int) -> float:
        positive, negative = weight.get(variable, 0.0), weight.get(-variable, 0.0)
        return 1024 * positive * negative + positive + negative

    variable = max(sorted({abs(literal) for literal in weight}), key=value)
    return variable if weight.get(variable, 0.0) >= weight.get(-variable, 0.0) else -variable


_CHOICES: dict[str, Choice] = {
    "first": _first,
    "shortest": _shortest,
    "two_sided": _two_sided,
}
LOWEST = "lowest"
HEURISTICS = (*_CHOICES, LOWEST)
"""How the solver decides; `lowest` also orders unit clauses (see the module of that name)."""
