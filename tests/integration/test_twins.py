"""Two processes with one node's keys, over both transports: the first keeps its place, a dead one loses it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnraise.controller.fleet.leases import Leases
from barnraise.controller.shell import reception
from barnraise.core.types import KINDS, NodeProfile
from barnraise.ledger.decisions import NodeChanged
from barnraise.transport import Keys, create
from barnraise.trust.roles import WORKER
from barnraise.wire.frames import decode_from_controller, encode
from barnraise.wire.messages import PROTOCOL_VERSION, TAKEN, Enrolled, Hello, Identify, Message, Stop, Welcome

from .test_roles import Guest, both, guest
from .test_standbys import Led, leading, run_directory, within

HEARING = 0.1


class Process(Guest):
    """A worker's process by hand: it answers a `Identify` as workers do. `heard` are all other messages."""

    def __init__(self, led: Led, connection: object, keys: Keys, session: int) -> None:
        super().__init__(led, connection)
        self.keys, self.session, self.greeting, self.heard = keys, session, 0, list[Message]()

    async def greet(self) -> None:
        self.greeting += 1
        about = self.session, self.greeting, NodeProfile(100.0)
        await self.connection.send(encode(Hello(PROTOCOL_VERSION, *about, have=-1, kinds=tuple(KINDS))))

    async def work(self) -> None:
        while batch := await self.connection.receive_many():
            for message in (decode_from_controller(frames)[0] for frames in batch):
                if isinstance(message, Identify):
                    await self.greet()
                else:
                    self.heard.append(message)

    async def told(self, *, new_session: bool = False) -> Welcome | Stop:
        """Greet until there is an answer, with another session each time if so wished."""
        self.heard.clear()
        while not (found := [one for one in self.heard if isinstance(one, Welcome | Stop)]):
            self.session += new_session
            await self.greet()
            await asyncio.sleep(HEARING)
        return found[0]


@contextlib.asynccontextmanager
async def process(led: Led, keys: Keys, session: int) -> AsyncIterator[Process]:
    connection = create(led.uri.split(":")[0]).connection()
    await connection.open(led.uri, led.keys.public, keys)
    who = Process(led, connection, keys, session)
    working = asyncio.ensure_future(who.work())
    try:
        yield who
    finally:
        working.cancel()
        await connection.close()


@both
@pytest.mark.parametrize("new_session", [False, True], ids=["a copied folder", "a stolen key"])
def test_the_first_process_keeps_its_place(tmp_path: Path, use_zmq: bool, new_session: bool) -> None:
    run, told = run_directory(tmp_path, use_zmq=use_zmq), list[str]()

    async def play() -> None:
        async with leading(run, tmp_path, told.append) as (led, _):
            async with guest(led) as ann:
                assert isinstance(await ann.enrol(led.invite(WORKER), "ann"), Enrolled)
            async with process(led, ann.keys, 100) as first, process(led, ann.keys, 200) as second:
                assert isinstance(await first.told(), Welcome)
                for _ in range(3):
                    answer = await second.told(new_session=new_session)
                    assert isinstance(answer, Stop)
                    assert answer.refusal == TAKEN
                    assert not answer.final
                assert isinstance(await first.told(), Welcome)
            joined = [row for _, row in led.host.ledger.replay() if isinstance(row, NodeChanged) and row.session]
            assert [row.session for row in joined] == [100]

    within(60.0, play())
    assert ["a second process has the keys of node 'ann'" in text for text in told] == [True]


@both
def test_a_process_that_died_loses_its_place(tmp_path: Path, use_zmq: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reception, "PATIENCE", 0.3)
    run = run_directory(tmp_path, use_zmq=use_zmq)

    async def play() -> None:
        async with leading(run, tmp_path) as (led, _):
            led.host.machine.parts[Leases].heartbeat = 0.1
            async with guest(led) as ann:
                assert isinstance(await ann.enrol(led.invite(WORKER), "ann"), Enrolled)
            async with process(led, ann.keys, 100) as first:
                assert isinstance(await first.told(), Welcome)
            async with process(led, ann.keys, 200) as second:
                assert isinstance(await second.told(), Welcome)

    within(60.0, play())
