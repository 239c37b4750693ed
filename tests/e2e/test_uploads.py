"""Payloads that take longer to send than a task takes, and connections that break in the midst of one."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from barnraise.core.signals import COME_AGAIN
from barnraise.ledger.view import LedgerView
from barnraise.transport import Invite

from .test_train import once_in_versions, view_of

MODEL = {"architecture": "gpt2", "config": {"hidden_size": 96, "num_layers": 2, "num_heads": 2}}  # 1 MB a payload
TRAINING = {
    "batch_size": 4, "local_steps": 1, "learning_rate": 0.001, "compression": "none", "auto_tune": False,
}  # fmt: skip


class Proxy(threading.Thread):
    """A proxy that passes bytes to `target`, at `up` bytes a second upwards; `cut` breaks all connections."""

    def __init__(self, target: int, up: float) -> None:
        super().__init__(daemon=True)
        self.target, self.up, self.port = target, up, 0
        self.passed = 0  # bytes up so far
        self._ready = threading.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self.start()
        self._ready.wait(10)

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=1 << 14)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there = await asyncio.open_connection("127.0.0.1", self.target)
        self._writers |= {writer, there}
        await asyncio.gather(self._pass(reader, there, self.up), self._pass(there_reader, writer, 0.0))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rate: float) -> None:
        try:
            while data := await reader.read(1 << 14):
                if rate:
                    self.passed += len(data)
                    await asyncio.sleep(len(data) / rate)
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def cut(self) -> None:
        def abort() -> None:
            for writer in self._writers:
                writer.transport.abort()
            self._writers.clear()

        self._loop.call_soon_threadsafe(abort)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self.join(10)


@contextmanager
def proxy(target: int, up: float) -> Iterator[Proxy]:
    running = Proxy(target, up)
    try:
        yield running
    finally:
        running.stop()


def accepted(run_dir: Path) -> Callable[[str], int]:
    def count(_: str) -> int:
        view = view_of(run_dir)
        return 0 if view is None else view.totals().accepted

    return count


@pytest.mark.campaign
@pytest.mark.slow
def test_payloads_that_take_longer_than_a_task_all_arrive(barnraise, run_file) -> None:
    """While one payload goes up the next task ends: they are sent one after the other, and none is lost."""
    training = TRAINING | {"tokens": 2500}
    process = barnraise(
        "train", str(run_file(model=MODEL, training=training, network={"profile": "satellite"})), "--json"
    )
    assert process.wait(150) == 0, process.text()
    result = process.json()
    once_in_versions(Path(result["run_dir"]))
    assert result["tokens"] >= 2500
    assert result["refused"] == 0
    assert result["bytes_up"] < (result["accepted"] + 3) * result["snapshot_bytes"], "payloads were sent more than once"


@pytest.mark.campaign
@pytest.mark.slow
def test_an_interrupted_upload_resumes(barnraise, run_file) -> None:
    training = TRAINING | {"tokens": 10**6, "overlap": False}
    host = barnraise("serve", str(run_file(model=MODEL, training=training, workers=[])))
    file = host.wait_for(lambda text: (m := re.search(r"barnraise join '@(\S+)'", text)) and m[1])
    invite = Path(file).read_text().strip()
    run_dir = Path(host.wait_for(lambda text: (m := re.search(r"run directory (\S+)", text)) and m[1]))
    there = Invite.parse(invite, time.time())
    with proxy(there.port, up=400_000.0) as way:
        guest = barnraise("join", str(replace(there, port=way.port)))
        count = accepted(run_dir)
        guest.wait_for(lambda text: count(text) >= 1)
        for _ in range(2):
            before, passed = count(""), way.passed
            guest.wait_for(lambda _, passed=passed: way.passed > passed + 300_000)  # in the midst of a payload
            way.cut()
            guest.wait_for(lambda text, before=before: count(text) >= before + 2)
        guest.popen.terminate()
        assert guest.wait(60) == COME_AGAIN, guest.text()
    with LedgerView(run_dir / "ledger.sqlite") as view:
        changes = [d.change for _, d in view.replay() if type(d).__name__ == "NodeChanged"]
    assert changes == ["enrolled", "joined", "joined", "left"], "a cut connection is no departure"
