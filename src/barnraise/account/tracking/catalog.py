"""The experiment trackers by name; imports none of them."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from barnraise.account.tracking.base import Tracker
from barnraise.core.errors import InputError, UnknownNameError


@dataclass(frozen=True)
class Entry:
    """A tracker: the module that it needs, which barnraise's extra of the tracker's name installs, and its class."""

    module: str
    target: str


CATALOG = {
    "mlflow": Entry("mlflow", "Mlflow"),
    "tensorboard": Entry("tensorboardX", "TensorBoard"),
    "trackio": Entry("trackio", "Trackio"),
    "wandb": Entry("wandb", "Wandb"),
}


def why_missing(name: str) -> str:
    """Return what the tracker `name` lacks on this machine, with the remedy; empty when nothing."""
    module = CATALOG[name].module
    if importlib.util.find_spec(module) is not None:
        return ""
    return f"'{name}' needs the Python package {module}: pip install 'barnraise[{name}]'"


def require(names: Iterable[str]) -> None:
    """Raise UnknownNameError or InputError unless this machine has these trackers."""
    for name in names:
        if name not in CATALOG:
            raise UnknownNameError("tracker", name, CATALOG)
        if why := why_missing(name):
            raise InputError(why)


def open_tracker(name: str, run: str, folder: Path) -> Tracker:
    """Open the tracker `name` for a run, whose files go into `folder`."""
    module = importlib.import_module("barnraise.account.tracking.trackers")
    return cast("Tracker", getattr(module, CATALOG[name].target)(run, folder))
