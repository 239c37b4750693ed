"""Matching tasks to nodes: schedulers by name, deferred acceptance, stability, and a market kept stable under churn.

    scheduler = matching.create("gale_shapley")
    for task_id, node_id in scheduler.assign(tasks, nodes): ...

Names are loaded when first used: importing this package imports neither numpy nor torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .catalog import CATALOG

if TYPE_CHECKING:
    from .base import NodeView, Scheduler, TaskView
    from .gale_shapley import deferred_acceptance, deferred_acceptance_from_lists
    from .market import Market
    from .metrics import MatchingTally, TimeAverage, regret
    from .optimum import assignment_optimum, relaxed_optimum
    from .preferences import Preferences
    from .stability import blocking_density, blocking_pairs, stability_index

__all__ = [
    "CATALOG",
    "Market",
    "MatchingTally",
    "NodeView",
    "Preferences",
    "Scheduler",
    "TaskView",
    "TimeAverage",
    "assignment_optimum",
    "blocking_density",
    "blocking_pairs",
    "create",
    "deferred_acceptance",
    "deferred_acceptance_from_lists",
    "regret",
    "relaxed_optimum",
    "stability_index",
]

_HOMES = {
    "Market": "market",
    "NodeView": "base",
    "Preferences": "preferences",
    "Scheduler": "base",
    "MatchingTally": "metrics",
    "TaskView": "base",
    "TimeAverage": "metrics",
    "assignment_optimum": "optimum",
    "blocking_density": "stability",
    "blocking_pairs": "stability",
    "deferred_acceptance": "gale_shapley",
    "deferred_acceptance_from_lists": "gale_shapley",
    "regret": "metrics",
    "relaxed_optimum": "optimum",
    "stability_index": "stability",
}


def create(name: str, **options: Any) -> Scheduler:
    """Create the scheduler `name`; UnknownNameError or OptionError give the value, the limit and the nearest name."""
    scheduler: Scheduler = CATALOG.create(name, **options)
    return scheduler


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
