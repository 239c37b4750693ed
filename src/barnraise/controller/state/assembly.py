"""Construction of the parts of the controller's state machine: each after the parts that it needs.

A part declares its needs as parameters of `__init__`, by their types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast, get_type_hints

from barnraise.controller.state.part import Context, Part

AnyPart = TypeVar("AnyPart", bound=Part)


class Parts:
    """The parts of one machine, by their classes, in the order in which they handle events and decisions, and look."""

    def __init__(self, parts: dict[type[Part], Part]) -> None:
        self._parts = parts

    def __getitem__(self, part: type[AnyPart]) -> AnyPart:
        return cast("AnyPart", self._parts[part])

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts.values())


def needs(part: type[Part]) -> dict[str, type[Part]]:
    """Return the parts that a part declares as parameters of `__init__`, by the parameters' names."""
    hints = get_type_hints(part.__init__)
    return {name: kind for name, kind in hints.items() if isinstance(kind, type) and issubclass(kind, Part)}


def in_order(parts: Sequence[type[Part]]) -> list[type[Part]]:
    """Return `parts` in their order, but each after all that it needs.

    Raises ValueError where parts need each other.
    """
    order: dict[type[Part], None] = {}

    def place(part: type[Part], behind: tuple[type[Part], ...]) -> None:
        if part in behind:
            raise ValueError(f"parts need each other: {' -> '.join(one.__name__ for one in (*behind, part))}")
        if part not in order:
            for needed in needs(part).values():
                place(needed, (*behind, part))
            order[part] = None

    for part in parts:
        place(part, ())
    return list(order)


def assemble(parts: Sequence[type[Part]], context: Context, instead: Mapping[type[Part], type[Part]] = {}) -> Parts:
    """Make one of each of `parts`, and of all that these need; of some a subclass `instead`, with the same needs."""
    made: dict[type[Part], Part] = {}
    for part in in_order(parts):
        make: Any = instead.get(part, part)
        made[part] = make(context, **{name: made[needed] for name, needed in needs(part).items()})
    return Parts(made)
