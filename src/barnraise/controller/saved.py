"""The controller's state as a checkpoint keeps it, so that a resume folds only what came after.

A state that cannot be read, or that another version of barnraise wrote, is no obstacle: the whole ledger says the same,
and folding it takes longer.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from barnraise.controller.actions import Held
from barnraise.controller.state import Finding, NodeState, SlotState, State, Work
from barnraise.core.types import NodeProfile
from barnraise.ledger.decisions import VersionClosed


class Saved(msgspec.Struct):
    """`state` at `time` of the run's clock; its slots apart, as their places are no keys of MessagePack."""

    form: str
    time: float
    state: State
    slots: list[SlotState]


def _form() -> str:
    """Tells this layout of the state from others."""
    structs: list[type[Any]] = [Saved, State, Finding, NodeState, SlotState, Work, NodeProfile, VersionClosed]
    told = [(field.name, str(field.type)) for struct in structs for field in msgspec.structs.fields(struct)]
    return hashlib.sha256(repr((told, Held._fields)).encode()).hexdigest()


_FORM = _form()
_DECODER = msgspec.msgpack.Decoder(Saved)


def encode(state: State, time: float) -> bytes:
    """What a checkpoint keeps of `state`."""
    slots = [slot for slots in state.slots.values() for slot in slots.values()]
    bare = msgspec.structs.replace(state, slots={})
    return msgspec.msgpack.encode(Saved(_FORM, time, bare, slots))


def decode(content: bytes) -> tuple[State, float] | None:
    """The state and its time; None when this version of barnraise cannot read it."""
    try:
        saved = _DECODER.decode(content)
    except msgspec.MsgspecError:
        return None
    if saved.form != _FORM:
        return None
    for slot in saved.slots:
        saved.state.slots.setdefault(slot.node, {})[slot.parameters] = slot
    return saved.state, saved.time
