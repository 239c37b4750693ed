"""The order of rules in a chain, by their traits (`catalog.Traits`): what is refused, with a remedy."""

from __future__ import annotations

from collections.abc import Sequence

from barnraise.core.errors import OptionError
from barnraise.core.registry import Entry

from .shares import NODE


def in_order(entries: Sequence[Entry]) -> None:
    """Raise OptionError, with the valid chain, for a wrong order."""
    *first, last = entries
    names = [entry.name for entry in entries]
    for place, entry in enumerate(first):
        if not entry.declares.prepares:
            raise OptionError(
                f"aggregation rule '{entry.name}' ends a chain, but stands before '{names[place + 1]}'; "
                f"write {_sorted(entries)}"
            )
    for entry in entries:
        if names.count(entry.name) > 1 and not entry.declares.merges:
            once = ", ".join(dict.fromkeys(names))
            raise OptionError(f"aggregation rule '{entry.name}' stands twice in a chain; write [{once}]")
    if last.declares.prepares:
        raise OptionError(
            f"aggregation rule '{last.name}' only prepares updates; put a rule behind it, for example "
            f"[{last.name}, trimmed_mean]"
        )
    for entry in entries[1:]:
        if _by_node(entry):
            raise OptionError(
                f"aggregation rule '{entry.name}' keeps a value for each node, so it goes in front: "
                f"[{', '.join([entry.name, *_without(names, entry)])}]"
            )
    for place, entry in enumerate(first):
        joined = [other.name for other in first[:place] if _joins(other)]
        if joined and not _joins(entry):
            raise OptionError(
                f"aggregation rule '{entry.name}' works on the update of each node, but stands behind '{joined[0]}', "
                f"which merges several updates into one; write {_sorted(entries)}"
            )
    merging = [entry.name for entry in entries if entry.declares.merges]
    if len(merging) > 1:
        raise OptionError(
            f"aggregation rule '{merging[1]}' stands behind '{merging[0]}', but a merged update belongs to no node; "
            "merge once, with a larger s"
        )


def _sorted(entries: Sequence[Entry]) -> str:
    """Return chains of these rules, one for each rule that can end it."""
    ranked = sorted(entries, key=lambda entry: (_joins(entry), not _by_node(entry)))
    first = dict.fromkeys(entry.name for entry in ranked if entry.declares.prepares)
    ends = dict.fromkeys(entry.name for entry in entries if not entry.declares.prepares)
    return " or ".join(f"[{', '.join([*first, end])}]" for end in ends)


def _without(names: Sequence[str], entry: Entry) -> list[str]:
    return [name for name in names if name != entry.name]


def _joins(entry: Entry) -> bool:
    """Return whether its result combines several nodes."""
    return bool(entry.declares.mixes or entry.declares.merges)


def _by_node(entry: Entry) -> bool:
    """Return whether it keeps something of each node."""
    return any(NODE in kept for kept in entry.declares.keeps)
