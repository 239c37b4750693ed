"""Metrics that are Python functions of the host, "package.module:function"."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from barnraise.core.errors import OptionError


def load(name: str, run: Path | None = None) -> Callable[..., Any]:
    """Import a function, also from the folder in which barnraise is started; OptionError when there is none.

    Nothing is imported from the folder of a `run`: a standby's copy of it has files of another machine.
    """
    module, _, function = name.partition(":")
    parts = module.split(".")
    if not (function.isidentifier() and all(part.isidentifier() for part in parts)):
        raise OptionError(f"'{name}' is no Python function; write package.module:function")
    if run is not None:
        _require_outside(name, parts[0], run)
    try:
        with _with_folder():
            found = getattr(importlib.import_module(module), function)
    except (Exception, SystemExit) as error:  # a user's module may raise any exception
        raise OptionError(
            f"'{name}' cannot be imported: {type(error).__name__}: {error}; install its package, or start barnraise in "
            f"the folder of {parts[0]}.py"
        ) from error
    if not callable(found):
        raise OptionError(f"'{name}' is a {type(found).__name__}; name a function of (module, rows, tokenizer)")
    function_found: Callable[..., Any] = found
    return function_found


def _require_outside(name: str, package: str, run: Path) -> None:
    """Raise OptionError where the first package of a name lies in the run's folder, or around it."""
    run = run.resolve()
    for entry in {*sys.path, os.getcwd()}:
        place = (Path(entry) / package).resolve()
        if run.is_relative_to(place) or place.is_relative_to(run):
            raise OptionError(f"'{name}' would be imported from the run's folder {run}, which holds no code")


@contextmanager
def _with_folder() -> Iterator[None]:
    """Let modules of the present folder be found, behind all others."""
    folder = os.getcwd()
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
