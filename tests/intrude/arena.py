"""A real controller with one honest worker, and what is seen of them from outside: memory, output, the ledger."""

from __future__ import annotations

import contextlib
import json
import random
import re
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from barnraise.ledger.view import LedgerView
from barnraise.transport import Invite

from ..e2e.conftest import Process
from .member import Member

WAYS = ("zmq", "http")
HONEST = "honest"
SLOWDOWN = 19.0
"""The honest worker idles for so many seconds after each second of processor time: it leaves the machine to others, so
that what it loses is what the controller makes it wait, and not what the attacker's own work takes from it."""

TROUBLE = re.compile(
    r"Traceback|was passed over|never retrieved|never awaited|was destroyed|^Exception|\x1b", re.MULTILINE
)
"""What the output of a controller that foresaw everything does not hold: errors nobody caught, and others' escapes."""

RUN: dict[str, Any] = {
    "model": {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
    "workers": [],
    "training": {
        "tokens": 10**12, "batch_size": 4, "local_steps": 2, "learning_rate": 0.001, "compression": "none",
    },
    "controller": {"http_port": 0, "evaluation_rows": 16, "checkpoint_seconds": 5.0, "max_update_norm": 10.0},
}  # fmt: skip


class Arena:
    """One run in `folder`. What goes wrong is put in `problems`."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self.rng = folder, rng
        self.problems: list[str] = []
        self.processes: list[Process] = []
        self.joined = 0
        self.memory = self.seen_descriptors = 0

    def start(self, way: str) -> None:
        """Serve, with the honest worker behind one of the doors, and wait until it works."""
        text = self.folder / "text.txt"
        text.write_text(
            "".join(f"{a} plus {b} is {a + b}, times {b} is {a * b}.\n" for a in range(60) for b in range(60))
        )
        data = {"kind": "text", "files": [str(text)], "tokenizer": "bytes", "context": 64}
        run_file = self.folder / "run.yaml"
        run_file.write_text(
            json.dumps({**RUN, "run": {"name": "intrude", "dir": str(self.folder / "runs")}, "data": data})
        )
        self.serve = self._process("serve", str(run_file), "--uses", "100")
        file = self.serve.wait_for(lambda text: (m := re.search(r"barnraise join '@(.+)'", text)) and m[1])
        self.run = Path(self.serve.wait_for(lambda text: (m := re.search(r"run directory (\S+)", text)) and m[1]))
        self.whole = Invite.parse(Path(file).read_text(), time.time())
        home = str(self.folder / "home")
        self.worker = self._process(
            "join",
            str(self.invite(way)),
            "--name",
            HONEST,
            "--threads",
            "1",
            "--slowdown",
            str(SLOWDOWN),
            "--home",
            home,
        )
        self.worker.wait_for(lambda _: self.tokens() > 0)

    def invite(self, way: str) -> Invite:
        """The way in through one door alone."""
        if way == "http":
            return replace(self.whole, scheme="xmlrpc", port=self.whole.http_port, http_port=0)
        return replace(self.whole, http_port=0)

    @property
    def ports(self) -> list[int]:
        return [self.whole.port, self.whole.http_port]

    def _process(self, *arguments: str) -> Process:
        self.processes.append(Process(list(arguments), self.folder))
        return self.processes[-1]

    # What is seen

    def tokens(self) -> int:
        """Of the honest worker, in contributions that were accepted."""
        with LedgerView(self.run / "ledger.sqlite") as view:
            return sum(node.tokens for node in view.nodes() if node.node == HONEST)

    def mark_memory(self) -> None:
        """From here on the controller's memory counts: its peak is what it has now."""
        pid = self.serve.popen.pid
        self.memory = psutil.Process(pid).memory_info().rss
        Path(f"/proc/{pid}/clear_refs").write_text("5")

    def memory_growth(self) -> int:
        """Bytes by which the controller's resident memory has risen above the mark, at its peak."""
        status = Path(f"/proc/{self.serve.popen.pid}/status").read_text()
        peak = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert peak is not None
        return int(peak[1]) * 1024 - self.memory

    def descriptors(self) -> int:
        return psutil.Process(self.serve.popen.pid).num_fds()

    async def rate(self, attack: Callable[[], Awaitable[Any]]) -> float:
        """The honest worker's tokens a second while `attack` goes on."""
        before, began = self.tokens(), time.monotonic()
        await attack()
        return (self.tokens() - before) / (time.monotonic() - began)

    def alive(self) -> bool:
        """Whether controller and honest worker are still there; that they are not is a problem."""
        for name, process in (("controller", self.serve), ("honest worker", self.worker)):
            if (code := process.popen.poll()) is not None:
                self.problems.append(f"the {name} ended with code {code}: {process.text()[-2000:]}")
                return False
        return True

    def account(self) -> dict[str, int]:
        """What the controller made of all that did not come from the honest worker."""
        with LedgerView(self.run / "ledger.sqlite") as view:
            others = [node for node in view.nodes() if node.node != HONEST]
            dropped = sum(int(event.detail["count"]) for event in view.events("frame_dropped"))
        kinds = ("assigned", "accepted", "refused", "lost")
        return {"malformed": dropped} | {kind: sum(getattr(node, kind) for node in others) for kind in kinds}

    # How it ends

    async def let_in(self, way: str) -> None:
        """A newcomer gets in by this door and is given work: everything behind it still runs."""
        self.joined += 1
        async with Member(f"newcomer{self.joined}", self.invite(way), self.rng) as newcomer:
            if not await newcomer.join():
                self.problems.append(f"nobody is let in over {way} any more")

    def end(self) -> None:
        """Nothing is left to be found: output, lease and ledger are looked at, and the run is resumed to its end."""
        before = self.tokens()
        with contextlib.suppress(AssertionError):
            self.serve.wait_for(lambda _: self.tokens() > before, 30.0)
        if self.tokens() == before:
            self.problems.append("the honest worker's work is not accepted any more")
        self.serve.popen.send_signal(signal.SIGTERM)
        try:
            self.serve.wait(60.0)
        except AssertionError as error:
            self.problems.append(f"the controller does not end: {error}")
            self.serve.kill()
        for name, process in (("controller", self.serve), ("honest worker", self.worker)):
            found = [line for line in process.text().splitlines() if TROUBLE.search(line)]
            if found:
                self.problems.append(f"output of the {name}: {len(found)} lines like {found[0]!r}")
        with LedgerView(self.run / "ledger.sqlite") as view:
            changes = [change for _, change in view.news() if getattr(change, "node", "") == HONEST]
        lost = [change for change in changes if getattr(change, "change", "") not in ("enrolled", "joined", "")]
        if lost:
            self.problems.append(f"the honest worker lost its place {len(lost)} times: {lost[0]}")
        self.worker.kill()
        finish = self._process("finish", str(self.run))
        if finish.wait(120.0) != 0:
            self.problems.append(f"the run cannot be resumed: {finish.text()[-2000:]}")

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
