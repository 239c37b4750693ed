"""Uploads: who may send, how long memory is kept for what does not come, and who is next."""

from __future__ import annotations

import hashlib

import pytest

from barnraise.controller.fleet.uploads import PATIENCE, PRESSED_PATIENCE, SLOWEST_UPLOAD, Uploads
from barnraise.controller.machine import Controller
from barnraise.controller.state.actions import Action, Discard, Receive, Send
from barnraise.controller.state.state import NodeState
from barnraise.core.types import Blob, Contribution, ParameterRange
from barnraise.wire.messages import CHUNK_BYTES, Identify

from ....state_machine.engine import engine_settings

SIZE = 10_000_000
SETTINGS = engine_settings(memory=SIZE)  # room for one


def offer(number: int, size: int = SIZE) -> Contribution:
    blob = Blob(hashlib.sha256(b"payload").hexdigest(), size)
    return Contribution(
        assignment=number,
        base=0,
        parameters=ParameterRange(0, 5),
        payload=blob,
        steps=1,
        loss=1.0,
        seconds=1.0,
        codec=0,
    )


def asked(actions: list[Action]) -> list[str]:
    return [action.node for action in actions if isinstance(action, Receive)]


def at(kept: Uploads, now: float) -> Uploads:
    """Set the time of the uploads, and return them."""
    kept.context.now = now
    return kept


def expect(kept: Uploads, node: str, number: int, now: float = 0.0) -> list[str]:
    kept.state.nodes.setdefault(node, NodeState(node))
    return asked(list(at(kept, now).expect(node, offer(number))))


def drip(kept: Uploads, at_once: int) -> float:
    """So much of upload 1 comes at once, then a byte a second: when it is given up."""
    now, received = 1.0, at_once
    while 1 in kept.uploads:
        assert at(kept, now).arrived("a", 1, received) is None
        now, received = now + 1.0, received + 1
        list(at(kept, now).expire())
    return now


def test_one_payload_a_node_and_as_much_as_there_is_room_for() -> None:
    kept = Controller(SETTINGS).parts[Uploads]
    assert [expect(kept, node, number) for number, node in enumerate("abca")] == [["a"], [], [], []]
    (whole,) = [at(kept, 1.0).arrived("a", 0, SIZE)]
    assert whole is not None
    kept.settled(whole.offer)
    assert asked(list(kept.look())) == ["b"]


def test_a_stalled_upload_is_abandoned_sooner_while_others_wait() -> None:
    kept = Controller(SETTINGS).parts[Uploads]
    expect(kept, "a", 1)
    assert kept.deadline() == PATIENCE
    expect(kept, "b", 2)
    assert kept.deadline() == PRESSED_PATIENCE
    given_up = list(at(kept, PRESSED_PATIENCE).expire())
    assert given_up == [Discard("a", 1), Receive("b", offer(2)), Send("a", Identify())]
    assert expect(kept, "a", 1, PRESSED_PATIENCE) == []  # it comes after who waited
    assert kept.num_bytes == SIZE


@pytest.mark.parametrize("at_once", [1, SIZE // 2])
def test_bytes_that_drip_keep_no_room(at_once: int) -> None:
    """A node that sends fast and then nothing has the time that the slowest link would have taken."""
    for waiting, patience in (("", PATIENCE), ("b", PRESSED_PATIENCE)):
        kept = Controller(SETTINGS).parts[Uploads]
        expect(kept, "a", 1)
        if waiting:
            expect(kept, waiting, 2)
        assert drip(kept, at_once) <= PATIENCE + at_once / SLOWEST_UPLOAD + patience + 1.0
        assert list(kept.sending) == list(waiting)


def test_a_slow_link_has_the_time_that_it_needs() -> None:
    for size in (CHUNK_BYTES + 1, SIZE):
        kept = Controller(SETTINGS).parts[Uploads]
        kept.state.nodes["a"] = NodeState("a")
        list(kept.expect("a", offer(1, size)))
        seconds, received = 0.0, 0
        while received < size:
            received = min(size, received + CHUNK_BYTES)
            seconds += CHUNK_BYTES / (1.1 * SLOWEST_UPLOAD)
            assert not list(at(kept, seconds).expire())
            whole = kept.arrived("a", 1, received)
        assert whole is not None
