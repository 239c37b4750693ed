"""The intrusion kit itself: attempts that succeed are found where a door is weak, and not where it is not."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from tests.intrude.kit.base import Trace
from tests.intrude.kit.campaign import Campaign, Place
from tests.intrude.kit.catalog import CATALOG, kind_of
from tests.intrude.kit.evidence import Seen, Witness, no_message, no_node, no_session
from tests.intrude.kit.replays import ReplayedMessage, TamperedFrame
from tests.intrude.kit.scene import Invites, Scene
from tests.intrude.kit.sizes import UnfinishedMessage
from tests.intrude.kit.ways import WAYS

from barnraise.ledger import Change, Ledger, NodeChanged, RunDirectory
from barnraise.transport import Invite, Keys
from barnraise.transport.several import listener_for
from barnraise.transport.zmq import connections as zmq_door

SERVER = Keys.generate()
URI = "zmq://127.0.0.1:0 xmlrpc://127.0.0.1:0"


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[Witness, Scene]]:
    """Yield a witness and a scene with both doors; no controller answers behind them."""
    witness = Witness([listener_for(one) for one in URI.split()])
    first, second = (int(uri.rpartition(":")[2]) for uri in (await witness.bind(URI, SERVER)).split())

    async def read() -> None:
        while await witness.receive_many():
            pass

    reading = asyncio.ensure_future(read())
    invite = Invite.create(
        "127.0.0.1", first, "run", SERVER.public, now=time.time(), lifetime=60.0, uses=9, http_port=second
    )
    try:
        yield witness, Scene(Invites(invite, ()), lambda node: None, Random(0), patience=1.0)
    finally:
        await witness.close()
        with contextlib.suppress(asyncio.CancelledError):
            await reading


def seen_of(folder: Path, let_in: dict[str, int], *changes: NodeChanged) -> Seen:
    run = RunDirectory.create("run", folder)
    with Ledger(run.ledger, run.segments, run="run") as ledger:
        ledger.commit(list(changes))
    return Seen(run.ledger, let_in)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [ReplayedMessage, TamperedFrame])
def test_replayed_and_tampered_frames_are_not_admitted(
    kind: type[ReplayedMessage | TamperedFrame], way: str, tmp_path: Path
) -> None:
    async def test() -> tuple[list[Trace], dict[str, int]]:
        async with listening() as (witness, scene):
            traces = [await kind(Random(seed)).make(scene, way) for seed in range(6)]
            return traces, dict(witness.let_in)

    traces, let_in = asyncio.run(asyncio.wait_for(test(), 120.0))
    seen = seen_of(tmp_path, let_in)
    assert [mark(seen) for trace in traces for mark in trace.marks] == [""] * 6
    if kind is ReplayedMessage:
        assert sorted(let_in.values()) == [1] * 6, "each was heard once, by its first sender"


def test_an_unfinished_message_that_is_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmq_door, "UNPROVEN_BYTES", 1 << 30)

    async def test() -> Trace:
        async with listening() as (_, scene):
            return await UnfinishedMessage(Random(0)).make(scene, "zmq")

    assert "kept" in asyncio.run(asyncio.wait_for(test(), 60.0)).heard


def test_and_one_that_is_not_is_not() -> None:
    async def test() -> Trace:
        async with listening() as (_, scene):
            return await UnfinishedMessage(Random(0)).make(scene, "zmq")

    assert asyncio.run(asyncio.wait_for(test(), 60.0)).heard == ""


def test_marks_show_on_the_controllers_side(tmp_path: Path) -> None:
    enrolled = NodeChanged(0.0, "eve", Change.ENROLLED, key="k" * 40)
    joined = NodeChanged(1.0, "eve", Change.JOINED, session=7)
    seen = seen_of(tmp_path, {"k" * 40: 3}, enrolled, joined)
    traces = [
        Trace("", (no_node("k" * 40),)), Trace("", (no_node("x", "eve"),)), Trace("", (no_session(7),)),
        Trace("", (no_message("k" * 40, lambda: 2),)), Trace("Welcome"), Trace("", (no_message("k" * 40, lambda: 3),)),
        Trace("", (no_node("x", "bob"), no_session(8))),
    ]  # fmt: skip
    campaign = Campaign(Scene(None, lambda node: None, Random(0), patience=1.0), "seed")  # type: ignore[arg-type]
    campaign.traces = [(number, Place("kind", "zmq"), trace) for number, trace in enumerate(traces)]
    verdict = campaign.judge(seen)
    assert [text.split()[1] for text in verdict.succeeded] == ["0", "1", "2", "3", "4"]
    assert sum(verdict.made.values()) == len(traces)


def test_every_kind_can_be_made() -> None:
    for name in CATALOG.names():
        assert set(kind_of(name)(Random(0)).ways) <= set(WAYS)
