"""The agreement of a run whose whole exchanged vector is encrypted, from what the controller and workers know of it."""

from __future__ import annotations

import math

from barnraise.core.errors import InputError

from .envelope import Agreement
from .scheme import SumBudget


def agreed(key: str, updates: int, bound: float, values: int) -> Agreement:
    """Return the agreement under the key `NAME/ID`, for sums of `updates` updates that reach `bound` in all.

    Single updates are not judged by their relative rounding: the steps of the sum are what counts over a run.
    """
    name, _, identity = key.partition("/")
    if not identity:
        raise InputError(f"'{key}' names no key; give it as NAME/ID, as `barnraise keys show FILE` prints it")
    budget = SumBudget(updates, bound, reach=bound, error=math.inf)
    return Agreement(name, identity, budget, (0, values))
