"""A real controller with one honest worker, and what is seen of them from outside: memory, output, the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import signal
import sys
import time
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from tests.intrude.kit.evidence import Seen
from tests.intrude.kit.member import Member
from tests.intrude.kit.scene import Invites, by_door
from tests.intrude.kit.ways import WAYS

from barnraise.assembly.invites import another_invite, open_book
from barnraise.assembly.revoking import revoke_node
from barnraise.core.errors import AddressError
from barnraise.core.signals import INTERRUPTED
from barnraise.ledger import RunDirectory, notes
from barnraise.ledger.decisions import NodeChanged
from barnraise.ledger.view import LedgerView
from barnraise.transport import Invite

from ..e2e.conftest import Process

HONEST = "honest"
HOSTED = str(Path(__file__).with_name("hosted.py"))
SLOWDOWN = 19.0
"""Seconds that the honest worker idles after each second of processor time.

The worker leaves the machine to others. So it loses only the time that the controller makes it wait, and not the
time that the attacker's own work takes from it.
"""

TROUBLE = re.compile(r"Traceback|was passed over|never retrieved|never awaited|was destroyed|^Exception|\x1b")
"""Output that a controller without unforeseen errors never writes: uncaught errors, and escape sequences of other
nodes."""

RUN: dict[str, Any] = {
    "model": {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
    "workers": [],
    "training": {
        "tokens": 10**9, "batch_size": 4, "local_steps": 2, "learning_rate": 0.001, "compression": "none",
    },
    "controller": {
        "http_port": 0, "evaluation_rows": 16, "checkpoint_seconds": 5.0, "max_update_norm": 10.0, "lease": 5.0,
    },
}  # fmt: skip


class Arena:
    """One run in `folder`; it puts each failure in `problems`."""

    def __init__(self, folder: Path, rng: random.Random, run: Mapping[str, Any] = RUN) -> None:
        self.folder, self.rng, self.settings = folder, rng, run
        self.problems: list[str] = []
        self.processes: list[Process] = []
        self.memory = self.descriptors_after = 0

    def start(self, way: str) -> None:
        """Serve, with the honest worker behind one of the doors, and wait until it works."""
        self.begin()
        self.employ(way)

    def begin(self) -> None:
        """Serve, with no node there yet."""
        lines = [f"{a} plus {b} is {a + b}, and {b} times {a} is {a * b}.\n" for a in range(60) for b in range(60)]
        text, run_file = self.folder / "text.txt", self.folder / "run.yaml"
        text.write_text("".join(lines))
        data = {"kind": "text", "files": [str(text)], "tokenizer": "bytes", "context": 64}
        run = {"name": "intrude", "dir": str(self.folder / "runs")}
        run_file.write_text(json.dumps({**self.settings, "run": run, "data": data}))
        self.serve = self._process(
            "serve", str(run_file), "--uses", "100", prefix=[sys.executable, HOSTED, str(self.folder)]
        )
        file = self.serve.wait_for(lambda text: (m := re.search(r"barnraise join '@(.+)'", text)) and m[1])
        self.run = Path(self.serve.wait_for(lambda text: (m := re.search(r"run directory (\S+)", text)) and m[1]))
        self.whole = Invite.parse(Path(file).read_text(), time.time())

    def employ(self, way: str) -> None:
        """Start the honest worker behind one of the doors, and wait until it works."""
        options = ["--name", HONEST, "--threads", "1", "--slowdown", str(SLOWDOWN), "--home", str(self.folder / "home")]
        self.worker = self._process("join", str(self.invite(way)), *options)
        self.worker.wait_for(lambda _: self.tokens() > 0)

    def invite(self, way: str) -> Invite:
        """The way in through one door alone."""
        return by_door(self.whole, way)

    @property
    def ports(self) -> list[int]:
        return [self.whole.port, self.whole.http_port]

    def _process(self, *arguments: str, prefix: list[str] | None = None) -> Process:
        self.processes.append(Process(list(arguments), self.folder, prefix))
        return self.processes[-1]

    # Observations

    def tokens(self) -> int:
        """Return the honest worker's tokens, in contributions that were accepted."""
        with LedgerView(self.run / "ledger.sqlite") as view:
            return sum(node.tokens for node in view.nodes() if node.node == HONEST)

    def mark_memory(self) -> None:
        """From here on the controller's memory counts: its peak is what it has now."""
        pid = self.serve.popen.pid
        self.memory = psutil.Process(pid).memory_info().rss
        Path(f"/proc/{pid}/clear_refs").write_text("5")

    def memory_growth(self) -> int:
        """Bytes by which the controller's resident memory has risen above the mark, at its peak; 0 when it is gone."""
        if not self.alive:
            return 0
        status = Path(f"/proc/{self.serve.popen.pid}/status").read_text()
        peak = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert peak is not None
        return int(peak[1]) * 1024 - self.memory

    def descriptors(self) -> int:
        return psutil.Process(self.serve.popen.pid).num_fds()

    async def attack(self, attack: Awaitable[Any]) -> None:
        """Let an attack continue until it is over, or the controller has ended."""
        task = asyncio.ensure_future(attack)
        while self.alive and not task.done():
            await asyncio.wait([task], timeout=1.0)
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        else:
            task.result()

    async def rate(self, attack: Awaitable[Any]) -> float:
        """The honest worker's tokens a second meanwhile."""
        before, began = self.tokens(), time.monotonic()
        await self.attack(attack)
        return (self.tokens() - before) / (time.monotonic() - began)

    @property
    def alive(self) -> bool:
        """Whether controller and honest worker are still there."""
        return self.serve.popen.poll() is None and self.worker.popen.poll() is None

    def account(self) -> dict[str, int]:
        """Return the controller's record of all nodes but the honest worker."""
        with LedgerView(self.run / "ledger.sqlite") as view:
            others = [node for node in view.nodes() if node.node != HONEST]
            dropped = sum(note.count for _, note in view.events(notes.FrameDropped))
        kinds = ("assigned", "accepted", "refused", "lost")
        return {"malformed": dropped} | {kind: sum(getattr(node.outcomes, kind) for node in others) for kind in kinds}

    # Actions of the host

    def invites(self) -> Invites:
        """One that is good, and one of each that is not: expired, used up, taken back."""
        run = RunDirectory(self.run)
        dead = [another_invite(run, uses=1, hours=1.0) for _ in range(3)]
        with open_book(run) as book:
            expired, used_up, taken_back = (invite.token for invite in dead)
            book.tokens[expired] = replace(book.tokens[expired], expires=1)
            book.spend(used_up)
            book.revoke(taken_back)
        return Invites(self.whole, dead)

    def revoke(self, node: str) -> None:
        revoke_node(RunDirectory(self.run), node, "a trial")

    async def seen(self) -> Seen:
        """Return the controller's side, once the controller admits no client but the honest worker."""
        with LedgerView(self.run / "ledger.sqlite") as view:
            honest = {row.key for _, row in view.find(NodeChanged, "node = ?", HONEST)}
        before, counts = None, None
        while counts is None or counts != before:
            await asyncio.sleep(1.0)
            before, counts = counts, {k: n for k, n in (await self._let_in_by_key()).items() if k not in honest}
        return Seen(self.run / "ledger.sqlite", counts)

    async def _let_in_by_key(self) -> dict[str, int]:
        (self.folder / "ask").touch()
        async with asyncio.timeout(30.0):
            while (self.folder / "ask").exists():
                await asyncio.sleep(0.05)
        counts: dict[str, int] = json.loads((self.folder / "let-in.json").read_text())
        return counts

    # How it ends

    async def conclude(self) -> None:
        """The attack is over: whatever it broke is found now."""
        for name, process in (("controller", self.serve), ("honest worker", self.worker)):
            if (code := process.popen.poll()) is not None:
                self.problems.append(f"the {name} ended with code {code}")
        if self.alive:
            for way in WAYS:
                await self._let_in(way)
            self._go_on()
            self.descriptors_after = self.descriptors()
        self._stop()
        self._look()
        finish = self._process("finish", str(self.run))
        if finish.wait(120.0) != 0:
            self.problems.append(f"the run cannot be resumed: {finish.text()[-2000:]}")

    async def _let_in(self, way: str) -> None:
        """A newcomer gets in by this door and is given work: everything behind it still runs."""
        try:
            async with Member(f"newcomer-{way}", self.invite(way), self.rng) as newcomer:
                joined = await newcomer.join() and await newcomer.task() is not None
        except AddressError:
            joined = False
        if not joined:
            self.problems.append(f"nobody is let in over {way} any more")

    def _go_on(self) -> None:
        """The honest worker's work is still accepted."""
        before = self.tokens()
        try:
            self.serve.wait_for(lambda _: self.tokens() > before, 30.0)
        except AssertionError:
            self.problems.append("the honest worker's work is not accepted any more")

    def _stop(self) -> None:
        """The controller ends when it is asked to, unless it has ended already."""
        self.worker.kill()
        if self.serve.popen.poll() is not None:
            return
        self.serve.popen.send_signal(signal.SIGTERM)
        try:
            if (code := self.serve.wait(60.0)) != INTERRUPTED:
                self.problems.append(f"the controller ended with code {code} when it was asked to")
        except AssertionError:
            self.problems.append("the controller does not end when it is asked to")
            self.serve.kill()

    def _look(self) -> None:
        """Nothing is in the output that should not be there, and the honest worker kept its place."""
        for name, process in (("controller", self.serve), ("honest worker", self.worker)):
            found = [line for line in process.text().splitlines() if TROUBLE.search(line)]
            if found:
                self.problems.append(f"output of the {name}: {len(found)} lines like {found[0]!r}")
        with LedgerView(self.run / "ledger.sqlite") as view:
            changes = [row for _, row in view.news() if isinstance(row, NodeChanged) and row.node == HONEST]
        gone = [f"{row.change}: {row.reason}" for row in changes if row.change not in ("enrolled", "joined")]
        if gone:
            self.problems.append(f"the honest worker did not keep its place: {gone}")

    def close(self) -> None:
        """End what is left."""
        for process in self.processes:
            if process.popen.poll() is None:
                process.kill()


@contextlib.contextmanager
def arena(folder: Path, rng: random.Random, way: str) -> Iterator[Arena]:
    """A run that works, until the block ends."""
    there = Arena(folder, rng)
    try:
        there.start(way)
        yield there
    finally:
        there.close()
