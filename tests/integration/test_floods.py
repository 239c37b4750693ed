"""The controller ignores and excludes a member that floods it, over both transports, and serves all others."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from barnraise.controller.shell import server
from barnraise.controller.shell.rate_limits import EXCESS, USUAL
from barnraise.core.types import KINDS, NodeProfile
from barnraise.ledger.decisions import Noted
from barnraise.trust.roles import WORKER
from barnraise.wire.frames import encode
from barnraise.wire.messages import (
    PROTOCOL_VERSION,
    Assign,
    Enrolled,
    Heartbeat,
    Hello,
    Pulse,
    RequestTask,
    Subscribe,
    Welcome,
)

from .test_roles import Guest, both, guest
from .test_standbys import leading, run_directory, within


@both
def test_a_member_that_floods_is_shut_out_for_a_while_and_others_are_served(
    tmp_path: Path, use_zmq: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SHUT_OUT", 0.5)
    run = run_directory(tmp_path, use_zmq=use_zmq)

    async def play() -> None:
        async with leading(run, tmp_path) as (led, _), guest(led) as flooder, guest(led) as honest:
            for who, name in ((flooder, "flooder"), (honest, "honest")):
                assert isinstance(await who.enrol(led.invite(WORKER), name), Enrolled)
                assert isinstance(await who.hello(), Welcome)
            host, key = led.host, flooder.keys.public
            flooding = asyncio.ensure_future(flood(flooder))
            while key not in host.server.listener.revoked:
                await honest.say(Heartbeat(1.0), Pulse)  # it is heard all the time
            assert isinstance(await honest.say(RequestTask(-1), Assign), Assign)
            flooding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await flooding
            while key in host.server.listener.revoked:
                await asyncio.sleep(0.01)
            greeting = encode(Hello(PROTOCOL_VERSION, 1, 2, NodeProfile(100.0), have=-1, kinds=tuple(KINDS)))
            welcomed = asyncio.ensure_future(flooder.hear(Welcome))
            while not welcomed.done():  # messages in flight when the connection ended are lost
                await flooder.connection.send(greeting)
                await asyncio.sleep(0.1)
            assert (await welcomed).node == "flooder"
            rows = [row for _, row in host.ledger.replay() if isinstance(row, Noted) and row.kind == "frame_dropped"]
            assert {row.node for row in rows} == {"flooder"}
            assert rows[0].note.reason == "more than 100 Subscribe a second"

    within(60.0, play())


async def flood(guest: Guest) -> None:
    """Send more messages than any worker may, without end."""
    assert USUAL.burst + EXCESS.burst < 10_000
    while True:
        for _ in range(100):
            await guest.connection.send(encode(Subscribe(0)))
        await asyncio.sleep(0)
