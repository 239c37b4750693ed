"""Messages with hostile values, made from the catalogue's own schema: a new kind or field is covered as it is added.

A message is drawn field by field. Most fields get what makes it look right (`known`: what was last heard under that
name, so that an offer is of a task that exists); the others get an edge of what their schema allows, or what it does
not allow at all.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, get_args

import msgspec
from msgspec import inspect

from barnraise.wire.messages import FromController, FromWorker, Message

FROM_WORKER: tuple[type[Message], ...] = get_args(FromWorker)
FROM_CONTROLLER: tuple[type[Message], ...] = get_args(FromController)

FLOATS = (
    0.0, -0.0, 5e-324, 1e-310, 1e-200, 1e-9, 1e-3, 0.01, 1.0, 7.0, 1e3, 1e6, 1e9, 1e12, 1e15, 1e16, 1e300, 1e308,
    -5e-324, -1.0, -1e308, math.inf, -math.inf, math.nan,
)  # fmt: skip
INTEGERS = (
    0, 1, 2, 3, 63, 64, 65, 255, 256, 2**14, 2**16, 2**18, 2**20, 2**31 - 1, 2**32, 2**44, 2**53 - 1, 2**53, 2**53 + 1,
    2**63 - 1, 2**63, 2**64 - 1, -1, -2, -(2**31), -(2**53), -(2**63),
)  # fmt: skip
FILLS = (b"\x00", b"\x01", b"\x80", b"\xff")  # float32 numbers: zero, tiny, -0 and similar, not one
TEXTS = (
    "", "a", "-rf", "..", "../../etc/passwd", "\x00", "\x1b[2J\x1b[31mred", "\x1b]0;title\x07", "\u202eevil",
    "[red]x[/red]", "%s%n{0}", "'; DROP TABLE nodes;--", "😀" * 30, "a" * 64, "a" * 65, "a" * 120, "a" * 2000,
    "a" * 2001, "A" * 16000, "0" * 64, "f" * 64, "F" * 64, "0" * 63 + "\n", "train", "flush", "none", "honest",
)  # fmt: skip
REMEMBERED = 3
"""Values of a name that are remembered: few, so that the fields of a message often fit together."""

Drawer = Callable[["Hostile", float, bool], Any]
"""Draws a value of one type: from whom, how strange, and whether the schema must allow it."""


@cache
def drawer(kind: type[Message]) -> Drawer:
    """Return the drawer of messages of this kind."""
    return _drawer(inspect.type_info(kind), "")


def _drawer(kind: inspect.Type, name: str) -> Drawer:
    match kind:
        case inspect.Metadata(type=inner):
            return _drawer(inner, name)
        case inspect.UnionType(types=types):
            several = [_drawer(inner, name) for inner in types]
            return lambda hostile, strangeness, allowed: hostile.rng.choice(several)(hostile, strangeness, allowed)
        case inspect.StructType():
            return _or_known(name, _struct(kind))
        case inspect.VarTupleType(item_type=item, min_length=least, max_length=most):
            return _or_known(name, _several(_drawer(item, ""), least or 0, most or 64))
        case inspect.DictType(key_type=key, value_type=value):
            return _or_known(name, _pairs(_drawer(key, ""), _drawer(value, "")))
    return _or_known(name, _choice(*_edges(kind)))


def _or_known(name: str, draw: Drawer) -> Drawer:
    """Return a drawer of strange values, or else of the values that are known under this name, if any."""

    def either(hostile: Hostile, strangeness: float, allowed: bool) -> Any:
        if hostile.rng.random() < strangeness:
            if not allowed and hostile.rng.random() < 0.4:
                return hostile.anything()
            return draw(hostile, 1.0, allowed)
        known = hostile.known.get(name)
        return hostile.rng.choice(known) if known else draw(hostile, strangeness, allowed)

    return either


def _struct(kind: inspect.StructType) -> Drawer:
    fields = [(field.encode_name, field.required, _drawer(field.type, field.name)) for field in kind.fields]

    def struct(hostile: Hostile, strangeness: float, allowed: bool) -> Any:
        strangeness = min(strangeness, 0.5)
        if kind.array_like:
            return [draw(hostile, strangeness, allowed) for _, _, draw in fields]
        values = {} if kind.tag_field is None else {kind.tag_field: kind.tag}
        for name, required, draw in fields:
            if required or hostile.rng.random() < 0.7:
                values[name] = draw(hostile, strangeness, allowed)
        return values

    return struct


def _several(draw: Drawer, least: int, most: int) -> Drawer:
    def several(hostile: Hostile, strangeness: float, allowed: bool) -> Any:
        count = hostile.rng.choice((0, 1, 1, 2, 3, min(most, 70) + (not allowed)) if strangeness == 1.0 else (0, 1, 2))
        count = max(count, least) if allowed or strangeness < 1.0 else count
        return [draw(hostile, min(strangeness, 0.5), allowed) for _ in range(count)]

    return several


def _pairs(key: Drawer, value: Drawer) -> Drawer:
    def pairs(hostile: Hostile, strangeness: float, allowed: bool) -> Any:
        count = hostile.rng.choice((0, 1, 2))
        return {key(hostile, 1.0, True): value(hostile, strangeness, allowed) for _ in range(count)}

    return pairs


def _choice(within: Sequence[Any], beyond: Sequence[Any]) -> Drawer:
    """Return a drawer of numbers, texts or similar values: an edge of the allowed values, or a value beyond it.

    It draws an ordinary value when it is not strange.
    """
    ordinary = within[min(1, len(within) - 1)]

    def choice(hostile: Hostile, strangeness: float, allowed: bool) -> Any:
        if strangeness < 1.0:
            return ordinary
        return hostile.rng.choice(within if allowed else beyond)

    return choice


def _edges(kind: inspect.Type) -> tuple[Sequence[Any], Sequence[Any]]:
    """The values of the lists above that the schema of a number or text allows, and all that are of its sort."""
    match kind:
        case inspect.FloatType(gt=above, ge=low, le=high):
            numbers = [v for v in FLOATS if (low is None or v >= low) and (high is None or v <= high)]
            return [v for v in numbers if above is None or v > above], FLOATS
        case inspect.IntType(ge=low, le=high):
            return [v for v in INTEGERS if (low is None or v >= low) and (high is None or v <= high)], INTEGERS
        case inspect.StrType(min_length=least, max_length=most, pattern=pattern):
            fits = [t for t in TEXTS if (least or 0) <= len(t) <= (most or len(t))]
            return [t for t in fits if pattern is None or re.search(pattern, t)], TEXTS
        case inspect.BytesType(min_length=least, max_length=most):
            return [fill * (least or 0) for fill in FILLS], [
                fill * n for fill in FILLS for n in (0, 1, 2 * (most or 1))
            ]
        case inspect.LiteralType(values=values):
            return list(values), [*values, *TEXTS]
        case inspect.BoolType():
            return (False, True), (False, True, 1, None)
        case inspect.NoneType():
            return (None,), (None, 0)
    raise AssertionError(f"the schema has values of a sort that is not drawn yet: {kind}")


class Hostile:
    """Draws messages. `known` are values by the name of their field, those that were heard last."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.known: dict[str, list[Any]] = {}

    def learn(self, values: Any) -> None:
        """Remember what a message (or a part of one, in plain values) said, by the names of its fields."""
        if isinstance(values, dict):
            for name, value in values.items():
                self.remember(name, value)
                self.learn(value)
        elif isinstance(values, list | tuple):
            for value in values:
                self.learn(value)

    def remember(self, name: str, *values: Any) -> None:
        """These are what looks right under `name`."""
        self.known[name] = [*self.known.get(name, ()), *values][-REMEMBERED:]

    def plain(self, kind: type[Message], strangeness: float, *, allowed: bool) -> dict[str, Any]:
        """A message in plain values, of which a share of `strangeness` is strange; `allowed` by the schema, or not."""
        values: dict[str, Any] = drawer(kind)(self, min(strangeness, 0.99), allowed)
        return values

    def message(self, kind: type[Message], strangeness: float = 0.3) -> Message:
        """A message that decodes."""
        return msgspec.msgpack.decode(msgspec.msgpack.encode(self.plain(kind, strangeness, allowed=True)), type=kind)

    def anything(self, depth: int = 0) -> Any:
        """A value of any sort, nested or not."""
        rng = self.rng
        pick = rng.randrange(9 if depth < 3 else 7)
        if pick < 6:
            simple = (INTEGERS, FLOATS, TEXTS, (None, True, False), (rng.randbytes(rng.randrange(40)),))
            return rng.choice(simple[pick % len(simple)])
        if pick == 6:
            return msgspec.msgpack.Ext(rng.randrange(-128, 128), rng.randbytes(rng.randrange(20)))
        inner = [self.anything(depth + 1) for _ in range(rng.randrange(5))]
        return inner if pick == 7 else {rng.choice(TEXTS): value for value in inner}


def plain(message: Message) -> Any:
    """The fields of a message, down to plain values."""
    return msgspec.to_builtins(message)


def kinds_in_turn(kinds: Iterable[type[Message]], rng: random.Random) -> Iterator[type[Message]]:
    """Each kind as often as any other, in an order that chance has made."""
    every = list(kinds)
    while True:
        rng.shuffle(every)
        yield from every
