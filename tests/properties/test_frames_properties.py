"""Decoding of any bytes gives a message or a WireError, and every message survives encoding and decoding."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from barnraise.controller.shell.role_handlers import decode_incoming
from barnraise.core.errors import WireError
from barnraise.trust.roles import ROLES
from barnraise.wire import decode_from_controller, decode_from_worker, encode
from barnraise.wire import messages as m
from barnraise.wire.frames import decoder

SIDES = tuple(side for role in ROLES.values() for side in (role.says, role.hears))
MESSAGES = tuple(dict.fromkeys(kind for side in SIDES for kind in side))
DECODERS_OF = {kind: decoder(functools.reduce(operator.or_, side), m.HEADER_LIMIT) for side in SIDES for kind in side}
DECODERS = (decode_from_worker, decode_from_controller, lambda frames: decode_incoming(frames, enrolled=False))


def values(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Values of a msgspec type, within the bounds that its schema names."""
    match kind:
        case inspect.Metadata(type=inner):
            return values(inner)
        case inspect.StructType(cls=cls, fields=fields):
            return st.builds(cls, **{field.name: values(field.type) for field in fields})
        case inspect.UnionType(types=types):
            return st.one_of(*map(values, types))
        case inspect.VarTupleType(item_type=item, min_length=least, max_length=most):
            return st.lists(values(item), min_size=least or 0, max_size=min(most, 6)).map(tuple)
        case inspect.DictType(key_type=key, value_type=value, max_length=most):
            return st.dictionaries(values(key), values(value), max_size=min(most, 6))
        case inspect.LiteralType(values=choices):
            return st.sampled_from(choices)
        case inspect.StrType(pattern=None, max_length=most):
            return st.text(max_size=most)
        case inspect.StrType(pattern=pattern):
            return st.from_regex(pattern, fullmatch=True).filter(lambda text: len(text) <= kind.max_length)
        case inspect.BytesType(min_length=least, max_length=most):
            return st.binary(min_size=least or 0, max_size=most)
        case inspect.IntType(ge=low, le=high):
            return st.integers(low, high)
        case inspect.FloatType(gt=None, ge=low, le=high):
            return st.floats(low, high, allow_nan=False)
        case inspect.FloatType(gt=low, le=high):
            return st.floats(low, high, exclude_min=True, allow_nan=False)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
    raise AssertionError(kind)


@cache
def strategy(kind: type[m.Message]) -> st.SearchStrategy[m.Message]:
    return values(inspect.type_info(kind))


def unbounded(kind: inspect.Type, path: str) -> list[str]:
    """The places under `kind` where a stranger could make a value as large as he likes, or not a number."""
    match kind:
        case inspect.Metadata(type=inner):
            return unbounded(inner, path)
        case inspect.StructType(cls=cls, fields=fields):
            return [found for field in fields for found in unbounded(field.type, f"{cls.__name__}.{field.name}")]
        case inspect.UnionType(types=types):
            return [found for inner in types for found in unbounded(inner, path)]
        case inspect.VarTupleType(item_type=item, max_length=most):
            return unbounded(item, path) + ([] if most else [path])
        case inspect.DictType(key_type=key, value_type=value, max_length=most):
            return unbounded(key, path) + unbounded(value, path) + ([] if most else [path])
        case inspect.StrType(max_length=most) | inspect.BytesType(max_length=most):
            return [] if most else [path]
        case inspect.IntType(ge=low, gt=above, le=high) | inspect.FloatType(ge=low, gt=above, le=high):
            return [path] if (low is None and above is None) or high is None else []
        case inspect.LiteralType() | inspect.BoolType() | inspect.NoneType():
            return []
    return [path]


def understand(decode: Callable[[list[Any]], Any], frames: list[Any]) -> m.Message | None:
    """The message, or None for a WireError with a short printable text; any other exception fails the test."""
    try:
        message, _ = decode(frames)
    except WireError as error:
        text = str(error)
    else:
        assert isinstance(message, m.Message)
        return message
    assert text.isprintable()
    assert len(text) < 400
    return None


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_every_field_is_bounded(kind: type[m.Message]) -> None:
    found = unbounded(inspect.type_info(kind), kind.__name__)
    kinds = ("Contribution", "Finding", "Sketched", "Vetted", "Endorsed", "Confirmed", "Unmasked")
    assert set(found) <= {f"{name}.loss" for name in kinds}  # which may be NaN


@given(st.data())
def test_round_trip(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(MESSAGES))
    message = data.draw(strategy(kind))
    raw = data.draw(st.binary(min_size=1, max_size=300)) if kind.raw is m.Raw.ALWAYS else None
    decoded, tail = DECODERS_OF[kind](encode(message, raw))
    assert repr(decoded) == repr(message)  # by their text, in which NaN equals NaN
    assert (None if tail is None else bytes(tail)) == raw


@given(st.lists(st.binary(max_size=200), max_size=4), st.sampled_from(DECODERS))
def test_arbitrary_bytes(frames: list[bytes], decode: Callable[..., Any]) -> None:
    understand(decode, frames)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=20) | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.data())
def test_right_names_with_wrong_values(data: st.DataObject) -> None:
    """Maps that look like a message, with any value in any field."""
    kind = data.draw(st.sampled_from(MESSAGES))
    fields = {name: data.draw(plain) for name in kind.__struct_fields__ if data.draw(st.booleans())}
    header = msgspec.msgpack.encode({"t": kind.__name__} | fields)
    understand(data.draw(st.sampled_from(DECODERS)), [header, *([b"raw"] if data.draw(st.booleans()) else [])])


@given(st.data())
def test_damaged_messages(data: st.DataObject) -> None:
    """A good message with bytes changed, cut off or added."""
    kind = data.draw(st.sampled_from(MESSAGES))
    message = data.draw(strategy(kind))
    header = bytearray(encode(message, b"raw" if kind.raw is m.Raw.ALWAYS else None)[0])
    for _ in range(data.draw(st.integers(1, 4))):
        header[data.draw(st.integers(0, len(header) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(header)))
    frames = [bytes(header[:end]), *([b"raw"] if data.draw(st.booleans()) else [])]
    for decode in (*DECODERS, DECODERS_OF[kind]):
        understand(decode, frames)
