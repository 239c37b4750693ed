"""Files from URLs: real servers on loopback that are sound, lack files, lie, redirect, or say nothing."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from barnraise.core.types import Blob
from barnraise.transport.reach import MAY_NAME, AddressReach
from barnraise.wire.messages import CHUNK_BYTES, Chunk
from barnraise.worker import mirrors as module
from barnraise.worker.events import Event
from barnraise.worker.fetching import Fetcher
from barnraise.worker.mirrors import Mirrors

CONTENT = np.random.default_rng(0).bytes(3 * CHUNK_BYTES + 17)
HERE, PUBLIC = MAY_NAME[AddressReach.MACHINE], MAY_NAME[AddressReach.INTERNET]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def ranges(content: bytes) -> Handler:
    """Answers as a server of static files does."""

    async def answer(request: web.Request) -> web.StreamResponse:
        part = request.http_range
        return web.Response(body=content[part], status=206)

    return answer


async def whole(request: web.Request) -> web.StreamResponse:
    return web.Response(body=CONTENT)


async def endless(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(status=206)
    await answer.prepare(request)
    while True:
        await answer.write(b"\0" * 65536)


async def short(request: web.Request) -> web.StreamResponse:
    return web.Response(body=CONTENT[:5], status=206)


async def broken(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def silent(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """The prefix of a server on loopback whose every path `handler` answers."""
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/run/"
    finally:
        await runner.cleanup()


@dataclass
class Shell:
    """The part of a worker's shell around the mirrors; the controller answers with the right bytes."""

    folder: Path
    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    said: list[str] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    asked: int = 0  # ranges that the controller was asked for

    @asynccontextmanager
    async def using(
        self, prefixes: list[str], may: Any = HERE
    ) -> AsyncIterator[Callable[[str, bytes], Awaitable[bytes]]]:
        """Yield a function that fetches a file by its name, whose bytes are known here."""
        fetcher = Fetcher()
        mirrors = fetcher.mirrors = Mirrors(fetcher, self.events.put_nowait, self.spawn, self.said.append)
        mirrors.use(prefixes, may)

        async def get(name: str, content: bytes) -> bytes:
            blob = Blob(hashlib.sha256(content).hexdigest(), len(content))
            fetcher.cache.place(blob.digest, self.folder / name)
            while not fetcher.start(blob):
                for request in fetcher.requests(time.monotonic()):
                    self.asked += 1
                    part = content[request.offset : request.offset + request.num_bytes]
                    fetcher.chunk(Chunk(request.digest, request.offset), part, time.monotonic())
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.events.get(), 0.05)
            return (self.folder / name).read_bytes()

        try:
            async with asyncio.timeout(60):
                yield get
        finally:
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
            await mirrors.close()

    async def fetch(self, prefixes: list[str], may: Any = HERE) -> bytes:
        async with self.using(prefixes, may) as get:
            return await get("train-00000.bin", CONTENT)

    def spawn(self, work: Any) -> None:
        self.tasks.append(asyncio.ensure_future(work))


def fetch(shell: Shell, handler: Handler, may: Any = HERE) -> bytes:
    async def run() -> bytes:
        async with serving(handler) as prefix:
            return await shell.fetch([prefix], may)

    return asyncio.run(run())


def test_a_file_comes_from_its_url_alone(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert fetch(shell, ranges(CONTENT)) == CONTENT
    assert shell.asked == 0
    assert shell.said == []


@pytest.mark.parametrize("handler", [whole, short, broken], ids=lambda each: each.__name__)
def test_the_controller_sends_what_a_server_does_not(handler: Handler, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert fetch(shell, handler) == CONTENT
    assert shell.asked > 0
    assert shell.said[0].startswith("train-00000.bin is fetched from the controller: http://127.0.0.1")


def test_wrong_bytes_are_fetched_again_from_the_controller(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert fetch(shell, ranges(bytes(len(CONTENT)))) == CONTENT
    assert shell.asked == 4


def test_no_more_bytes_are_read_than_were_asked_for(tmp_path: Path) -> None:
    """An endless answer has wrong bytes at worst: the controller's follow."""
    shell = Shell(tmp_path)
    assert fetch(shell, endless) == CONTENT


def test_a_silent_server_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.2)
    shell = Shell(tmp_path)
    assert fetch(shell, silent) == CONTENT
    assert shell.asked > 0


def test_a_run_on_the_internet_cannot_send_a_worker_into_its_own_network(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert fetch(shell, ranges(CONTENT), may=PUBLIC) == CONTENT
    assert shell.asked == 4
    assert "127.0.0.1 is in a network that the run's own address is not in" in shell.said[0]


def test_a_redirect_cannot_either(tmp_path: Path) -> None:
    """The first server may be reached, and the one that it redirects to may not."""
    target: list[str] = []
    reached: list[str] = []

    async def redirect(request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound(target[0])

    async def inside(request: web.Request) -> web.StreamResponse:
        reached.append(request.path)
        return await ranges(CONTENT)(request)

    async def run() -> bytes:
        async with serving(redirect) as first, serving(inside) as second:
            target.append(second.replace("127.0.0.1", "169.254.7.7") + "train-00000.bin")
            return await Shell(tmp_path).fetch([first])

    assert asyncio.run(run()) == CONTENT
    assert reached == []


def test_a_prefix_that_fails_is_not_asked_for_ever(tmp_path: Path) -> None:
    calls: list[str] = []

    async def missing(request: web.Request) -> web.StreamResponse:
        calls.append(request.path)
        raise web.HTTPNotFound

    shell = Shell(tmp_path)
    assert fetch(shell, missing) == CONTENT
    assert set(calls) == {"/run/train-00000.bin"}
    assert "the server answers 404" in shell.said[0]
    assert len(shell.said) == 1


def test_the_second_prefix_is_asked_once_the_first_has_failed(tmp_path: Path) -> None:
    """A file that the first does not give comes from the controller; later ones come from the second."""
    other = CONTENT[::-1]

    async def missing(request: web.Request) -> web.StreamResponse:
        raise web.HTTPNotFound

    async def run() -> tuple[int, int]:
        shell = Shell(tmp_path)
        async with serving(missing) as first, serving(ranges(other)) as second, shell.using([first, second]) as get:
            assert await get("train-00000.bin", CONTENT) == CONTENT
            before = shell.asked
            assert await get("train-00001.bin", other) == other
        return before, shell.asked

    assert asyncio.run(run()) == (4, 4)
