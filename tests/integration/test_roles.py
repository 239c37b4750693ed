"""The role of an invite, over both transports: a worker trains, a helper measures, an observer reads the status."""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from barnraise.assembly.invites import new_invite, open_book
from barnraise.assembly.joining import join
from barnraise.assembly.observing import look
from barnraise.assembly.requests import obey
from barnraise.assembly.revoking import revoke_invite, revoke_node
from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.state.events import Tick
from barnraise.core.errors import InputError, InviteError
from barnraise.core.types import KINDS, NodeProfile
from barnraise.ledger.decisions import NodeChanged, Noted
from barnraise.transport import Invite, Keys, create, proof
from barnraise.transport.allow_list import line_of
from barnraise.trust.roles import HELPER, OBSERVER, STANDBY, WORKER
from barnraise.wire.frames import decode_from_controller, encode
from barnraise.wire.messages import (
    PROTOCOL_VERSION,
    Assign,
    Enrol,
    Enrolled,
    Hello,
    Message,
    RequestTask,
    Stop,
    Subscribe,
    Welcome,
)

from .test_standbys import SCHEMES, Led, leading, run_directory, within

both = pytest.mark.parametrize("use_zmq", [True, False], ids=SCHEMES)


class Guest:
    """A machine with keys of its own, driven by hand."""

    def __init__(self, led: Led, connection: Any) -> None:
        self.led, self.connection, self.keys = led, connection, Keys.generate()

    async def say(self, message: Message, kind: type) -> Any:
        await self.connection.send(encode(message))
        return await self.hear(kind)

    async def hear(self, kind: type) -> Any:
        async with asyncio.timeout(20.0):
            while True:
                message, _ = decode_from_controller(await self.connection.receive())
                if isinstance(message, kind):
                    return message

    async def enrol(self, invite: Invite, name: str) -> Any:
        nonce, signer = secrets.token_hex(32), self.keys.signer.public
        mark = proof(invite.secret, invite.server_key, self.keys.public, name, nonce, signer)
        return await self.say(Enrol(PROTOCOL_VERSION, invite.token, name, nonce, mark, signer), Enrolled | Stop)

    async def hello(self) -> Any:
        return await self.say(
            Hello(PROTOCOL_VERSION, 1, 1, NodeProfile(100.0), have=-1, kinds=tuple(KINDS)), Welcome | Stop
        )


@asynccontextmanager
async def guest(led: Led) -> Any:
    connection = create(led.uri.split(":")[0]).connection()
    who = Guest(led, connection)
    await connection.open(led.uri, led.keys.public, who.keys)
    try:
        yield who
    finally:
        await connection.close()


@both
def test_a_helper_is_given_no_training_and_may_not_say_what_only_trainers_say(tmp_path: Path, use_zmq: bool) -> None:
    run = run_directory(tmp_path, use_zmq=use_zmq)

    async def play() -> None:
        async with leading(run, tmp_path) as (led, _), guest(led) as helper, guest(led) as worker:
            assert isinstance(await helper.enrol(led.invite(HELPER), "helper"), Enrolled)
            assert isinstance(await worker.enrol(led.invite(WORKER), "worker"), Enrolled)
            for who in (helper, worker):
                assert isinstance(await who.hello(), Welcome)
            present, state = led.host.machine.parts[NodeRecords].present, led.host.machine.state
            kinds = {name: record.session.kinds for name, record in present.items()}
            assert kinds == {
                "helper": {"evaluate", "audit"},
                "worker": {name for name, kind in KINDS.items() if kind.replica},
            }
            assert [state.nodes[name].badge.role for name in ("helper", "worker")] == [HELPER, WORKER]
            assert "may not say Subscribe" in (await helper.say(Subscribe(0), Stop)).reason
            await worker.connection.send(encode(Subscribe(0)))
            assert isinstance(await worker.say(RequestTask(-1), Assign | Stop), Assign)
            await led.host.server.settle(Tick())
            rows = [row for _, row in led.host.ledger.replay()]
            dropped = [row for row in rows if isinstance(row, Noted) and row.kind == "frame_dropped"]
            assert {row.node for row in dropped} == {"helper"}
            enrolled = [row.role for row in rows if isinstance(row, NodeChanged) and row.change == "enrolled"]
            assert enrolled == [HELPER, WORKER]

    within(60.0, play())


@both
def test_an_observer_is_told_how_the_run_stands_and_nothing_of_its_host(tmp_path: Path, use_zmq: bool) -> None:
    run = run_directory(tmp_path, use_zmq=use_zmq)

    async def play() -> None:
        async with leading(run, tmp_path) as (led, _), guest(led) as worker:
            await worker.enrol(led.invite(WORKER), "ann")
            await worker.hello()
            invite = led.invite(OBSERVER)
            for _ in range(2):  # the same machine takes one use, however often it looks
                seen = await look(str(invite), tmp_path / "home")
            assert (seen.run, seen.state, [row.name for row in seen.nodes]) == (run.path.name, "running", ["ann"])
            assert str(run.path) not in str(seen)
            assert seen.told["budget"] == 100_000
            with pytest.raises(InviteError, match="used up"):
                await look(str(invite), tmp_path / "another home")
            assert list(led.host.machine.state.nodes) == ["ann"], "who looks on is no node"
            revoke_invite(run, invite.token)
            with pytest.raises(InviteError, match="taken this invite back"):
                await look(str(invite), tmp_path / "home")

    within(60.0, play())


def test_an_invite_is_for_its_role_alone(tmp_path: Path) -> None:
    run = run_directory(tmp_path)

    async def play() -> None:
        async with leading(run, tmp_path) as (led, _), guest(led) as stranger:
            for role, command in ((STANDBY, "barnraise standby"), (OBSERVER, "barnraise status")):
                invite = led.invite(role)
                answer = await stranger.enrol(invite, "n")
                assert isinstance(answer, Stop)
                assert role in answer.reason
                assert command in answer.reason
                with open_book(run) as book:
                    assert book.tokens[invite.token].uses == 1, "nothing is spent on what is refused"
                with pytest.raises(InviteError, match=command):
                    await join(str(invite), lambda text: None, home=tmp_path / "home")
            unknown = new_invite(run, led.uri, led.keys.public, uses=1, hours=1.0, role="king\x1b[2J")
            assert "does not know" in (await stranger.enrol(unknown, "n")).reason
            with pytest.raises(InviteError, match="barnraise join"):
                await look(str(led.invite(WORKER)), tmp_path / "home")
            assert led.host.machine.state.nodes == {}

    within(60.0, play())


def test_an_expired_observer_is_told_so(tmp_path: Path) -> None:
    run = run_directory(tmp_path)

    async def play() -> None:
        async with leading(run, tmp_path) as (led, _):
            invite = led.invite(OBSERVER)
            await look(str(invite), tmp_path / "home")
            with open_book(run) as book:
                known = book.tokens[invite.token]
                book.tokens[invite.token] = type(known)(known.id, known.verifier, int(time.time()), 1, known.role)
            with pytest.raises(InviteError, match="expired"):
                await look(str(invite), tmp_path / "home")

    within(60.0, play())


@both
def test_where_the_host_lists_keys_they_alone_come_in_and_spend_nothing(tmp_path: Path, use_zmq: bool) -> None:
    run = run_directory(tmp_path, use_zmq=use_zmq)

    async def play() -> None:
        warned: list[str] = []
        async with leading(run, tmp_path, warned.append) as (led, _), guest(led) as ann, guest(led) as bob:
            invite, watching = led.invite(WORKER), led.invite(OBSERVER)
            listed = run.keys / "allow"
            listed.write_text(f"# none yet\n{line_of(Keys.generate().public, 'somebody')}\n")
            told = (await ann.enrol(invite, "ann")).reason
            line = line_of(ann.keys.public, "ann")
            assert line in told, "it is told which line to ask for"
            with pytest.raises(InviteError, match="listed keys alone"):
                await look(str(watching), tmp_path / "home")
            listed.write_text(f"{line}\n{line[:20]} ann again\n")
            assert "is broken" in (await ann.enrol(invite, "ann")).reason
            assert len(warned) == 1
            assert "line 2" in warned[0]
            listed.write_text(f"{line}\n{line_of(bob.keys.public, 'bob')}\n")
            assert isinstance(await ann.enrol(invite, "ann"), Enrolled)
            assert isinstance(await bob.enrol(invite, "bob"), Enrolled), "one invite for all on the list"
            with open_book(run) as book:
                assert book.tokens[invite.token].uses == 1
            listed.unlink()
            await look(str(watching), tmp_path / "home")

    within(60.0, play())


def test_a_broken_list_of_keys_stops_a_controller_that_starts(tmp_path: Path) -> None:
    run = run_directory(tmp_path)
    (run.keys / "allow").write_text("ann\n")

    async def play() -> None:
        async with leading(run, tmp_path):
            raise AssertionError("it started")

    with pytest.raises(InputError, match="line 1: 'ann' is no key"):
        within(60.0, play())


@both
def test_nodes_of_one_network_count_as_one_owners_but_for_those_that_the_host_lists(
    tmp_path: Path, use_zmq: bool
) -> None:
    run = run_directory(tmp_path, use_zmq=use_zmq)

    async def play() -> None:
        async with leading(run, tmp_path) as (led, _), guest(led) as ann, guest(led) as bob, guest(led) as cat:
            enrolment, where = led.host.server.reception.enrolment, iter(["127.0.0.7", "10.1.2.3", "10.1.3.1", ""])
            for who, name, role in ((ann, "ann", WORKER), (bob, "bob", HELPER)):
                assert isinstance(await who.enrol(led.invite(role), name), Enrolled)
            (run.keys / "allow").write_text(line_of(cat.keys.public, "cat"))
            assert isinstance(await cat.enrol(led.invite(WORKER), "cat"), Enrolled)
            (run.keys / "allow").unlink()
            rows = [row for _, row in led.host.ledger.replay() if isinstance(row, NodeChanged)]
            owners = {row.node: row.owner for row in rows}
            assert owners["ann"] == owners["bob"] != owners["cat"] == ""
            assert "127" not in owners["ann"], "it does not tell where that is"
            state = led.host.machine.state
            assert state.nodes["cat"].owner == "cat"
            invite, keys = new_invite(run, led.uri, led.keys.public, uses=9, hours=1.0), Keys.generate()

            def let_in() -> str:
                nonce = secrets.token_hex(32)
                mark = proof(invite.secret, invite.server_key, keys.public, "dan", nonce)
                message = Enrol(PROTOCOL_VERSION, invite.token, "dan", nonce, mark, "")
                return enrolment.let_in(message, keys.public, taken=False, address=next(where)).owner

            assert [let_in() == owners["ann"], let_in() == let_in()] == [True, False]
            with pytest.raises(InviteError, match="try again"):
                let_in()

    within(60.0, play())


@both
def test_a_network_has_so_many_nodes_and_no_more(tmp_path: Path, use_zmq: bool) -> None:
    run = run_directory(tmp_path, use_zmq=use_zmq, per_network=2)

    async def play() -> None:
        async with leading(run, tmp_path) as (led, _), guest(led) as ann, guest(led) as bob, guest(led) as eve:
            invite = new_invite(run, led.uri, led.keys.public, uses=5, hours=1.0)
            for who, name in ((ann, "ann"), (bob, "bob")):
                assert isinstance(await who.enrol(invite, name), Enrolled)
            told = (await eve.enrol(invite, "eve")).reason
            assert "2 machines of the network 127.0.0.0/24" in told
            with open_book(run) as book:
                assert book.tokens[invite.token].uses == 3, "who is refused spends nothing"
            (run.keys / "allow").write_text(line_of(eve.keys.public, "eve"))
            assert isinstance(await eve.enrol(invite, "eve"), Enrolled)
        async with leading(run, tmp_path) as (led, _), guest(led) as eve:  # it is durable
            (run.keys / "allow").unlink()
            again = new_invite(run, led.uri, led.keys.public, uses=5, hours=1.0)
            assert "2 machines" in (await eve.enrol(again, "eva")).reason

    within(60.0, play())


@both
def test_a_revoked_node_is_out_from_its_next_message_on(tmp_path: Path, use_zmq: bool) -> None:
    run = run_directory(tmp_path, use_zmq=use_zmq)

    async def play() -> None:
        async with leading(run, tmp_path) as (led, _), guest(led) as liar, guest(led) as honest:
            for who, name in ((liar, "liar"), (honest, "honest")):
                assert isinstance(await who.enrol(led.invite(WORKER), name), Enrolled)
                assert isinstance(await who.hello(), Welcome)
            assert isinstance(await liar.say(RequestTask(-1), Assign), Assign)
            revoking = asyncio.ensure_future(asyncio.to_thread(revoke_node, run, "liar", "it lies"))
            while not revoking.done():  # as the run's course does twice a second
                await obey(run, led.host.server, lambda text: None)
                await asyncio.sleep(0.01)
            assert await revoking == "'liar' is out of the run"
            assert "it lies" in (await liar.hear(Stop)).reason, "it is told at once, over the connection that it has"
            state = led.host.machine.state
            assert not state.nodes["liar"].open
            before = led.host.ledger.last_id
            await liar.connection.send(encode(RequestTask(-1)))
            assert "it lies" in (await liar.hello()).reason
            assert "it lies" in (await liar.enrol(led.invite(WORKER), "another")).reason
            assert isinstance(await honest.say(RequestTask(-1), Assign), Assign)
            rows = [row for row_id, row in led.host.ledger.replay() if row_id > before]
            assert {getattr(row, "node", "honest") for row in rows} == {"honest"}, "nothing of it is read any more"

    within(60.0, play())
