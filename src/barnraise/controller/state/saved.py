"""The form of the controller's state in a checkpoint, so that a resume folds only later decisions.

An unreadable state, or one of another version of barnraise, is no obstacle: the whole ledger says the same, and folding
it takes longer.
"""

from __future__ import annotations

import hashlib
import typing
from typing import Any

import msgspec

from barnraise.controller.state.actions import Slot
from barnraise.controller.state.state import State
from barnraise.core.decoding import MALFORMED


class Saved(msgspec.Struct):
    """The state at `time` of the run's clock; its slots are separate, as their places cannot be MessagePack keys."""

    form: str
    time: float
    state: State
    slots: list[Slot]


def _form() -> str:
    """Return an identifier of this layout of the state, and of all its records."""
    return hashlib.sha256(repr(sorted(_layout(Saved).items())).encode()).hexdigest()


def _layout(hint: Any) -> dict[str, list[tuple[str, str]]]:
    """Return the fields of each record in `hint`, with their types."""
    inner = typing.get_args(hint)
    found = {}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct | tuple):
        fields = typing.get_type_hints(hint)
        found[hint.__name__] = [(name, str(kind)) for name, kind in fields.items()]
        inner = tuple(fields.values())
    for each in inner:
        found |= _layout(each)
    return found


_FORM = _form()
_DECODER = msgspec.msgpack.Decoder(Saved)


def encode(state: State, time: float) -> bytes:
    """Return the bytes of `state` for a checkpoint."""
    slots = [slot for slots in state.buffer.slots.values() for slot in slots.values()]
    bare = msgspec.structs.replace(state, buffer=msgspec.structs.replace(state.buffer, slots={}))
    return msgspec.msgpack.encode(Saved(_FORM, time, bare, slots))


def decode(content: bytes) -> tuple[State, float] | None:
    """Return the state and its time; None when this version of barnraise cannot read it."""
    try:
        saved = _DECODER.decode(content)
    except MALFORMED:
        return None
    if saved.form != _FORM:
        return None
    for slot in saved.slots:
        saved.state.buffer.slots.setdefault(slot.node, {})[slot.parameters] = slot
    return saved.state, saved.time
