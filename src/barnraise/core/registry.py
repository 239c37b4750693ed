"""Policies by name: strict, torch-free catalogs.

Each family (aggregation, compression, ...) lists its algorithms in a `catalog.py` of plain data: name, class location,
options with their ranges, and traits. `plan` reads catalogs without importing torch; `create` imports only the class
that is asked for. An unlisted name is looked up among the installed entry points of the group `barnraise.<family>`
before it is refused, with the nearest known name.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from barnraise.core.errors import OptionError, UnknownNameError, nearest

SHARE_LIMIT = 0.5
"""Upper bound (exclusive) of the share of attackers: no rule withstands half of the contributions."""

WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", dict: "a section"}
"""Option types in the words of error messages."""


@dataclass(frozen=True)
class Option:
    """One option of an algorithm: its type, default, and closed range or list of `choices`.

    `share`: the option may also be given as a share of a number that becomes known later.
    """

    name: str
    type: type
    default: Any
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Any, ...] = ()
    share: bool = False

    def check(self, owner: str, value: Any) -> Any:
        """Return `value` as this option's type.

        Raises OptionError with value and limit if it is of another type or out of range.
        """
        if self.type is float and type(value) is int:
            value = float(value)
        if value is None and self.default is None:
            return None
        if self.share and type(value) is float:
            if not 0 <= value < SHARE_LIMIT:
                raise OptionError(
                    f"{owner}: option '{self.name}' is {value}, but must be {WORDS[self.type]}, or a share from "
                    f"0 to below {SHARE_LIMIT}"
                )
            if value:
                return value
            value = 0
        if type(value) is not self.type:
            raise OptionError(
                f"{owner}: option '{self.name}' is {value!r} ({type(value).__name__}), but must be {WORDS[self.type]}"
            )
        if self.choices and value not in self.choices:
            listed = ", ".join(map(str, self.choices))
            raise OptionError(f"{owner}: option '{self.name}' is {value}, but must be one of {listed}")
        if isinstance(value, int | float):
            low, high = self.minimum, self.maximum
            inside = (low is None or value >= low) and (high is None or value <= high)
            if not inside:
                limits = " and ".join(
                    text for text, bound in ((f"at least {low}", low), (f"at most {high}", high)) if bound is not None
                )
                raise OptionError(f"{owner}: option '{self.name}' is {value}, but must be {limits}")
        return value


@dataclass(frozen=True)
class Entry:
    """One algorithm of a family.

    `target` is "module:Class"; `declares` holds the family's traits (see the family's catalog); `aliases` are other
    accepted names.
    """

    name: str
    target: str
    summary: str
    options: tuple[Option, ...] = ()
    declares: Any = None
    aliases: tuple[str, ...] = ()

    @property
    def known_options(self) -> frozenset[str]:
        """Return the names of the algorithm's options."""
        return frozenset(option.name for option in self.options)

    def resolve(self, family: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return `given` checked against the options, with defaults filled in; unknown options are refused."""
        known = {option.name: option for option in self.options}
        owner = f"{family} '{self.name}'"
        for key in given:
            if key not in known:
                close = nearest(key, known)
                hint = f"; did you mean '{close}'?" if close else f" (known: {', '.join(known) or 'none'})"
                raise OptionError(f"{owner} has no option '{key}'{hint}")
        return {
            name: option.check(owner, given[name]) if name in given else option.default
            for name, option in known.items()
        }


@dataclass
class Catalog:
    """A family's algorithms by name.

    `family` is the users' word for one of them ("aggregation rule").
    """

    family: str
    group: str
    entries: dict[str, Entry] = field(default_factory=dict)
    _aliases: dict[str, str] = field(default_factory=dict)

    def __init__(self, family: str, group: str, entries: Iterable[Entry]) -> None:
        self.family, self.group = family, group
        self.entries = {entry.name: entry for entry in entries}
        self._aliases = {alias: entry.name for entry in self.entries.values() for alias in entry.aliases}

    def names(self) -> list[str]:
        return sorted(self.entries)

    def entry(self, name: str) -> Entry:
        """Return the entry called `name`; UnknownNameError with the nearest known name if there is none."""
        name = self._aliases.get(name, name)
        if name not in self.entries:
            for point in metadata.entry_points(group=self.group):
                if point.name == name:
                    self.entries[name] = point.load()
                    break
            else:
                raise UnknownNameError(self.family, name, self.entries)
        return self.entries[name]

    def resolve(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the full, checked options of `name`, without importing the algorithm."""
        return self.entry(name).resolve(self.family, options)

    def create(self, name: str, **options: Any) -> Any:
        """Import and build the algorithm `name` with checked options."""
        resolved = self.entry(name).resolve(self.family, options)
        return self.load(name)(**resolved)

    def load(self, name: str) -> Any:
        """Import the class of `name`."""
        module, _, attribute = self.entry(name).target.partition(":")
        return getattr(importlib.import_module(module), attribute)
