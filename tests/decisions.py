"""Decisions for tests, of which a few things matter and the rest is as usual. Fields go by their columns' names."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from barnraise.core.types import ParameterRange, RowRange
from barnraise.ledger.decisions import Assigned, Columns, Decision, Judged

SPAN = ParameterRange(0, 10)
ASSIGNED: dict[str, Any] = {
    "kind": "train",
    "base": 0,
    "tokens": 400,
    "local_steps": 4,
    "rows": (RowRange(0, 0, 4),),
    "cursor": 4,
    "max_staleness": 50,
    "learning_rate": 0.1,
    "parameters": SPAN,
}
JUDGED: dict[str, Any] = {
    "verdict": "accepted",
    "reason": "",
    "base": 0,
    "steps": 4,
    "loss": 2.0,
    "seconds": 4.0,
    "num_bytes": 40,
    "digest": "ab" * 32,
    "version": 0,
    "staleness": 0,
    "tokens": 400,
    "norm": 0.1,
    "parameters": SPAN,
    "weight": 1.0,
}
SomeDecision = TypeVar("SomeDecision", bound=Decision)


def assigned(time: float, assignment: int, node: str, **changes: Any) -> Assigned:
    """A piece of work for `node`."""
    return grouped(Assigned, ASSIGNED | {"time": time, "assignment": assignment, "node": node} | changes)


def judged(time: float, assignment: int, node: str, **changes: Any) -> Judged:
    """A verdict on what `node` made of it."""
    return grouped(Judged, JUDGED | {"time": time, "assignment": assignment, "node": node} | changes)


def grouped(kind: type[SomeDecision], columns: dict[str, Any]) -> SomeDecision:
    """A decision, of the values of its columns."""
    values = dict(columns)
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, Columns):
            there = [name for name in field.type.__struct_fields__ if name in values]
            values[field.name] = field.type(**{name: values.pop(name) for name in there})
    return kind(**values)
