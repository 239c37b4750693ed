"""The budget of differential privacy that a run keeps, and what is spent of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from barnraise.core.text import printable
from barnraise.ledger import notes

MOST_UNIT = 40
"""Letters of the name of a unit that are shown."""


@dataclass(frozen=True)
class SpentBudget:
    """A run's budget for one unit, and the newest count; None for a run without one, and before its first task."""

    budget: notes.PrivacyBudget | None = None
    newest: notes.PrivacySpent | None = None

    @property
    def epsilon(self) -> float:
        """Return the epsilon that is spent."""
        return self.newest.epsilon if self.newest is not None else 0.0

    def __str__(self) -> str:
        if self.budget is None:
            return "no budget of differential privacy"
        budget, steps = self.budget, self.newest.steps if self.newest is not None else 0
        unit = printable(budget.unit, MOST_UNIT)
        return (
            f"epsilon {self.epsilon:.3g} of {budget.epsilon:g} is spent, at delta {budget.delta:g} for one "
            f"{unit} ({steps:,} of {budget.most:,} steps with noise of {budget.noise:g} times the clip)"
        )

    def as_json(self) -> dict[str, Any] | None:
        """Return the same for a program; None without a budget."""
        if self.budget is None:
            return None
        budget = self.budget
        return {
            "unit": printable(budget.unit, MOST_UNIT),
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "noise": budget.noise,
            "spent": self.epsilon,
            "steps": self.newest.steps if self.newest is not None else 0,
            "most_steps": budget.most,
        }
