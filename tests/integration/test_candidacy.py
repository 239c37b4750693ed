"""A standby whose controller is silent, over real sockets: what makes it the controller, and what sends it back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from barnraise.account.account import read
from barnraise.account.facts import facts
from barnraise.assembly.addresses import listen
from barnraise.assembly.candidacy import Candidacy
from barnraise.assembly.hosting import open_host
from barnraise.assembly.ports import Ports
from barnraise.assembly.standby import MARK
from barnraise.assembly.voice import Voice
from barnraise.cli import console
from barnraise.cli.standby import standby
from barnraise.config.load import load
from barnraise.controller.standby.follower import Follower
from barnraise.controller.standby.succession import Stage
from barnraise.controller.state.events import Admitted, InterruptRequested
from barnraise.core.errors import InputError
from barnraise.core.types import NodeProfile
from barnraise.ledger import LedgerView, RunDirectory, notes
from barnraise.ledger.copying import TERM
from barnraise.plan.purpose import SERVE
from barnraise.plan.resolve import resolve
from barnraise.transport import Keys, create
from barnraise.transport.base import Connection
from barnraise.transport.seals import sealed
from barnraise.wire import encode
from barnraise.wire.frames import decode_from_controller
from barnraise.wire.messages import (
    EVERYTHING,
    PROTOCOL_VERSION,
    Ack,
    Heartbeat,
    Hello,
    Identify,
    Message,
    Pulse,
    SendPayload,
    Term,
    Welcome,
)

from .test_standbys import Led, leading, run_directory, within

SCHEMES = ["zmq", "xmlrpc"]

Heard = TypeVar("Heard", bound=Message)


class Worker:
    """A worker's keys and connection, and nothing else of it."""

    def __init__(self, name: str) -> None:
        self.name, self.keys, self.greeting = name, Keys.generate(), 0

    async def dial(self, uri: str, server_key: str) -> None:
        self.connection: Connection = create(uri.split(":")[0]).connection()
        await self.connection.open(uri, server_key, self.keys)

    async def greet(self, term: Term = Term()) -> None:  # noqa: B008 (frozen)
        self.greeting += 1
        await self.connection.send(encode(Hello(PROTOCOL_VERSION, 1, self.greeting, NodeProfile(), -1, term=term)))

    async def hear(self, kind: type[Heard]) -> Heard:
        """The next answer of that kind."""
        while True:
            message, _ = decode_from_controller(await self.connection.receive() or [])
            if isinstance(message, kind):
                return message


@dataclass
class Scene:
    """A standby with a complete copy of a run, whose controller was there and is gone."""

    run: RunDirectory
    copy: RunDirectory
    follower: Follower
    following: asyncio.Task[None]
    candidacy: Candidacy
    ports: Ports
    workers: list[Worker]
    server_keys: Keys

    async def reaches(self, stage: Stage) -> None:
        while self.candidacy.succession.stage is not stage:
            await asyncio.sleep(0.01)
            if self.following.done():
                self.following.result()

    @property
    def epoch(self) -> int:
        with LedgerView(self.copy.ledger) as view:
            return view.epoch


@asynccontextmanager
async def deserted(tmp_path: Path, names: str, *, use_zmq: bool = True) -> AsyncIterator[Scene]:
    """The standby of a run in which these workers lived when its controller ended."""
    run = run_directory(tmp_path, standby_lease=1.0, lease=3600.0, longest_lease=3600.0, use_zmq=use_zmq)
    async with AsyncExitStack() as stack:
        async with leading(run, tmp_path) as (led, _):
            workers = [Worker(name) for name in names]
            for worker in workers:
                led.host.server.post(Admitted(worker.name, worker.keys.public))
                await worker.dial(led.uri, led.keys.public)
                while worker.name not in led.host.machine.state.nodes:
                    await asyncio.sleep(0.01)
                await worker.greet()
                await worker.hear(Welcome)
                await worker.connection.close()
            follower = await stack.enter_async_context(led.follower())
            following = asyncio.ensure_future(follower.follow())
            stack.callback(following.cancel)
            await led.complete(follower, following)
            invite = led.invite()
        copy = RunDirectory(follower.copy.path.parent)
        ports = stack.enter_context(Ports.reserve(invite, "127.0.0.1", 0, 0))
        candidacy = Candidacy(copy, follower, ports, Voice.of(console.note))
        stack.push_async_callback(candidacy.close)
        yield Scene(run, copy, follower, following, candidacy, ports, workers, led.keys)


@pytest.mark.parametrize("use_zmq", [True, False], ids=SCHEMES)
def test_workers_that_come_make_it_the_controller_and_stay_connected(tmp_path: Path, use_zmq: bool) -> None:
    async def play() -> None:
        async with deserted(tmp_path, "abc", use_zmq=use_zmq) as scene:
            epoch = scene.epoch
            deciding = asyncio.ensure_future(scene.candidacy.decide())
            await scene.reaches(Stage.CANDIDATE)
            succession = scene.candidacy.succession
            for worker in scene.workers[:2]:
                assert not deciding.done()
                assert scene.epoch == epoch
                await worker.dial(scene.ports.uri, scene.server_keys.public)
                await worker.greet()
                while worker.name not in succession._greetings and not deciding.done():
                    await asyncio.sleep(0.01)
            await deciding
            assert succession.wanted == succession.present == 2
            scene.following.cancel()
            await asyncio.wait([scene.following])
            await scene.follower.close()
            plan = resolve(load(scene.copy.run_file), purpose=SERVE)
            host = open_host(scene.copy, plan, lambda text: None)
            uri = await listen(host.server, scene.copy, plan, "serve", scene.candidacy.handover)
            assert uri == scene.ports.uri
            working = asyncio.ensure_future(host.server.run(host.first))
            for worker in scene.workers[:2]:
                assert (await worker.hear(Welcome)).term.epoch > TERM
                assert worker.connection.num_connects == 1
                await worker.connection.close()
            host.server.post(InterruptRequested("the test is over"))
            await working
            await host.close()

    within(60, play())


def test_a_controller_that_answers_again_is_followed_and_keeps_its_workers(tmp_path: Path) -> None:
    async def play() -> None:
        async with deserted(tmp_path, "ab") as scene:
            epoch = scene.epoch
            deciding = asyncio.ensure_future(scene.candidacy.decide())
            await scene.reaches(Stage.CANDIDATE)
            worker = scene.workers[0]
            await worker.dial(scene.ports.uri, scene.server_keys.public)
            await worker.greet()
            while not scene.candidacy.succession.present:
                await asyncio.sleep(0.01)
            async with leading(scene.run, tmp_path) as (led, working):
                await scene.reaches(Stage.FOLLOWING)
                assert scene.candidacy.succession.present == 0
                await led.complete(scene.follower, scene.following)
                while led.host.server.standbys.lag is None:
                    await asyncio.sleep(0.01)
                assert not deciding.done()
                assert not working.done()
            await scene.reaches(Stage.CANDIDATE)  # the candidate took its ports again
            assert scene.epoch >= epoch
            deciding.cancel()
            await worker.connection.close()

    within(60, play())


def test_strangers_and_workers_with_a_later_term_are_not_counted_as_present(tmp_path: Path) -> None:
    async def play() -> None:
        async with deserted(tmp_path, "a") as scene:
            deciding = asyncio.ensure_future(scene.candidacy.decide())
            await scene.reaches(Stage.CANDIDATE)
            stranger, (worker,) = Worker("x"), scene.workers
            await stranger.dial(scene.ports.uri, scene.server_keys.public)
            await worker.dial(scene.ports.uri, scene.server_keys.public)
            await stranger.greet()
            await worker.connection.send(encode(Pulse(1.0, 1.0, 1.0)))  # a message that no worker sends
            later = sealed(scene.server_keys, scene.run.path.name, scene.follower.term.epoch + 1)
            await worker.greet(later)
            while not scene.candidacy._said_later:
                await asyncio.sleep(0.01)
            assert scene.candidacy.succession.present == 0
            assert not deciding.done()
            await worker.greet(scene.follower.term)
            await deciding
            await worker.connection.close()
            await stranger.connection.close()

    within(60, play())


def test_a_worker_that_does_not_greet_is_asked_to_identify_itself(tmp_path: Path) -> None:
    async def play() -> None:
        async with deserted(tmp_path, "a") as scene:
            deciding = asyncio.ensure_future(scene.candidacy.decide())
            await scene.reaches(Stage.CANDIDATE)
            (worker,) = scene.workers
            await worker.dial(scene.ports.uri, scene.server_keys.public)
            await worker.connection.send(encode(Heartbeat(1.0)))
            await worker.hear(Identify)
            assert not deciding.done()
            deciding.cancel()
            await worker.connection.close()

    within(60, play())


def test_the_hosts_word_is_enough(tmp_path: Path) -> None:
    async def play() -> None:
        async with deserted(tmp_path, "ab") as scene:
            deciding = asyncio.ensure_future(scene.candidacy.decide())
            await scene.reaches(Stage.CANDIDATE)
            copy = scene.copy.path
            with pytest.raises(InputError, match="is not a copy that a standby keeps"):
                standby(take_over=copy, invite="")
            (copy / MARK).touch()
            with pytest.raises(InputError, match=f"barnraise resume {copy}"):
                standby(take_over=copy, invite="")
            with scene.copy.lock():
                with pytest.raises(InputError, match="without an invite"):
                    standby(take_over=copy, invite="barnraise://x")
                assert not deciding.done()
                standby(take_over=copy, invite="")
                await deciding
            assert not list(scene.copy.requests.iterdir())

    within(60, play())


def test_a_standby_needs_an_invite_or_a_copy() -> None:
    with pytest.raises(InputError, match="which run"):
        standby("")


class TestPatience:
    @staticmethod
    async def lowered(led: Led) -> None:
        while led.host.ledger.newest(notes.DurabilityLowered) is None:
            await asyncio.sleep(0.01)

    def test_without_a_standby_for_long_acknowledgements_go_out_and_wait_again_for_one_that_comes(
        self, tmp_path: Path
    ) -> None:
        warnings: list[str] = []
        run = run_directory(tmp_path, durability="standby", standby_patience=0.5)

        async def play() -> None:
            async with leading(run, tmp_path, warnings.append) as (led, _):
                standbys, told = led.host.server.standbys, []
                standbys._tell = lambda node, message: told.append((node, message))
                assert standbys.outgoing("n", Ack(7, True)) == [SendPayload(7, EVERYTHING)]
                await self.lowered(led)
                assert told == [("n", Ack(7, True))]
                assert standbys.outgoing("n", Ack(8, True)) == [Ack(8, True)]
                assert standbys.durability.unprotected == 2
                assert "standby" in dict(facts(read(run)))
                async with led.follower() as follower:
                    following = asyncio.ensure_future(follower.follow())
                    while led.host.ledger.newest(notes.DurabilityRestored) is None:
                        await asyncio.sleep(0.01)
                    assert "standby" not in dict(facts(read(run)))
                    assert not standbys.durability.lowered
                    following.cancel()
            assert any("acknowledged without a standby" in text for text in warnings)
            assert any("wait for it again" in text for text in warnings)

        within(60, play())

    def test_it_does_not_while_most_workers_of_before_are_away(self, tmp_path: Path) -> None:
        warnings: list[str] = []

        async def play() -> None:
            run = run_directory(tmp_path, lease=3600.0, longest_lease=3600.0, durability="standby")
            async with leading(run, tmp_path) as (led, _):
                worker = Worker("a")
                led.host.server.post(Admitted("a", worker.keys.public))
                await worker.dial(led.uri, led.keys.public)
                while "a" not in led.host.machine.state.nodes:
                    await asyncio.sleep(0.01)
                await worker.greet()
                await worker.hear(Welcome)
            text = run.run_file.read_text()
            run.run_file.write_text(text.replace("standby_patience: 30.0", "standby_patience: 0.0"))
            async with leading(run, tmp_path, warnings.append) as (led, _):
                standbys = led.host.server.standbys
                assert standbys.durability.patience == 0.0
                while not any("fewer than half of the 1 workers" in text for text in warnings):
                    await asyncio.sleep(0.01)
                assert standbys.outgoing("n", Ack(7, True)) == [SendPayload(7, EVERYTHING)]
                worker.connection.redial()
                await worker.greet()
                await self.lowered(led)
                await worker.connection.close()

        within(60, play())


def test_a_copy_that_is_not_complete_says_that_it_cannot_take_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def play() -> None:
        async with deserted(tmp_path, "a") as scene:
            scene.follower._gap = 10**9  # the row of a payload that the controller had no more
            deciding = asyncio.ensure_future(scene.candidacy.decide())
            said = ""
            while "this copy cannot take over: it is not complete" not in said:
                await asyncio.sleep(0.01)
                assert not deciding.done()
                said += "".join(capsys.readouterr())
            assert scene.candidacy.succession.stage is Stage.FOLLOWING
            deciding.cancel()

    within(60, play())
