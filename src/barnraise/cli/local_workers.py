"""The workers that `train` starts on this machine, through the nursery, and the faults planned for them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from barnraise.config.schema import Fault, Worker
from barnraise.controller.events import Admitted, Lost
from barnraise.controller.server import Server
from barnraise.ledger import RunDirectory
from barnraise.transport import Keys
from barnraise.transport.link import Link
from barnraise.worker.nursery import Order


class LocalWorkers:
    """Starts, kills and watches the local workers of one run. `link_of` gives each worker its link, None for none."""

    def __init__(
        self,
        run: RunDirectory,
        workers: Sequence[Worker],
        faults: Sequence[Fault],
        link_of: Callable[[int, Worker], Link | None],
    ) -> None:
        self.run, self.workers, self.link_of = run, list(workers), link_of
        self.faults = sorted(faults, key=lambda fault: fault.at)
        self.fastest = max(worker.speed for worker in workers)
        self.pids: dict[str, int] = {}
        self._started = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def warm_up(self) -> None:
        """Start the nursery; it imports while the controller prepares."""
        self.nursery = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "barnraise.worker.nursery",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=(self.run.logs / "nursery.log").open("wb"),
        )

    def start(self, server: Server, uri: str) -> None:
        """Start all workers against the controller at `uri`, and keep watching them."""
        self.server, self.uri = server, uri
        self._tasks.add(asyncio.ensure_future(self._watch()))
        for worker in self.workers:
            self.join(worker)

    def join(self, worker: Worker) -> None:
        """Start one worker."""
        keys_path = self.run.keys / f"worker-{worker.name}.json"
        keys = Keys.load_or_create(keys_path)
        self.server.post(Admitted(worker.name, keys.public))
        order = Order(
            name=worker.name,
            uri=self.uri,
            server_key=self.server.enrolment.keys.public,
            keys=str(keys_path),
            cache=str(self.run.data),
            moments=str(self.run.moments / f"{worker.name}.safetensors"),
            log=str(self.run.logs / f"worker-{worker.name}.log"),
            device=worker.device,
            threads=worker.threads,
            slowdown=max(0.0, self.fastest / worker.speed - 1.0),
            link=self.link_of(self._started, worker),
        )
        self._started += 1
        assert self.nursery.stdin is not None
        self.nursery.stdin.write(msgspec.json.encode(order) + b"\n")

    def play_faults(self, progress: float, say: Callable[[str], None]) -> None:
        """Play the faults that are due at `progress` (share of the token budget)."""
        while self.faults and progress >= self.faults[0].at:
            fault = self.faults.pop(0)
            if fault.kill is not None and fault.kill in self.pids:
                say(f"fault: kill -9 worker '{fault.kill}' at {progress:.0%} of the tokens")
                os.kill(self.pids[fault.kill], signal.SIGKILL)
            if fault.join is not None:
                say(f"fault: worker '{fault.join.name}' joins at {progress:.0%} of the tokens")
                self.join(fault.join)

    def skip_faults(self, progress: float) -> None:
        """A resumed run starts the workers that it had at `progress`: without those killed, with those that joined."""
        played = [fault for fault in self.faults if fault.at <= progress]
        self.faults = [fault for fault in self.faults if fault.at > progress]
        killed = {fault.kill for fault in played}
        self.workers = [worker for worker in self.workers if worker.name not in killed]
        self.workers += [fault.join for fault in played if fault.join is not None]

    async def _watch(self) -> None:
        assert self.nursery.stdout is not None
        while line := await self.nursery.stdout.readline():
            report = msgspec.json.decode(line)
            if "started" in report:
                self.pids[report["started"]] = report["pid"]
            else:
                self.pids.pop(report["ended"], None)
                code = report["code"]
                reason = f"killed by signal {-code}" if code < 0 else f"its process ended with code {code}"
                self.server.post(Lost(report["ended"], reason))

    async def stop(self) -> None:
        """End the workers that are left, and the nursery."""
        for task in self._tasks:
            task.cancel()
        if self.nursery.stdin is not None:
            self.nursery.stdin.close()
        try:
            await asyncio.wait_for(self.nursery.wait(), 5.0)
        except TimeoutError:
            self.nursery.kill()
            await self.nursery.wait()


def log_tail(path: Path, lines: int = 5) -> str:
    """The last lines of a log, for an error message."""
    if not path.is_file():
        return ""
    return "\n".join(path.read_text("utf-8", "replace").splitlines()[-lines:])
