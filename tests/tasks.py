"""Tasks for tests, of which a few things matter and the rest is as usual."""

from __future__ import annotations

from typing import Any

from barnraise.core.types import Batches, News, ParameterRange, RowRange, Train, Update


def train(
    number: int = 1,
    *,
    steps: int = 4,
    rows: tuple[RowRange, ...] = (RowRange(0, 0, 8),),
    batch_size: int = 2,
    seed: int = 0,
    skip: int = 0,
    updates: tuple[Update, ...] = (),
    merged: int = 0,
    share: float = 1.0,
    **changes: Any,
) -> Train:
    """A training task of 100 parameters, with `changes`."""
    usual: dict[str, Any] = {
        "base": 0,
        "tokens": 24,
        "learning_rate": 0.1,
        "rung": 0,
        "parameters": ParameterRange(0, 100),
        "max_staleness": 5,
    }
    batches, news = Batches(rows, batch_size, seed, skip), News(updates, merged, share)
    return Train(id=number, local_steps=steps, batches=batches, news=news, **(usual | changes))
