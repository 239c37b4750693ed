"""The names of the ways to write a trace, and a formula before it."""

from __future__ import annotations

TERSE, RESTATED = "terse", "restated"
TRAIL, TRAIL_STEPS = "trail", "trail_steps"
TRAIL_STYLES = (TRAIL, TRAIL_STEPS)
STYLES = (TERSE, RESTATED, *TRAIL_STYLES)
"""How a trace is written: the grammar of the first two is in `dpll`, that of the others in `trail`."""

CLAUSES, LITERALS = "clauses", "literals"
PROMPTS = (CLAUSES, LITERALS)
"""The tokens of the formula before a trace: its clauses, or its literals."""


def is_padded(style: str, prompt: str) -> bool:
    """Return whether the formula before a trace is padded to a fixed number of clauses."""
    return prompt == CLAUSES and style not in TRAIL_STYLES
