"""The difference of two pictures of one view: small enough to be sent again and again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LARGEST_SHARE = 0.5
"""Share of a table's entries above which it is sent as a whole."""


def patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the changes that make `new` of `old`; None where there are none.

    `set` has values by key; `in` has values by key and entry, of lists (by index) and tables; `out` the entries of
    tables that are gone, by key.

    >>> patch({"a": 1, "b": [1, 2, 3, 4]}, {"a": 1, "b": [1, 2, 3, 5, 6]})
    {'in': {'b': {'3': 5, '4': 6}}}
    >>> patch({"c": {"x": 1, "y": 2, "z": 3}}, {"c": {"x": 1, "y": 2}})
    {'out': {'c': ['z']}}
    """
    whole: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    gone: dict[str, list[str]] = {}
    for key, value in new.items():
        before = old.get(key)
        if key in old and before == value:
            continue
        changed, lost = _entries(before, value)
        if changed is None:
            whole[key] = value
            continue
        if changed:
            parts[key] = changed
        if lost:
            gone[key] = lost
    found = {"set": whole, "in": parts, "out": gone}
    return {name: part for name, part in found.items() if part} or None


def _entries(old: Any, new: Any) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the changed and the lost entries; None where the value is better sent as a whole."""
    if isinstance(old, list) and isinstance(new, list) and 4 <= len(old) <= len(new):
        changed = {str(at): value for at, value in enumerate(new) if at >= len(old) or old[at] != value}
        lost = []
    elif isinstance(old, dict) and isinstance(new, dict):
        changed = {key: value for key, value in new.items() if key not in old or old[key] != value}
        lost = [key for key in old if key not in new]
    else:
        return None, []
    if len(changed) + len(lost) > max(3, LARGEST_SHARE * len(new)):
        return None, []
    return changed, lost
