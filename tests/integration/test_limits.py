"""The load that a running controller accepts while its disk is full, and the records that it keeps about a flood."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from barnraise.controller.shell import server
from barnraise.controller.shell.enrolment import Enrolment
from barnraise.controller.shell.inbox import Brought
from barnraise.core.errors import StorageError
from barnraise.core.types import KINDS, Blob, Contribution, NodeProfile, ParameterRange
from barnraise.ledger.decisions import Noted
from barnraise.transport import Invite, TokenBook, proof
from barnraise.transport.base import BATCH_BYTES, BATCH_MESSAGES
from barnraise.wire.messages import INLINE_BYTES, PROTOCOL_VERSION, Ack, Enrol, Enrolled, Heartbeat, Hello, Offer, Stop

from .test_server import Client, Cluster, run


@asynccontextmanager
async def full_disk(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """A client whose greeting waits for room on the ledger's disk, which there is again at the end."""
    waits, room, commit = threading.Event(), threading.Event(), cluster.ledger.commit

    def wait(*batch: Any) -> None:
        waits.set()
        room.wait()
        commit(*batch)

    client = await cluster.client()
    monkeypatch.setattr(cluster.ledger, "commit", wait)
    try:
        await client.send(Hello(PROTOCOL_VERSION, 1, 1, NodeProfile(), have=-1, kinds=tuple(KINDS)))
        await asyncio.to_thread(waits.wait)
        yield client
    finally:
        room.set()


def test_payloads_that_come_along_are_bounded_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = bytes(INLINE_BYTES)
    blob, whole = Blob(hashlib.sha256(payload).hexdigest(), len(payload)), ParameterRange(0, 8)
    count = 3 * BATCH_BYTES // len(payload)

    async def scenario(cluster: Cluster) -> None:
        budget = cluster.server.listener.budget
        budget.total = 2 << 20

        async def flood(client: Client) -> None:
            for number in range(count):
                await client.send(
                    Offer(
                        Contribution(
                            assignment=number,
                            base=0,
                            parameters=whole,
                            payload=blob,
                            steps=1,
                            loss=1.0,
                            seconds=1.0,
                            codec=0,
                        )
                    ),
                    payload,
                )

        async with full_disk(cluster, monkeypatch) as client:
            flooding = asyncio.create_task(flood(client))
            while not budget.spent:
                await asyncio.sleep(0.01)
            for _ in range(1000):
                await asyncio.sleep(0)
            kept = sum(len(event.payload) for event in cluster.server.inbox if isinstance(event, Brought))
            assert kept == budget.waiting <= budget.total + BATCH_BYTES
        for _ in range(count):
            await client.expect(Ack)
        await flooding
        assert not budget.waiting

    run(tmp_path, scenario)


def test_nothing_more_is_read_while_too_much_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_WAITING", 64)

    async def scenario(cluster: Cluster) -> None:
        async with full_disk(cluster, monkeypatch) as client:
            for number in range(4 * BATCH_MESSAGES):
                await client.send(Heartbeat(float(number)))
            while len(cluster.server.inbox) < 64:
                await asyncio.sleep(0.01)
            for _ in range(1000):
                await asyncio.sleep(0)
            assert len(cluster.server.inbox) <= 64 + BATCH_MESSAGES
        await client.hello()

    run(tmp_path, scenario)


def test_an_enrolment_fails_while_the_disk_is_full_and_works_later(tmp_path: Path) -> None:
    @contextmanager
    def full() -> Iterator[TokenBook]:
        raise StorageError("no space left on device")
        yield

    async def scenario(cluster: Cluster) -> None:
        invite = Invite.create("h", 1, "test", cluster.keys.public, now=time.time(), lifetime=100.0, uses=1)
        cluster.book.add(invite)
        client, nonce = await cluster.client(enrolled=False), "0" * 64
        signer = client.keys.signer.public
        mark = proof(invite.secret, invite.server_key, client.keys.public, "ann", nonce, signer)
        with_room, cluster.server.reception.enrolment = cluster.server.enrolment, Enrolment(cluster.keys, full)
        await client.send(Enrol(PROTOCOL_VERSION, invite.token, "ann", nonce, mark, signer))
        assert "no space left" in (await client.expect(Stop)).reason
        cluster.server.reception.enrolment = with_room
        await client.send(Enrol(PROTOCOL_VERSION, invite.token, "ann", nonce, mark, signer))
        assert (await client.expect(Enrolled)).node == "ann"

    run(tmp_path, scenario)


def test_strangers_under_fresh_keys_cost_one_row(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        before, junk = cluster.server.bytes_up, b"\xc0" * 100
        for _ in range(20):
            stranger = await cluster.client(enrolled=False)
            for _ in range(5):
                await stranger.connection.send([junk])
        while cluster.server.bytes_up < before + 20 * 5 * len(junk):
            await asyncio.sleep(0.01)
        await (await cluster.client()).hello()
        dropped = [noted for noted in cluster.decisions(Noted) if noted.kind == "frame_dropped"]
        assert [(noted.node, noted.note.count) for noted in dropped] == [("", 1)]

    run(tmp_path, scenario)
