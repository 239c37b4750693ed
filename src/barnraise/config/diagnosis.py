"""Errors of a run file in its own terms: pydantic's errors as problems with value, limit and remedy."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from pydantic import ValidationError

from barnraise.config.aliases import ALIASES
from barnraise.config.foreign import NAMED
from barnraise.config.keys import at, expected, known_keys, sections, written
from barnraise.config.problems import Path, Problem, shown
from barnraise.config.values import MAX_COUNT
from barnraise.core.errors import nearest

_TRUTH = {"yes": True, "no": False, "on": True, "off": False, "y": True, "n": False}
"""Words that YAML 1.1 read as truth values, and that are text here."""

_LIST_HEADS = {"workers": "workers[]", "faults": "faults[]"}


def diagnose(error: ValidationError, content: dict[str, Any]) -> list[Problem]:
    """Return the problems behind `error`, the innermost of each place, in the checked `content`.

    A missing key whose misspelling is there is not reported again.
    """
    found: dict[Path, Problem] = {}
    unknown: set[Path] = set()
    for detail in error.errors(include_url=False, include_context=False):
        path = _place(detail["loc"], detail["type"], content)
        if path not in found:
            found[path] = Problem(path, _message(detail["type"], path, detail["input"], content))
        if detail["type"] == "extra_forbidden":
            unknown.add(path)
    misspelled = {(*path[:-1], nearest(str(path[-1]), known_keys(path[:-1], content))) for path in unknown}
    inner = {path[:length] for path in found for length in range(len(path))}
    return [problem for path, problem in found.items() if path not in misspelled and path not in inner]


def _place(loc: Iterable[str | int], error_type: str, content: dict[str, Any]) -> Path:
    """Return the place of `loc` in the file: pydantic also names the members of unions, which are no keys."""
    keys = list(loc)
    if keys[0] == "data" and len(keys) > 1:
        del keys[1]  # the kind of data section
    place: Path = ()
    value: Any = content
    for key in keys:
        inside = key in value if isinstance(value, dict) else isinstance(value, list) and key in range(len(value))
        if inside:
            value = value[key]
            place = (*place, key)
    if error_type == "missing":
        place = (*place, keys[-1])
    if error_type.startswith("union_tag"):
        place = (*place, "kind")
    return place


def _message(error_type: str, path: Path, value: object, content: dict[str, Any]) -> str:
    if error_type == "extra_forbidden":
        return unknown_key(path, content)
    what = expected(path, content)
    if error_type == "missing":
        description = " ".join(at(path, content).get("description", "").split())
        return f"is missing; give {what}{': ' + _lower(description) if description else ''}"
    if error_type.startswith("union_tag"):
        kinds = [key for key in known_kinds() if key]
        given = value.get("kind") if isinstance(value, dict) else None
        close = nearest(given, kinds) if isinstance(given, str) else None
        hint = f"; did you mean '{close}'?" if close else ""
        has = f"is {shown(given)}, but" if given is not None else "is missing; it"
        return f"{has} must be {' or '.join(kinds)}{hint}"
    if isinstance(value, int | float) and value > MAX_COUNT and "whole number at least" in what:
        return f"is {value:.6g}, but must be {what} and at most {MAX_COUNT:.3g} (2^53)"
    close = nearest(value, at(path, content).get("enum", [])) if isinstance(value, str) else None
    hint = f"; did you mean '{close}'?" if close else _unquote(value, what)
    return f"is {shown(value)}, but must be {what}{hint}"


def known_kinds() -> list[str]:
    """Return the kinds of data sections."""
    return list(at(("data",))["discriminator"]["mapping"])


def unknown_key(path: Path, content: dict[str, Any]) -> str:
    """Return the hint for an unknown key: the nearest one here, or the section where it belongs."""
    section, key = path[:-1], str(path[-1])
    here, heading = known_keys(section, content), _heading(section)
    homes = [home for home in _homes().get(key, []) if home != _Home(heading, key)]
    if homes and all(home.key == key for home in homes):
        return f"unknown key here; it belongs under {' or '.join(home.section for home in homes)}"
    if homes:
        return f"unknown key here; it is {' or '.join(dict.fromkeys(map(str, homes)))}"
    if kinds := _kinds_with(section, key):
        have = "have" if len(kinds) > 1 else "has"
        return f"unknown key for kind: {content['data'].get('kind')}; {' and '.join(kinds)} {have} it"
    if key in NAMED:
        return f"unknown key; it is {NAMED[key].hint}"
    spellings = _spellings(heading)
    close = nearest(key, [*here, *spellings, *NAMED])
    if close and close not in NAMED:
        meant = spellings.get(close, _Home(heading, close))
        return f"unknown key; did you mean '{meant.key if meant.section == heading else meant}'?"
    elsewhere = nearest(key, [*_homes(), *NAMED])
    if elsewhere in NAMED:
        return f"unknown key; '{elsewhere}' is {NAMED[elsewhere].hint}"
    if elsewhere:
        home = _homes()[elsewhere][0]
        return f"unknown key; did you mean '{home.key}' under {home.section}?"
    return f"unknown key; known here: {', '.join(here)}"


def _kinds_with(section: Path, key: str) -> list[str]:
    """Return the kinds of data that have a key of the data section."""
    if section != ("data",):
        return []
    return [kind for kind in known_kinds() if key in known_keys(section, {"data": {"kind": kind}})]


class _Home(NamedTuple):
    """A key by its section, as `sections` writes that."""

    section: str
    key: str

    def __str__(self) -> str:
        return f"{self.section}.{self.key}"


@cache
def _homes() -> dict[str, list[_Home]]:
    """Return the section and key of every key and other spelling."""
    homes: dict[str, list[_Home]] = {}
    for _, section, _, keys in sections():
        found = {key.name: _Home(section, key.name) for key in keys} | _spellings(section)
        for name, home in found.items():
            if home not in homes.setdefault(name, []):
                homes[name].append(home)
    return homes


def _spellings(section: str) -> dict[str, _Home]:
    """Return the meaning of the other spellings in a section."""
    return {
        str(alias.spelling[-1]): _Home(written(alias.key[:-1]), str(alias.key[-1]))
        for alias in ALIASES
        if written(alias.spelling[:-1]) == section
    }


def _heading(section: Path) -> str:
    """Return a section as `sections` writes it."""
    if section and isinstance(section[-1], str) and section[0] == "faults" and len(section) > 2:
        return "workers[]"
    return _LIST_HEADS.get(str(section[0]), str(section[0])) if section else ""


def _unquote(value: object, what: str) -> str:
    """Return a hint for a number or truth value that was written as text, or a name where a section is wanted."""
    if isinstance(value, str) and value.isidentifier() and what.startswith("a section with the `kind`"):
        return f"; write {{kind: {value}}}"
    if not isinstance(value, str):
        return "; write it in quotes" if what.startswith(("text", "a name", "the name")) and value is not None else ""
    if what == "true or false" and value.lower() in _TRUTH:
        return f"; write {'true' if _TRUTH[value.lower()] else 'false'}"
    if "number" in what and value.lower() in _TRUTH:
        return f"; {value} is no number: write one in digits"
    is_number = value.strip().lstrip("+-").replace(".", "", 1).replace("e-", "", 1).isdigit()
    return "; write it without quotes" if "number" in what and is_number else ""


def _lower(text: str) -> str:
    text = text.rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
