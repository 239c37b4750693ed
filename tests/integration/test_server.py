"""The controller's shell with real sockets, ledger and tensors, against clients that misbehave."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from barnraise import aggregation, compression, staleness, training, transport
from barnraise.controller.machine import Controller
from barnraise.controller.shell.enrolment import Enrolment
from barnraise.controller.shell.server import Server
from barnraise.controller.state.events import Admitted, RevokeRequested, StopRequested
from barnraise.controller.state.settings import EngineSettings, RowNeeds
from barnraise.controller.tensors.blobs import BlobStore
from barnraise.controller.tensors.executor import ControllerExecutor
from barnraise.controller.tensors.parameter_server import ParameterServer
from barnraise.core.errors import InviteError
from barnraise.core.types import KINDS, Blob, Contribution, NodeProfile, ParameterRange
from barnraise.data import shards
from barnraise.data.meta import Format
from barnraise.ledger import Checkpoints, Ledger
from barnraise.ledger.decisions import Judged, NodeChanged, Noted
from barnraise.models.vectors import digest
from barnraise.transport import Invite, Keys, TokenBook, proof
from barnraise.transport.zmq.simple import SimpleClient
from barnraise.trust.signatures import RunId
from barnraise.wire.frames import decode_from_controller, encode
from barnraise.wire.messages import (
    PROTOCOL_VERSION,
    Ack,
    Assign,
    Chunk,
    Enrol,
    Enrolled,
    Fetch,
    Gone,
    Hello,
    Identify,
    Message,
    Offer,
    PayloadChunk,
    RequestTask,
    SendPayload,
    Stop,
    Welcome,
)  # fmt: skip

from ..state_machine.engine import engine_settings, told

SIZE = 8
CODEC = compression.create("none")


class Evaluator:
    """No model here: the held-out loss is the distance to ones."""

    def build(self) -> None:
        """Nothing to build."""

    def model_of(self, parameters: torch.Tensor) -> torch.Tensor:
        return parameters.clone()

    def loss(self, module: torch.Tensor) -> float:
        return float((module - 1).square().mean())


def settings(key: str = "") -> EngineSettings:
    num_bytes = CODEC.max_bytes(SIZE)
    return engine_settings(
        run=RunId("test", key), worker=told(inner={"batch_size": 1}, uplink={"error_feedback": False}),
        manifest=Blob(hashlib.sha256(b"manifest").hexdigest(), 8), exchanged=SIZE,
        rows=shards.RowIndex([64], lengths=[16]), context=16, needs=RowNeeds(2, {}), tokens=10**9, batch_size=1,
        staleness=staleness.create("adaptive"),
        max_norm=100.0, most=num_bytes, partitions=((ParameterRange(0, SIZE),),), rungs=(num_bytes,), delta=num_bytes,
        sync_window=60.0, sync_longest_wait=600.0, heartbeat=0.25, lease=30.0, longest=30.0, checkpoint_seconds=60.0,
        times=5,
    )  # fmt: skip


class Cluster:
    """A running server, its book of invites and its ledger."""

    def __init__(self, folder: Path) -> None:
        form = Format(kind="text", tokenizer="bytes", context=16, vocab_size=258)
        rows = np.zeros((64, 16), np.uint16)
        shards.write(folder / "data", form, [rows], rows)
        parameters = ParameterServer(
            torch.zeros(SIZE), 0, rule=aggregation.create("mean"), codecs=[CODEC],
            downlink=compression.create("none"), outer=training.create("sgd"),
        )  # fmt: skip
        self.ledger, checkpoints = Ledger(folder / "ledger.sqlite", run="test"), Checkpoints(folder / "checkpoints")
        blobs = BlobStore(shards.Dataset.open(folder / "data"), hashlib.sha256(b"manifest").hexdigest(), b"manifest")
        blobs.publish(parameters.parameters, parameters.digest, parameters.leaves)
        self.clients: list[Client] = []
        self.book, self.keys = TokenBook(), Keys.generate()
        self.machine = Controller(settings(self.keys.public))
        self.parameters = parameters

        @contextmanager
        def open_book() -> Iterator[TokenBook]:
            yield self.book

        def make_executor(report: Any, failed: Any) -> ControllerExecutor:
            return ControllerExecutor(
                parameters, blobs, Evaluator(), self.ledger, checkpoints, report=report, failed=failed
            )

        self.server = Server(
            self.machine, self.ledger, Enrolment(self.keys, open_book), make_executor=make_executor,
            keep_checkpoints=2, clock=time.monotonic, warn=lambda text: None,
        )  # fmt: skip

    def decisions(self, kind: type) -> list[Any]:
        return [decision for _, decision in self.ledger.replay() if type(decision) is kind]

    async def reach(self, version: int) -> None:
        while self.machine.state.newest.version < version:
            await asyncio.sleep(0.01)

    async def client(self, *, enrolled: bool = True, signs: bool = False) -> Client:
        keys = Keys.generate()
        if enrolled:
            signer = keys.signer.public if signs else ""
            self.server.post(Admitted(f"n{len(self.machine.state.nodes)}", keys.public, signer=signer))
            while keys.public not in self.machine.state.roster.keys:
                await asyncio.sleep(0.01)
        client = Client(keys, self.keys.public)
        self.clients.append(client)
        await client.connection.open(self.uri, self.keys.public, keys)
        return client


class Client:
    """A connection driven by hand."""

    def __init__(self, keys: Keys, server_key: str) -> None:
        self.keys, self.server_key = keys, server_key
        self.connection = transport.create("zmq").connection()
        self.unread: list[tuple[Message, Any]] = []

    async def send(self, message: Message, raw: Any = None) -> None:
        await self.connection.send(encode(message, raw))

    async def expect(self, kind: type) -> Any:
        """The next message of this kind; others are passed over."""
        async with asyncio.timeout(20):
            while True:
                while self.unread:
                    message, raw = self.unread.pop(0)
                    if isinstance(message, kind):
                        return (message, raw) if raw is not None else message
                self.unread += [decode_from_controller(frames) for frames in await self.connection.receive_many()]

    async def hello(self, pending: tuple[int, ...] = ()) -> Welcome:
        await self.send(Hello(PROTOCOL_VERSION, 1, 1, NodeProfile(100.0), have=-1, kinds=tuple(KINDS), pending=pending))
        return await self.expect(Welcome)

    async def task(self, have: int = -1) -> Any:
        await self.send(RequestTask(have))
        answer = await self.expect(Assign)
        message, self.inlined = answer if isinstance(answer, tuple) else (answer, b"")
        return message.task

    def made(self, task: Any, content: bytes, **changes: Any) -> Contribution:
        blob = Blob(hashlib.sha256(content).hexdigest(), len(content))
        fields = {"assignment": task.id, "base": task.base, "parameters": task.parameters, "payload": blob,
                  "steps": task.local_steps, "loss": 1.0, "seconds": 0.1, "codec": 0} | changes  # fmt: skip
        return Contribution(**fields)

    async def offer(self, task: Any, content: bytes, *, inline: bool = True, **changes: Any) -> None:
        await self.send(Offer(self.made(task, content, **changes)), content if inline else None)


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(folder)
    cluster.uri = await cluster.server.bind("zmq://127.0.0.1:0")
    task = asyncio.ensure_future(
        cluster.server.run(cluster.machine.start(digest(cluster.parameters.parameters), time.monotonic()))
    )
    try:
        yield cluster
    finally:
        for client in cluster.clients:
            await client.connection.close()
        cluster.server.post(StopRequested("test is over"))
        await asyncio.wait_for(task, 30)
        cluster.ledger.close()


def run(folder: Path, scenario: Callable[[Cluster], Any]) -> None:
    async def main() -> None:
        async with running(folder) as cluster:
            await scenario(cluster)

    asyncio.run(main())


def update(value: float) -> bytes:
    return CODEC.encode(torch.full((SIZE,), value)).to_bytes()


def test_a_contribution_moves_the_model_once_however_often_it_is_sent(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await cluster.client()
        await client.hello()
        task = await client.task()
        for _ in range(3):
            await client.offer(task, update(-0.25))
            assert (await client.expect(Ack)).accepted
        await cluster.reach(version=1)  # durable comes before merged
        following = await client.task(have=-1)
        assert following.base == 1
        snapshot = following.news.updates[0].blob
        assert bytes(client.inlined) == np.full(SIZE, 0.25, np.float32).tobytes()  # small enough to be attached
        await client.send(Fetch(snapshot.digest, 0, snapshot.num_bytes))
        _, raw = await client.expect(Chunk)
        assert np.frombuffer(raw, np.float32).tolist() == [0.25] * SIZE
        assert len(cluster.decisions(Judged)) == 1

    run(tmp_path, scenario)


def test_the_inspected_payload_is_the_committed_one(tmp_path: Path) -> None:
    """Others of the same assignment, offered while the first is on its way or inspected, never take its place."""

    async def scenario(cluster: Cluster) -> None:
        client = await cluster.client()
        await client.hello()
        for _ in range(20):
            task = await client.task()
            await client.offer(task, update(-0.25), inline=False)
            await client.expect(SendPayload)
            await client.send(PayloadChunk(task.id, 0), update(-0.25))
            for other in (b"\x00", update(1e30), update(1e6)):
                await client.offer(task, other)
                await client.send(PayloadChunk(task.id, 0), other)
            assert (await client.expect(Ack)).accepted
        judged = cluster.decisions(Judged)
        assert {(d.verdict, d.norm) for d in judged} == {("accepted", 0.25 * SIZE**0.5)}
        assert all(cluster.ledger.read(d.assignment) == update(-0.25) for d in judged)
        assert not len(cluster.server.uploads)

    run(tmp_path, scenario)


def test_an_upload_resumes_after_a_broken_connection(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        client, content = await cluster.client(), update(-0.25)
        await client.hello()
        task = await client.task()
        await client.offer(task, content, inline=False)
        assert await client.expect(SendPayload) == SendPayload(task.id, 0)
        await client.send(PayloadChunk(task.id, 0), content[:10])
        await client.send(PayloadChunk(task.id, 30), content[30:])  # the bytes between these chunks were lost
        assert await client.expect(SendPayload) == SendPayload(task.id, 10)
        await client.connection.close()
        again = Client(client.keys, cluster.keys.public)
        cluster.clients.append(again)
        await again.connection.open(cluster.uri, cluster.keys.public, client.keys)
        await again.send(PayloadChunk(task.id, 10), content[10:])
        await again.expect(Identify)
        await again.hello(pending=(task.id,))
        await again.offer(task, content, inline=False)
        assert await again.expect(SendPayload) == SendPayload(task.id, 10)
        await again.send(PayloadChunk(task.id, 10), content[10:])
        assert (await again.expect(Ack)).accepted

    run(tmp_path, scenario)


def test_unrequested_payload_chunks_are_answered(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await cluster.client()
        await client.hello()
        await client.send(PayloadChunk((await client.task()).id, 0), b"x")
        await client.expect(Identify)

    run(tmp_path, scenario)


def test_poison_is_refused_and_journaled(tmp_path: Path) -> None:
    nan = bytearray(update(1.0))
    nan[-4:] = np.float32(np.nan).tobytes()

    async def scenario(cluster: Cluster) -> None:
        client = await cluster.client()
        await client.hello()
        wrong = [
            (bytes(nan), {}, "NaN"),
            (update(1.0)[:-4], {}, "bytes"),
            (update(1e6), {}, "max_update_norm"),
            (update(1.0), {"base": 7}, "base"),
            (update(1.0), {"loss": float("nan")}, "diverged"),
            (update(1.0), {"steps": 999}, "steps"),
            (update(1.0), {"payload": Blob("0" * 64, len(update(1.0)))}, "hash"),
        ]
        for payload, changes, word in wrong:
            await client.offer(await client.task(), payload, **changes)
            answer = await client.expect(Ack)
            assert not answer.accepted
            assert word in answer.reason
        assert [judged.verdict for judged in cluster.decisions(Judged)] == ["refused"] * len(wrong)
        assert cluster.machine.state.newest.version == 0

    run(tmp_path, scenario)


def test_malformed_frames_are_dropped_and_journaled_without_harm_to_others(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        bad, good = await cluster.client(), await cluster.client()
        await bad.hello()
        for frames in ([b"\xff" * 50], [b"", b""], [msgspec.msgpack.encode({"t": "Next"})], [b"\x80"] * 5):
            await bad.connection.send(frames)
        await bad.send(PayloadChunk(999, 0), b"x")
        await good.hello()
        await good.offer(await good.task(), update(0.5))
        assert (await good.expect(Ack)).accepted
        await bad.offer(await bad.task(), update(0.5))
        assert (await bad.expect(Ack)).accepted
        dropped = [noted for noted in cluster.decisions(Noted) if noted.kind == "frame_dropped"]
        assert dropped
        assert dropped[0].note.reason

    run(tmp_path, scenario)


def test_a_reader_that_breaks_takes_the_run_with_it_and_leaves_nothing_open(tmp_path: Path) -> None:
    async def broken(limit: int = 0) -> Any:
        raise RuntimeError("nothing can be read")

    async def main() -> None:
        cluster = Cluster(tmp_path)
        uri = await cluster.server.bind("zmq://127.0.0.1:0")
        cluster.server.listener.receive_many = broken  # type: ignore[method-assign]
        with pytest.raises(RuntimeError, match="nothing can be read"):
            await cluster.server.run(cluster.machine.start(digest(cluster.parameters.parameters), time.monotonic()))
        again = transport.create("zmq").listener()
        assert await again.bind(uri, cluster.keys) == uri
        await again.close()
        cluster.ledger.close()

    asyncio.run(main())


def test_an_unknown_blob_is_gone_and_an_unknown_session_is_asked_to_identify_itself(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await cluster.client()
        await client.send(RequestTask(have=0))
        await client.expect(Identify)
        await client.hello()
        await client.send(Fetch("f" * 64, 0, 10))
        assert (await client.expect(Gone)).digest == "f" * 64

    run(tmp_path, scenario)


def test_another_protocol_version_is_told_so(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await cluster.client()
        await client.send(Hello(PROTOCOL_VERSION + 1, 1, 1, NodeProfile(), have=-1))
        assert "protocol version" in (await client.expect(Stop)).reason

    run(tmp_path, scenario)


def test_a_revoked_member_is_told_so_and_gets_in_under_no_name(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        now = time.time()
        invite = Invite.create("h", 1, "test", cluster.keys.public, now=now, lifetime=100.0, uses=5)
        cluster.book.add(invite)
        client = await cluster.client()
        await client.hello()
        task = await client.task()
        await cluster.server.settle(RevokeRequested("n0", "it lies"))
        assert [d.reason for d in cluster.decisions(NodeChanged) if d.change == "revoked"] == ["it lies"]  # durable
        assert not (await client.expect(Stop)).final
        await client.offer(task, update(-0.25))
        await client.send(Hello(PROTOCOL_VERSION, 1, 2, NodeProfile(100.0), have=-1, kinds=tuple(KINDS)))
        assert "it lies" in (await client.expect(Stop)).reason
        signer = client.keys.signer.public
        mark = proof(invite.secret, invite.server_key, client.keys.public, "other", "0" * 64, signer)
        await client.send(Enrol(PROTOCOL_VERSION, invite.token, "other", "0" * 64, mark, signer))
        assert "it lies" in (await client.expect(Stop)).reason
        assert cluster.decisions(Judged) == []
        assert cluster.book.tokens[invite.token].uses == 5
        again = await cluster.client()  # all others are served
        assert (await again.hello()).node == "n1"

    run(tmp_path, scenario)


def test_a_revoked_invite_admits_no_node(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        invite = Invite.create("h", 1, "test", cluster.keys.public, now=time.time(), lifetime=100.0, uses=5)
        cluster.book.add(invite)
        ann, bob = await cluster.client(enrolled=False), await cluster.client(enrolled=False)

        async def enrol(client: Client, name: str, kind: type) -> Any:
            signer = client.keys.signer.public
            mark = proof(invite.secret, invite.server_key, client.keys.public, name, "0" * 64, signer)
            await client.send(Enrol(PROTOCOL_VERSION, invite.token, name, "0" * 64, mark, signer))
            return await client.expect(kind)

        await enrol(ann, "ann", Enrolled)
        assert [d.reason for d in cluster.decisions(NodeChanged)] == [f"invite {invite.token}"]
        cluster.book.revoke(invite.token)
        assert "taken this invite back" in (await enrol(bob, "bob", Stop)).reason
        assert (await ann.hello()).node == "ann"  # a member that joined by this invite stays

    run(tmp_path, scenario)


def test_invites_let_in_once_and_only_with_the_right_proof(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        now = time.time()
        invite = Invite.create("h", 1, "test", cluster.keys.public, now=now, lifetime=100.0, uses=1)
        expired = Invite.create("h", 1, "test", cluster.keys.public, now=now - 200, lifetime=100.0)
        another = Invite.create("h", 1, "test", cluster.keys.public, now=now, lifetime=100.0, uses=1)
        for one in (invite, expired, another):
            cluster.book.add(one)

        async def enrol(client: Client, ticket: Invite, name: str, secret: bytes | None = None) -> Any:
            nonce = "a" * 64
            signer = client.keys.signer.public
            mark = proof(secret or ticket.secret, cluster.keys.public, client.keys.public, name, nonce, signer)
            await client.send(Enrol(PROTOCOL_VERSION, ticket.token, name, nonce, mark, signer))
            return await client.expect(Enrolled | Stop)

        ann, bob = await cluster.client(enrolled=False), await cluster.client(enrolled=False)
        assert "not issued" in (await enrol(ann, invite, "ann", secret=b"x" * 32)).reason
        assert "expired" in (await enrol(ann, expired, "ann")).reason
        assert (await enrol(ann, invite, "ann")).node == "ann"
        assert (await enrol(ann, invite, "ann")).node == "ann"  # again costs nothing
        assert "used up" in (await enrol(bob, invite, "bob")).reason
        stranger = [(await enrol(bob, another, name, secret=b"x" * 32)).reason for name in ("ann", "nobody")]
        assert stranger[0] == stranger[1], "without a proof nobody learns whose names are taken"
        assert "taken" in (await enrol(bob, another, "ann")).reason
        assert (await enrol(bob, another, "bob")).node == "bob", "a name that is taken spends no use"
        await ann.hello()

    run(tmp_path, scenario)


def test_a_script_with_a_request_socket_contributes(tmp_path: Path) -> None:
    """Enrolled by invite, over questions and answers alone: hello, next, fetch, offer, twice, and goodbye."""

    async def scenario(cluster: Cluster) -> None:
        now = time.time()
        port = int(cluster.uri.rpartition(":")[2])
        invite = Invite.create("127.0.0.1", port, "test", cluster.keys.public, now=now, lifetime=100.0)
        cluster.book.add(invite)
        loop = asyncio.get_running_loop()

        def script() -> list[float]:
            with SimpleClient(invite.uri, invite.server_key, Keys.generate()) as client:
                assert client.enrol(invite, "script") == "script"
                assert client.hello(NodeProfile(100.0)).run == "test"
                for version in (1, 2):
                    task = client.next()
                    ack = client.offer(task, update(-0.25), steps=2, loss=1.0, seconds=0.1)
                    assert (ack.accepted, ack.assignment) == (True, task.id)
                    merged = cluster.reach(version)  # durable comes before merged
                    asyncio.run_coroutine_threadsafe(merged, loop).result(20)
                task = client.next()
                model = client.fetch(task.news.updates[-1].blob, limit=1 << 20, snapshot=True)
                assert not client.offer(task, b"poison", steps=2, loss=1.0, seconds=0.1).accepted
                client.leave("done")
                return np.frombuffer(model, np.float32).tolist()

        assert await asyncio.to_thread(script) == [0.5] * SIZE
        assert [judged.verdict for judged in cluster.decisions(Judged)] == ["accepted", "accepted", "refused"]

    run(tmp_path, scenario)


def test_a_script_that_the_controller_forgot_offers_again_and_counts_once(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        keys = Keys.generate()
        cluster.server.post(Admitted("script", keys.public))
        while keys.public not in cluster.machine.state.roster.keys:
            await asyncio.sleep(0.01)
        loop = asyncio.get_running_loop()

        def script() -> None:
            with SimpleClient(cluster.uri, cluster.keys.public, keys) as client:
                client.hello(NodeProfile(100.0))
                task = client.next()
                loop.call_soon_threadsafe(cluster.server.peers.clear)
                assert client.offer(task, update(-0.25), steps=2, loss=1.0, seconds=0.1).accepted
                assert client.offer(task, update(-0.25), steps=2, loss=1.0, seconds=0.1).accepted

        await asyncio.to_thread(script)
        assert len(cluster.decisions(Judged)) == 1

    run(tmp_path, scenario)


def test_a_script_that_is_not_let_in_is_told_why(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        port = int(cluster.uri.rpartition(":")[2])
        forged = Invite.create("127.0.0.1", port, "test", cluster.keys.public, now=time.time(), lifetime=100.0)

        def script() -> None:
            with (
                SimpleClient(forged.uri, forged.server_key, Keys.generate()) as client,
                pytest.raises(InviteError, match="not issued by this run"),
            ):
                client.enrol(forged, "script")

        await asyncio.to_thread(script)

    run(tmp_path, scenario)
