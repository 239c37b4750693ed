"""Problems of a run file as data: several are gathered and shown together, on one screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from barnraise.core.errors import RunFileError

Path = tuple[str | int, ...]
"""The place in a run file: section, key, index in a list."""

MAX_SHOWN = 15
"""Problems shown at once: one screen."""


@dataclass(frozen=True)
class Problem:
    """One problem (or, as a warning, a doubt): its place, description and remedy.

    `line` counts from 1. `spelling` is the place under another spelling than `path`, as far as that is known.
    """

    path: Path
    message: str
    line: int | None = None
    spelling: Path = ()

    @property
    def key(self) -> str:
        """Return the path as users write it.

        >>> Problem(("workers", 1, "speed"), "").key
        'workers[1].speed'
        """
        return key_of(self.path)

    def __str__(self) -> str:
        written = f" (here {key_of(self.spelling)})" if self.spelling else ""
        return f"{self.key}{written}: {self.message}" if self.path else self.message


def key_of(path: Path) -> str:
    """Return `path` with dots, and indices in brackets."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".")


def refusal(source: str, problems: Sequence[Problem]) -> RunFileError:
    """Return the error that shows `problems` of the run file `source`, in the order of the file."""
    ordered = sorted(problems, key=lambda problem: (problem.line is None, problem.line or 0))
    if len(ordered) == 1:
        line = f":{ordered[0].line}" if ordered[0].line else ""
        return RunFileError(f"{source}{line}: {ordered[0]}", ordered)
    shown = [f"  {_place(problem)}{problem}" for problem in ordered[:MAX_SHOWN]]
    more = [f"  and {len(ordered) - MAX_SHOWN} more"] if len(ordered) > MAX_SHOWN else []
    return RunFileError("\n".join([f"{source} has {len(ordered)} problems:", *shown, *more]), ordered)


def as_rows(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """Return `problems` for programs."""
    return [{"key": problem.key, "line": problem.line, "message": problem.message} for problem in problems]


def shown(value: object, limit: int = 60) -> str:
    """Return `value` for a message: its YAML-like spelling, short, and its type where that is not plain."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"{_cut(repr(value), limit)} (text)"
    if isinstance(value, dict):
        return f"a section of {len(value)} keys"
    if isinstance(value, list | tuple):
        return f"{_cut(str(list(value)), limit)} (a list)"
    return _cut(str(value), limit)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _place(problem: Problem) -> str:
    return f"line {problem.line}: " if problem.line else ""
