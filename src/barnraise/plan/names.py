"""The names that keys of the run file take: those of each family's catalog, or of its table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from barnraise.aggregation.catalog import CATALOG as RULES
from barnraise.compression.catalog import CATALOG as CODECS
from barnraise.config.faults import KINDS
from barnraise.config.keys import families
from barnraise.config.problems import Path, Problem
from barnraise.config.schema import RunFile
from barnraise.config.section import Section
from barnraise.core.errors import UnknownNameError
from barnraise.emulation.attacks.catalog import CATALOG as ATTACKS
from barnraise.matching.catalog import CATALOG as SCHEDULERS
from barnraise.models.architectures import ARCHITECTURES
from barnraise.models.problems import CATALOG as PROBLEMS
from barnraise.staleness.base import WEIGHTINGS
from barnraise.training.catalog import CATALOG as OUTER
from barnraise.training.catalog import INNER, PRECISIONS
from barnraise.training.schedule import SHAPES
from barnraise.transport.links.presets import LINKS

PLAIN: Mapping[str, Iterable[str]] = {
    "fault": KINDS,
    "precision": PRECISIONS,
    "schedule": SHAPES,
    "staleness weighting": WEIGHTINGS,
}
"""Families whose members have no options: a table of names, checked here."""

CATALOGED: Mapping[str, Callable[[], Iterable[str]]] = {
    "aggregation rule": RULES.names,
    "architecture": lambda: ARCHITECTURES,
    "attack": ATTACKS.names,
    "codec": CODECS.names,
    "inner optimizer": INNER.names,
    "link preset": lambda: LINKS,
    "outer optimizer": OUTER.names,
    "portable codec": lambda: [name for name, entry in sorted(CODECS.entries.items()) if entry.declares.portable],
    "problem": PROBLEMS.names,
    "scheduler": SCHEDULERS.names,
}
"""The others, checked where their options are."""


def names() -> dict[str, list[str]]:
    """Return the names of every family, by the schema's name of it."""
    return {family: list(known) for family, known in PLAIN.items()} | {
        family: list(listed()) for family, listed in CATALOGED.items()
    }


def name_problems(run_file: RunFile) -> Iterator[Problem]:
    """Yield problems of names that no table of `PLAIN` has."""
    for path, section in _sections(run_file, ()):
        for key, family in families(type(section).__name__).items():
            name = getattr(section, key)
            if family in PLAIN and name is not None and name not in PLAIN[family]:
                yield Problem((*path, key), str(UnknownNameError(family, name, PLAIN[family])))


def _sections(value: object, path: Path) -> Iterator[tuple[Path, Section]]:
    if isinstance(value, Section):
        if path:
            yield path, value
        for key, inner in value:
            yield from _sections(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _sections(inner, (*path, index))
