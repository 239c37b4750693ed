"""From a YAML file (or a mapping) to a checked `RunFile`, and back to YAML."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

import yaml
from pydantic import ValidationError

from barnraise.config.aliases import canonical
from barnraise.config.diagnosis import diagnose
from barnraise.config.document import Document, read
from barnraise.config.problems import Problem, refusal
from barnraise.config.schema import RunFile
from barnraise.core.errors import RunFileError

Source: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | RunFile
"""A run file as callers give it: its path, a mapping of its sections, or loaded before."""


def load(source: Source, overrides: Mapping[str, Any] | None = None) -> RunFile:
    """Load the run file at a path, or in a mapping of sections.

    `overrides` maps dotted keys to values that replace the file's: {"training.tokens": 1000}. Raises RunFileError,
    which lists every problem with its place.
    """
    return build(document(source), overrides)


def document(source: Source) -> Document:
    """Return the content of `source`, not checked against the schema yet; RunFileError when it cannot be read."""
    if isinstance(source, RunFile):
        return Document("run file", source.model_dump(mode="json"))
    if isinstance(source, Mapping):
        return Document("run file", dict(source))
    return read(source)


def build(document: Document, overrides: Mapping[str, Any] | None = None) -> RunFile:
    """Check `document` against the schema; RunFileError lists every problem."""
    given = canonical(_without_empty(document.content))
    changes = canonical(nested(overrides or {}), given.content)
    problems = given.problems + changes.problems
    content = _merged(given.content, changes.content)
    run_file = None
    try:
        run_file = RunFile.model_validate(content)
    except ValidationError as error:
        problems += diagnose(error, content)
    if problems or run_file is None:
        raise refusal(document.name, located(problems, document))
    return run_file


def located(problems: list[Problem], document: Document) -> list[Problem]:
    """Return `problems` with their lines in `document`, and its spellings of their keys."""
    given = canonical(document.content)
    found = [(problem, given.spelling(problem.path)) for problem in problems]
    return [Problem(some.path, some.message, document.line(at or some.path), at) for some, at in found]


def dump(run_file: RunFile) -> str:
    """Return `run_file` as YAML with every key written out; `load` gives the same run file back."""
    content = run_file.model_dump(mode="json")
    text: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)
    return text


def _without_empty(content: dict[str, Any]) -> dict[str, Any]:
    """Drop sections of which everything is commented out."""
    return {key: value for key, value in content.items() if value is not None}


def nested(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return values under dotted keys as sections; RunFileError where one key is inside another."""
    result: dict[str, Any] = {}
    for dotted, value in overrides.items():
        *sections, key = dotted.split(".")
        target = result
        for section in sections:
            target = target.setdefault(section, {})
            if not isinstance(target, dict):
                raise RunFileError(f"override '{dotted}' is inside '{section}', which is overridden too; keep one")
        target[key] = value
    return result


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
