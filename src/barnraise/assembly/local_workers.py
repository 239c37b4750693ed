"""The workers that `train` starts on this machine, through the forkserver, and the faults planned for them.

One that ends without a request is restarted, a few times; then it stays down, with its reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from barnraise.account.links import LinkUse
from barnraise.assembly.forkserver import End, LocalWorker, Order
from barnraise.assembly.helper import Helper
from barnraise.assembly.joining import default_home
from barnraise.config.faults import Join, Planned
from barnraise.config.trial_sections import WorkerSection
from barnraise.controller.shell.server import Server
from barnraise.controller.state.events import Admitted, Lost
from barnraise.core.errors import DIVERGED, BarnraiseError, RunDirectoryError
from barnraise.core.sites import OwnFiles, Releases
from barnraise.core.text import printable
from barnraise.faults.host import FaultyHost
from barnraise.faults.injector import FaultInjector
from barnraise.faults.processes import WorkerProcesses
from barnraise.faults.schedule import FaultSchedule
from barnraise.faults.supervisor import played_before
from barnraise.faults.target import FaultTarget
from barnraise.ledger import Change, RunDirectory
from barnraise.transport import Keys
from barnraise.transport.links.link import Link
from barnraise.trust.roles import TRUSTEE, WORKER
from barnraise.worker.options import Means
from barnraise.worker.own_rows import OWN

RESTARTS = (1.0, 4.0, 16.0)
"""Seconds before a failed worker is restarted, each time; after the last it stays down."""

STEADY_SECONDS = 600.0
"""Seconds of work after which a worker may fail as often again."""

FAREWELL = 10.0
"""Seconds that workers have to submit their results when the run is interrupted."""

LAST_WORDS = 1.0
"""Seconds by which the last output of a process may follow the report of its end."""


class LocalWorkers:
    """Starts, kills and watches the local workers of one run. `link_of` gives each worker its link, None for none.

    `host` is what the controller stands on where faults are planned, of which `targets` play those that are neither
    for it nor for the workers' processes. `trustees` are the names of nodes that hold the seeds of masks, `key_file`
    has the workers' key to an encrypted run.
    """

    def __init__(
        self,
        run: RunDirectory,
        workers: Sequence[WorkerSection],
        faults: Sequence[Planned],
        link_of: Callable[[int, WorkerSection], Link | None],
        note: Callable[[str], None],
        *,
        targets: Sequence[FaultTarget] = (),
        trustees: Sequence[str] = (),
        key_file: str = "",
    ) -> None:
        self.run, self.workers, self.link_of, self.note = run, list(workers), link_of, note
        self.processes, self.schedule = WorkerProcesses(self), FaultSchedule(faults, played_before())
        self.host = FaultyHost(self.schedule, run) if faults else None
        targets = [self.processes, *([self.host] if self.host else []), *targets]
        self.faults = FaultInjector(self.schedule, targets, note)
        self.fastest = max(worker.speed for worker in workers)
        joining = [plan.fault.join for plan in faults if isinstance(plan.fault, Join)]
        self._places = {worker.name: place for place, worker in enumerate([*workers, *joining])}
        self.trustees, self.key_file = tuple(trustees), key_file
        self.pids: dict[str, int] = {}
        self.up: set[str] = set()  # workers that work, start, or are to be restarted
        self.down: dict[str, str] = {}  # why the others do not
        self.leaving = False
        self._breakdowns: dict[str, int] = {}
        self._joined: dict[str, tuple[WorkerSection, float]] = {}
        self._left = asyncio.Event()
        self._can_start = True
        self.forkserver: Helper | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def warm_up(self) -> None:
        """Start the forkserver; it imports while the controller prepares."""
        self.forkserver = await Helper.start(
            "workers", "barnraise.assembly.forkserver", self.run.logs / "forkserver.log"
        )

    def start(self, server: Server, uri: str) -> None:
        """Start all workers against the controller at `uri`, and keep watching them."""
        self.server, self.uri = server, uri
        self.watch_over(self._watch())
        for worker in [*(WorkerSection(name=name) for name in self.trustees), *self.workers]:
            if self._revoked(worker.name):
                self.down[worker.name] = "revoked"
            else:
                self.join(worker)

    def watch_over(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` until the end; its failure fails the run."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        self.server.supervise(task)

    def join(self, worker: WorkerSection) -> None:
        """Start one worker, unless it is to stay down."""
        if worker.name in self.down:
            return
        self.up.add(worker.name)
        self._joined[worker.name] = worker, asyncio.get_running_loop().time()
        self.launch(worker)

    def launch(self, worker: WorkerSection) -> None:
        """Start the worker's process."""
        order = self.order_for(worker)
        assert self.forkserver is not None
        self.forkserver.order(msgspec.json.encode(order))

    def order_for(self, worker: WorkerSection) -> Order:
        """Return the order for the forkserver; the controller learns the worker's key."""
        keys_path = self.run.keys / f"worker-{worker.name}.json"
        keys = self._keys(worker.name, keys_path)
        role = TRUSTEE if worker.name in self.trustees else WORKER
        self.server.post(Admitted(worker.name, keys.public, signer=keys.signer.public, role=role))
        place = self._places.get(worker.name)
        return LocalWorker(
            name=worker.name,
            log=str(self.log(worker)),
            means=self.means(worker, None if place is None else self.link_of(place, worker)),
            role=role,
            key_file=self.key_file,
            uri=self.uri,
            server_key=self.server.enrolment.keys.public,
            keys=str(keys_path),
            cache=str(self.run.data),
            moments=str(self.run.moments / f"{worker.name}.safetensors"),
            own=self.own(worker),
        )

    def log(self, worker: WorkerSection) -> Path:
        """Return the file of its output."""
        return self.run.logs / f"worker-{worker.name}.log"

    def means(self, worker: WorkerSection, link: Link | None = None) -> Means:
        """Return the worker's means: its keys of the run file that are means, and shares of this machine."""
        shared = ({field.name for field in fields(Means)} & WorkerSection.model_fields.keys()) - {"link"}
        return Means(
            **worker.model_dump(include=shared),
            slowdown=max(0.0, self.fastest / worker.speed - 1.0),
            link=link,
        )

    def own(self, worker: WorkerSection) -> OwnFiles | None:
        """Return a worker's own files, of which the rows are kept outside the run's directory; None without files."""
        section = worker.data
        if section is None:
            return None
        folder = default_home() / self.run.path.name / worker.name / OWN
        return OwnFiles(tuple(section.files), Releases(**section.releases.model_dump()), str(folder))

    def _keys(self, name: str, path: Path) -> Keys:
        """Return the worker's key.

        A name stays with its first one: the controller would not answer another.
        """
        known = self.server.machine.state.nodes.get(name)
        if known is None:
            return Keys.load_or_create(path)
        if not path.exists() or (keys := Keys.load(path)).public != known.badge.key:
            raise RunDirectoryError(
                f"the key that this run knows worker '{name}' by is not in {path} any more: restore the file from a "
                f"backup, or give the worker another name in {self.run.run_file}"
            )
        return keys

    def give_up(self, name: str, reason: str) -> None:
        """End the worker, which stays down.

        Its process may be about to start, or it may be about to join.
        """
        self.up.discard(name)
        self.down.setdefault(name, reason)

    def skip_faults(self, progress: float, seconds: float) -> None:
        """Start a resumed run with the workers that it had: without those that died, with those that joined."""
        self.schedule.skip(share=progress, seconds=seconds)
        dead, joined = self.schedule.gone, self.schedule.joined
        self.workers = [worker for worker in self.workers if worker.name not in dead]
        self.workers += [worker for worker in joined if worker.name not in dead]
        for name in sorted(dead):
            self.down[name] = "ended, as the run file's faults say"
            if self.forkserver is not None and self.forkserver.again:  # the controller may have died before that
                self.forkserver.order(msgspec.json.encode(End(name)))

    async def _watch(self) -> None:
        assert self.forkserver is not None
        while line := await self.forkserver.report():
            report = msgspec.json.decode(line)
            if "started" in report:
                self.has_process(report["started"], report["pid"])
            else:
                self.ended(report["ended"], report["code"], report["reason"])
        self._can_start = False
        for name in sorted(self.up):
            self.ended(name, 1, f"the process that starts workers ended: {log_tail(self.run.logs / 'forkserver.log')}")

    def has_process(self, name: str, pid: int) -> None:
        """Record the worker's process.

        One that is to end by now does; one that hung when the controller died continues.
        """
        self.pids[name] = pid
        if name in self.down and not self.leaving:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.forkserver is not None and self.forkserver.again:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.processes.has_process(name)

    def ended(self, name: str, code: int, reason: str) -> None:
        """Handle the end of a worker's process: tell the controller, and restart it unless it was meant to end."""
        self.pids.pop(name, None)
        if not self.pids:
            self._left.set()
        text = f"killed by signal {-code}" if code < 0 else reason or f"its process ended with code {code}"
        lost = Lost(name, text, Change.KILLED if code < 0 else Change.BROKE if code else Change.ENDED)
        if self.leaving and not code:
            asyncio.get_running_loop().call_later(LAST_WORDS, self.server.post, lost)
        else:
            self.server.post(lost)
        if name not in self.up or self.leaving:
            return
        loop = asyncio.get_running_loop()
        worker, since = self._joined[name]
        before = 0 if loop.time() - since > STEADY_SECONDS else self._breakdowns.get(name, 0)
        for_good = code == 0 or DIVERGED in text or self._revoked(name)
        if for_good or not self._can_start or before >= len(RESTARTS):
            self.up.discard(name)
            self.down[name] = text
            return
        self._breakdowns[name], pause = before + 1, RESTARTS[before]
        self.note(f"worker '{name}' broke down ({printable(text)}): it is started again in {pause:g} s")
        loop.call_later(pause, self._restart, worker)

    def _restart(self, worker: WorkerSection) -> None:
        if worker.name not in self.up or self.leaving:
            return
        try:
            self.join(worker)
        except BarnraiseError as error:
            self.ended(worker.name, 1, str(error))

    def _revoked(self, name: str) -> bool:
        node = self.server.machine.state.nodes.get(name)
        return node is not None and bool(node.revoked)

    @property
    def exhausted(self) -> dict[str, str]:
        """Why each local worker is down, once none is up and none will be; empty before."""
        return {} if self.up.difference(self.trustees) or self.leaving or self.schedule.expects_nodes else self.down

    async def leave(self) -> None:
        """Let the workers submit their results and leave; those that need too long are not waited for."""
        self.leaving = True
        self.processes.wake_all()
        for pid in self.pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        if not self.pids:
            return
        self._left.clear()
        nodes, names = self.server.machine.state.nodes, list(self.pids)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL):
                await self._left.wait()
                while any(name in nodes and nodes[name].live for name in names):
                    await asyncio.sleep(0.02)

    def uses(self) -> Sequence[LinkUse]:
        """Return the traffic of emulated links; these workers emulate theirs themselves, and count nothing."""
        return ()

    async def stop(self) -> None:
        """End the remaining workers, and the forkserver."""
        self.leaving = True
        self.processes.wake_all()
        for task in self._tasks:
            task.cancel()
        if self.forkserver is None:
            return
        if not self._joined:
            self.forkserver.kill()  # it is importing: nothing is lost
        self.forkserver.no_more_orders()
        await self.forkserver.wait(5.0)


def log_tail(path: Path, lines: int = 5) -> str:
    """Return the last lines of a log, for an error message."""
    if not path.is_file():
        return ""
    return "\n".join(path.read_text("utf-8", "replace").splitlines()[-lines:])
