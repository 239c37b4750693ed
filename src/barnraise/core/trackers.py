"""The experiment trackers by name, and the Python packages that they need; imports none of them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

from barnraise.core.errors import InputError, UnknownNameError

TRACKERS = {"mlflow": "mlflow", "tensorboard": "tensorboardX", "trackio": "trackio", "wandb": "wandb"}
"""The Python module that each tracker needs, which barnraise's extra of the tracker's name installs."""


def why_missing(name: str) -> str:
    """Return what the tracker `name` lacks on this machine, with the remedy; empty when nothing."""
    module = TRACKERS[name]
    if importlib.util.find_spec(module) is not None:
        return ""
    return f"'{name}' needs the Python package {module}: pip install 'barnraise[{name}]'"


def require(names: Iterable[str]) -> None:
    """Raise UnknownNameError or InputError unless this machine has these trackers."""
    for name in names:
        if name not in TRACKERS:
            raise UnknownNameError("tracker", name, TRACKERS)
        if why := why_missing(name):
            raise InputError(why)
