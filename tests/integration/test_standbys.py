"""A controller and a standby in one event loop, over real sockets: what is copied, what waits, and who is refused."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnraise.assembly.addresses import listen
from barnraise.assembly.fencing import fence, follows, predecessors
from barnraise.assembly.hosting import Host, open_host
from barnraise.assembly.invites import new_invite, open_book
from barnraise.assembly.preparing import prepare
from barnraise.assembly.standby import check
from barnraise.config.load import load
from barnraise.controller.standby.follower import Applicant, Follower
from barnraise.controller.standby.incoming_files import IncomingFiles
from barnraise.controller.state.events import Admitted, ContinueRequested, InterruptRequested, PauseRequested
from barnraise.core.errors import InviteError, RunDirectoryError, SupersededError, WireError
from barnraise.core.types import Blob, NodeProfile
from barnraise.ledger import Checkpoints, Ledger, LedgerView, RunDirectory, notes
from barnraise.ledger.copying import TERM, LedgerCopy
from barnraise.plan.purpose import SERVE
from barnraise.plan.resolve import resolve
from barnraise.transport import Invite, Keys, create
from barnraise.transport.base import Peer
from barnraise.transport.seals import sealed
from barnraise.trust.roles import STANDBY, WORKER
from barnraise.verification import verify
from barnraise.wire import encode
from barnraise.wire.following import CopiedFile, Copy, Follow, decode_from_standby, decode_to_standby
from barnraise.wire.messages import (
    CHUNK_BYTES,
    EVERYTHING,
    PROTOCOL_VERSION,
    Ack,
    Chunk,
    Elsewhere,
    Enrol,
    Hello,
    SendPayload,
    Stop,
    Term,
)

SCHEMES = ["zmq", "xmlrpc"]


def run_directory(folder: Path, name: str = "led", **controller: Any) -> RunDirectory:
    text = folder / "text.txt"
    text.write_text("".join(f"{a} plus {b} is {a + b}.\n" for a in range(40) for b in range(40)))
    (folder / "run.yaml").write_text(
        json.dumps(
            {
                "run": {"name": name, "dir": str(folder / "runs")},
                "model": {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
                "data": {"kind": "text", "files": [str(text)], "context": 32},
                "training": {"tokens": 100_000, "batch_size": 4},
                "controller": {"evaluations": 1, "evaluation_rows": 4, **controller},
            }
        )
    )
    run = RunDirectory.create(name, folder / "runs")
    prepare(resolve(load(folder / "run.yaml"), purpose=SERVE), run, lambda text: None)
    return run


class Led:
    """A controller that works, and what it takes to follow it."""

    def __init__(self, run: RunDirectory, host: Host, uri: str, folder: Path) -> None:
        self.run, self.host, self.uri, self.folder = run, host, uri, folder
        self.keys = Keys.load(run.keys / "controller.json")

    def invite(self, role: str = STANDBY) -> Invite:
        return new_invite(self.run, self.uri, self.keys.public, uses=1, hours=1.0, role=role)

    @asynccontextmanager
    async def follower(
        self, folder: str = "copy", keys: Keys | None = None, invite: Invite | None = None
    ) -> AsyncIterator[Follower]:
        copy = RunDirectory(self.folder / folder / self.run.path.name)
        for sub in (copy.path, copy.checkpoints, copy.data, copy.keys, copy.segments):
            sub.mkdir(parents=True, exist_ok=True)
        keys, invite = keys or Keys.generate(), invite or self.invite()
        connection = create(self.uri.split(":")[0]).connection()
        await connection.open(self.uri, self.keys.public, keys)
        ledger = LedgerCopy(copy.ledger, copy.segments, run=self.run.path.name)
        files = IncomingFiles(copy.path, lambda content: content)
        follower = Follower(connection, Applicant(invite, keys, "spare", "zmq://127.0.0.1:9"), ledger, files)
        try:
            yield follower
        finally:
            await follower.close()

    async def complete(self, follower: Follower, following: asyncio.Task[None]) -> None:
        while not (follower.complete and follower.copy.last_id == self.host.ledger.last_id):
            if following.done():
                following.result()
            await asyncio.sleep(0.01)


@asynccontextmanager
async def leading(
    run: RunDirectory, folder: Path, warn: Callable[[str], None] = lambda text: None
) -> AsyncIterator[tuple[Led, asyncio.Task[Any]]]:
    plan = resolve(load(run.run_file), purpose=SERVE)
    with run.lock():
        host = open_host(run, plan, warn)
        uri = await listen(host.server, run, plan, "serve")
        working = asyncio.ensure_future(host.server.run(host.first))
        try:
            yield Led(run, host, uri, folder), working
        finally:
            if not working.done():
                host.server.post(InterruptRequested("the test is over"))
            await asyncio.gather(working, return_exceptions=True)
            await host.close()


def within(seconds: float, work: Any) -> None:
    async def limited() -> None:
        async with asyncio.timeout(seconds):
            await work

    asyncio.run(limited())


@pytest.mark.parametrize("use_zmq", [True, False], ids=SCHEMES)
def test_a_copy_can_be_resumed_and_has_a_far_higher_epoch(tmp_path: Path, use_zmq: bool) -> None:
    run = run_directory(tmp_path, use_zmq=use_zmq)

    async def play() -> None:
        async with leading(run, tmp_path) as (led, _), led.follower() as follower:
            following = asyncio.ensure_future(follower.follow())
            await led.complete(follower, following)
            await led.host.server.settle(Admitted("late", "k" * 40))  # the state has it before the ledger
            await led.complete(follower, following)
            assert follower.lag == 0
            while (lag := led.host.server.standbys.lag) is None or lag.rows:
                await asyncio.sleep(0.01)
            following.cancel()

    within(60, play())
    copy = RunDirectory(tmp_path / "copy" / run.path.name)
    with Ledger(run.ledger) as before, Ledger(copy.ledger) as after:
        before_rows, copied = list(before.replay()), list(after.replay())
        assert copied == before_rows[: len(copied)]
        assert len(copied) >= 3
        assert after.epoch > TERM > before.epoch
    assert verify(copy).findings == []
    found = Checkpoints(copy.checkpoints).load_latest().checkpoint
    assert found is not None
    assert (copy.data / "meta.json").read_bytes() == (run.data / "meta.json").read_bytes()
    assert (copy.keys / "controller.json").stat().st_mode & 0o777 == 0o600
    plan = resolve(load(copy.run_file), purpose=SERVE)
    asyncio.run(open_host(copy, plan, lambda text: None).close())


def test_a_copy_of_a_paused_run_is_paused(tmp_path: Path) -> None:
    run = run_directory(tmp_path)

    async def play() -> None:
        async with leading(run, tmp_path) as (led, _), led.follower() as follower:
            following = asyncio.ensure_future(follower.follow())
            await led.complete(follower, following)
            await led.host.server.settle(PauseRequested("night"))
            await led.complete(follower, following)
            following.cancel()

    within(60, play())
    copy = RunDirectory(tmp_path / "copy" / run.path.name)

    async def take_over() -> None:
        async with leading(copy, tmp_path) as (led, _):
            progress = led.host.machine.state.progress
            assert progress.host_paused == "the host paused the run: night"
            await led.host.server.settle(ContinueRequested())
            assert not progress.host_paused
            with LedgerView(copy.ledger) as view:
                assert len(view.events(notes.HostContinued)) == 1

    within(60, take_over())


def test_a_copy_that_is_changed_while_it_follows_is_not_taken_over(tmp_path: Path) -> None:
    run = run_directory(tmp_path)

    async def play() -> None:
        async with leading(run, tmp_path) as (led, _), led.follower() as follower:
            following = asyncio.ensure_future(follower.follow())
            await led.complete(follower, following)
            await follower.check()
            await led.host.server.settle(Admitted("late", "k" * 40))  # the state has it before the ledger
            await led.complete(follower, following)
            with closing(sqlite3.connect(follower.copy.path)) as connection:
                changed = connection.execute("UPDATE nodes SET key = 'other' WHERE node = 'late'").rowcount
                connection.commit()
            assert changed == 1
            with pytest.raises(RunDirectoryError, match=r"is not taken over.*barnraise verify"):
                await check(RunDirectory(follower.copy.path.parent), follower)
            following.cancel()

    within(60, play())


def test_the_silence_of_a_controller_that_is_gone_is_counted(tmp_path: Path) -> None:
    run = run_directory(tmp_path, standby_lease=1.0)

    async def play() -> None:
        async with leading(run, tmp_path) as (led, working), led.follower() as follower:
            following = asyncio.ensure_future(follower.follow())
            await led.complete(follower, following)
            assert follower.silence < follower.lease
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            while follower.silence < follower.lease:
                await asyncio.sleep(0.01)
            assert follower.complete
            assert not follower.finished
            assert not following.done()
            following.cancel()

    within(60, play())


class TestAcknowledgements:
    def test_wait_for_a_standby_that_has_what_they_rest_on(self, tmp_path: Path) -> None:
        run = run_directory(tmp_path, durability="standby")

        async def play() -> None:
            async with leading(run, tmp_path) as (led, _):
                standbys, told = led.host.server.standbys, []
                standbys._tell = lambda node, message: told.append((node, message))
                while not led.host.ledger.last_id:
                    await asyncio.sleep(0.01)
                assert standbys.outgoing("n", Ack(7, True)) == [SendPayload(7, EVERYTHING)]
                assert (standbys.held, told) == (1, [])
                async with led.follower() as follower:
                    following = asyncio.ensure_future(follower.follow())
                    while standbys.held:
                        await asyncio.sleep(0.01)
                    assert ("n", Ack(7, True)) in told
                    assert follower.copy.last_id > 0
                    following.cancel()

        within(60, play())

    def test_wait_for_a_copy_that_could_take_over_not_for_rows_alone(self, tmp_path: Path) -> None:
        run = run_directory(tmp_path, durability="standby")

        async def play() -> None:
            async with leading(run, tmp_path) as (led, _), led.follower() as follower:
                standbys, told = led.host.server.standbys, []
                standbys._tell = lambda node, message: told.append((node, message))
                while not led.host.ledger.last_id:
                    await asyncio.sleep(0.01)
                assert standbys.outgoing("n", Ack(7, True)) == [SendPayload(7, EVERYTHING)]
                take_files, allowed = follower._take_files, asyncio.Event()

                async def slow(files: Any) -> None:
                    await allowed.wait()
                    await take_files(files)

                follower._take_files = slow
                following = asyncio.ensure_future(follower.follow())
                while standbys.following is None or standbys.following.after < led.host.ledger.last_id:
                    await asyncio.sleep(0.01)
                assert (standbys.held, told) == (1, [])
                allowed.set()
                while standbys.held:
                    await asyncio.sleep(0.01)
                assert follower.complete
                following.cancel()

        within(60, play())

    def test_do_not_wait_where_durability_is_local(self, tmp_path: Path) -> None:
        run = run_directory(tmp_path)

        async def play() -> None:
            async with leading(run, tmp_path) as (led, _):
                assert led.host.server.standbys.outgoing("n", Ack(7, True)) == [Ack(7, True)]

        within(60, play())


def test_workers_hear_of_a_standby_that_comes_back_at_another_address(tmp_path: Path) -> None:
    run = run_directory(tmp_path, standby_lease=30.0)

    async def play() -> None:
        async with leading(run, tmp_path) as (led, _):
            standbys, told, keys, invite = led.host.server.standbys, [], Keys.generate(), led.invite()
            standbys._tell, standbys._nodes = lambda node, message: told.append(message), ["n"]
            for uri in ("zmq://127.0.0.1:9", "zmq://127.0.0.1:9", "zmq://127.0.0.1:10"):
                async with led.follower(keys=keys, invite=invite) as follower:
                    follower._applicant = Applicant(invite, keys, "spare", uri)
                    await greeting(follower)
            assert told == [Elsewhere(("zmq://127.0.0.1:9",)), Elsewhere(("zmq://127.0.0.1:10",))]

    within(60, play())


async def greeting(follower: Follower) -> None:
    reading = asyncio.ensure_future(follower._read())
    asked = asyncio.ensure_future(follower.greet())
    await asyncio.wait([reading, asked], return_when=asyncio.FIRST_COMPLETED)
    (asked if asked.done() else reading).result()
    reading.cancel()
    asked.cancel()


class TestComingBack:
    @staticmethod
    async def follow(led: Led, keys: Keys, invite: Invite) -> None:
        async with led.follower(keys=keys, invite=invite) as follower:
            await greeting(follower)

    @staticmethod
    def change(run: RunDirectory, invite: Invite, **fields: Any) -> None:
        with open_book(run) as book:
            book.tokens[invite.token] = replace(book.tokens[invite.token], **fields)

    def test_after_the_invite_has_expired_also_to_a_resumed_controller(self, tmp_path: Path) -> None:
        run, keys = run_directory(tmp_path), Keys.generate()

        async def play() -> None:
            async with leading(run, tmp_path) as (led, _):
                invite = led.invite()
                await self.follow(led, keys, invite)
                while led.host.ledger.newest(notes.StandbyFollows) is None:
                    await asyncio.sleep(0.01)
                self.change(run, invite, expires=1)
                await self.follow(led, keys, invite)
                with pytest.raises(InviteError, match="expired"):
                    await self.follow(led, Keys.generate(), invite)
            async with leading(run, tmp_path) as (led, _):
                await self.follow(led, keys, invite)
                self.change(run, invite, revoked=True)
                with pytest.raises(InviteError, match="taken this invite back"):
                    await self.follow(led, keys, invite)

        within(60, play())

    def test_while_many_strangers_ask_to_join(self, tmp_path: Path) -> None:
        run, keys = run_directory(tmp_path), Keys.generate()

        async def play() -> None:
            async with leading(run, tmp_path) as (led, _):
                invite, stranger = led.invite(), Peer(b"stranger", "s" * 40)
                await self.follow(led, keys, invite)
                junk = Enrol(PROTOCOL_VERSION, "0" * 16, "x", "0" * 64, "0" * 64, "0" * 64)
                for _ in range(100):
                    led.host.server._receive(stranger, None, junk, None)
                    led.host.server._receive(stranger, None, TestStrangers.JUNK, None)
                await self.follow(led, keys, invite)

        within(60, play())


class TestStrangers:
    JUNK = Follow(PROTOCOL_VERSION, "0" * 16, "x", "0" * 64, "0" * 64, uri="zmq://127.0.0.1:9")

    def test_a_flood_of_them_does_not_displace_what_the_standby_says(self, tmp_path: Path) -> None:
        run = run_directory(tmp_path)

        async def play() -> None:
            async with leading(run, tmp_path) as (led, working), led.follower() as follower:
                following = asyncio.ensure_future(follower.follow())
                await led.complete(follower, following)
                standbys = led.host.server.standbys
                stranger = Peer(b"stranger", "s" * 40)
                for _ in range(1000):
                    led.host.server._receive(stranger, None, self.JUNK, None)
                assert standbys.following is not None
                peer, said = standbys.following.peer, Copy(follower.copy.last_id)
                standbys.receive(peer, encode(said))
                assert (peer, said) in standbys._inbox
                assert not standbys._strangers, "none of them has an invite"
                assert not following.done()
                assert not working.done()
                following.cancel()

        within(60, play())

    def test_a_standby_that_cannot_be_answered_is_refused_and_the_controller_continues(self, tmp_path: Path) -> None:
        run = run_directory(tmp_path)

        async def play() -> None:
            async with leading(run, tmp_path) as (led, working), led.follower() as follower:
                following = asyncio.ensure_future(follower.follow())
                await led.complete(follower, following)
                (run.keys / "invites.json").write_text("{")
                connection = create("zmq").connection()
                await connection.open(led.uri, led.keys.public, Keys.generate())
                await connection.send(encode(self.JUNK))
                answer, _ = decode_to_standby(await connection.receive() or [])
                assert isinstance(answer, Stop)
                await connection.close()
                assert not working.done()
                assert not following.done()
                following.cancel()

        within(60, play())

    def test_a_standby_is_beaten_time_for_while_rows_cannot_be_read(self, tmp_path: Path) -> None:
        run = run_directory(tmp_path, standby_lease=1.0)

        async def play() -> None:
            async with leading(run, tmp_path) as (led, working), led.follower() as follower:
                following = asyncio.ensure_future(follower.follow())
                await led.complete(follower, following)
                standbys = led.host.server.standbys
                assert standbys._reader is not None
                standbys._reader.close()  # each read of the ledger raises from now on
                led.host.server.post(Admitted("late", "k" * 40))
                await asyncio.wait([following], timeout=2.0)
                assert follower.lag
                assert not following.done()
                assert not working.done()
                following.cancel()

        within(60, play())


class TestFencing:
    @staticmethod
    def outcome(tmp_path: Path, term: Any) -> BaseException | None:
        """Return the error that ends a controller when a member, or its successor, greets it with this term."""
        run = run_directory(tmp_path)
        ended: list[BaseException | None] = [None]

        async def play() -> None:
            async with leading(run, tmp_path) as (led, working):
                keys = Keys.generate()
                led.host.server.post(Admitted("n", keys.public))
                while "n" not in led.host.machine.state.nodes:
                    await asyncio.sleep(0.01)
                connection = create("zmq").connection()
                await connection.open(led.uri, led.keys.public, keys)
                hello = Hello(PROTOCOL_VERSION, 1, 1, NodeProfile(), -1, term=term(led))
                await connection.send(encode(hello))
                answers = asyncio.ensure_future(connection.receive())
                await asyncio.wait([working, answers], return_when=asyncio.FIRST_COMPLETED)
                ended[0] = working.exception() if working.done() else None
                answers.cancel()
                await connection.close()

        within(60, play())
        return ended[0]

    def test_a_later_controllers_seal_ends_this_one(self, tmp_path: Path) -> None:
        error = self.outcome(tmp_path, lambda led: sealed(led.keys, led.run.path.name, TERM + 1))
        assert isinstance(error, SupersededError)
        assert "has taken over" in str(error)

    def test_one_that_comes_back_is_told_by_whom_it_does_not_know(self, tmp_path: Path) -> None:
        run = run_directory(tmp_path)

        async def play() -> None:
            async with leading(run, tmp_path) as (led, working):
                term = sealed(led.keys, run.path.name, TERM + 1, "k" * 40)
                telling = asyncio.ensure_future(fence(led.uri, led.keys, term))
                await asyncio.wait([working])
                assert isinstance(working.exception(), SupersededError)
                await asyncio.sleep(0)
                assert not telling.done()
                telling.cancel()

        within(60, play())

    def test_all_earlier_controllers_are_known_also_to_the_next_standby(self, tmp_path: Path) -> None:
        run = run_directory(tmp_path)
        follows(run, "zmq://a:1")
        assert predecessors(run) == ["zmq://a:1"]

        async def play() -> None:
            async with leading(run, tmp_path) as (led, _), led.follower() as follower:
                following = asyncio.ensure_future(follower.follow())
                await led.complete(follower, following)
                following.cancel()

        within(60, play())
        copy = RunDirectory(tmp_path / "copy" / run.path.name)
        follows(copy, "zmq://b:2 xmlrpc://b:3")
        assert predecessors(copy) == predecessors(copy) == ["zmq://a:1", "zmq://b:2 xmlrpc://b:3"]

    def test_a_damaged_list_of_them_stops_nothing(self, tmp_path: Path) -> None:
        run = RunDirectory(tmp_path)
        (tmp_path / "predecessors.json").write_text("{")
        follows(run, "zmq://a:1")
        assert predecessors(run) == ["zmq://a:1"]

    @pytest.mark.parametrize("forged", ["f" * 64, ""])
    def test_a_forged_epoch_ends_no_controller(self, tmp_path: Path, forged: str) -> None:
        assert self.outcome(tmp_path, lambda led: Term(2**50, forged)) is None

    def test_its_own_term_does_not_end_the_controller(self, tmp_path: Path) -> None:
        assert self.outcome(tmp_path, lambda led: led.host.server.standbys.term) is None


class TestRefusals:
    @staticmethod
    def refused(tmp_path: Path, prepare_copy: Any = None, **given: Any) -> str:
        run = run_directory(tmp_path)
        reason = [""]

        async def play() -> None:
            async with leading(run, tmp_path) as (led, _):
                invite = led.invite(given["role"]) if "role" in given else None
                async with led.follower(invite=invite) as follower:
                    while not led.host.ledger.last_id:
                        await asyncio.sleep(0.01)
                    if prepare_copy is not None:
                        prepare_copy(follower)
                    try:
                        await follower.follow()
                    except InviteError as error:
                        reason[0] = str(error)

        within(60, play())
        return reason[0]

    def test_an_invite_for_workers(self, tmp_path: Path) -> None:
        assert "is for a worker: use it with `barnraise join INVITE`" in self.refused(tmp_path, role=WORKER)

    def test_a_copy_that_is_not_of_this_ledger(self, tmp_path: Path) -> None:
        def go_on_by_itself(follower: Follower) -> None:
            from barnraise.ledger import Noted, notes

            follower.copy.commit([Noted(0.5, notes.Paused("another run"))])

        assert "new folder (--dir)" in self.refused(tmp_path, go_on_by_itself)

    def test_an_older_protocol(self, tmp_path: Path) -> None:
        run = run_directory(tmp_path)

        async def play() -> None:
            async with leading(run, tmp_path) as (led, _):
                keys, invite = Keys.generate(), led.invite()
                connection = create("zmq").connection()
                await connection.open(led.uri, led.keys.public, keys)
                old = Follow(PROTOCOL_VERSION - 1, invite.token, "spare", "0" * 64, "0" * 64, "zmq://127.0.0.1:9")
                await connection.send(encode(old))
                answer, _ = decode_to_standby(await connection.receive() or [])
                assert isinstance(answer, Stop)
                assert f"only {PROTOCOL_VERSION}" in answer.reason
                await connection.close()

        within(60, play())

    def test_a_second_standby(self, tmp_path: Path) -> None:
        run = run_directory(tmp_path)

        async def play() -> None:
            async with leading(run, tmp_path) as (led, _), led.follower() as first, led.follower("other") as second:
                following = asyncio.ensure_future(first.follow())
                await led.complete(first, following)
                with pytest.raises(InviteError, match="follows already"):
                    await second.follow()
                assert not following.done()
                following.cancel()

        within(60, play())


def test_a_standby_resumes_a_download_after_a_lost_connection(tmp_path: Path) -> None:
    content = bytes(range(256)) * (3 * CHUNK_BYTES // 256)
    blob = Blob(hashlib.sha256(content).hexdigest(), len(content))

    async def play() -> None:
        server, keys, asked = Keys.generate(), Keys.generate(), []
        listener = create("zmq").listener()
        listener.members = {keys.public: "n"}
        uri = await listener.bind("zmq://127.0.0.1:0", server)
        connection = create("zmq").connection()
        await connection.open(uri, server.public, keys)
        ledger = LedgerCopy(tmp_path / "ledger.sqlite", tmp_path / "segments", run="run")
        applicant = Applicant(Invite.create("h", 1, "run", server.public, now=0, lifetime=1), keys, "spare", uri)
        follower = Follower(connection, applicant, ledger, IncomingFiles(tmp_path, lambda content: content))

        async def answer(offsets: set[int]) -> None:
            while True:
                for peer, frames in await listener.receive_many():
                    message, _ = decode_from_standby(frames)
                    asked.append(message.offset)
                    if message.offset in offsets:
                        piece = content[message.offset : message.offset + message.num_bytes]
                        listener.send(peer, encode(Chunk(message.digest, message.offset), piece))

        tasks = [asyncio.ensure_future(follower._read()), asyncio.ensure_future(follower._keep_time())]
        answering = asyncio.ensure_future(answer({0, CHUNK_BYTES}))
        with pytest.raises(TimeoutError):
            await follower.fetch(blob)
        answering.cancel()
        assert asked == [0, CHUNK_BYTES, 2 * CHUNK_BYTES]
        answering = asyncio.ensure_future(answer({2 * CHUNK_BYTES}))
        assert await follower.fetch(blob) == content
        assert set(asked[3:]) == {2 * CHUNK_BYTES}
        for task in (*tasks, answering):
            task.cancel()
        await follower.close()
        await listener.close(linger=0.0)

    within(60, play())


@pytest.mark.parametrize("path", ["../evil", "keys/other.json", "data/a/b", "checkpoints/v1/x.json", "logs/x"])
def test_a_file_that_no_run_has_is_not_taken(tmp_path: Path, path: str) -> None:
    files = IncomingFiles(tmp_path, lambda content: content)
    with pytest.raises(WireError):
        files.wanted([CopiedFile(path, Blob("0" * 64, 1))])
    assert list(tmp_path.iterdir()) == []
