"""The workers of a lab: each a `join` process in a network namespace of its own, behind an emulated link."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from barnraise.account.links import FILE, LinkUse
from barnraise.assembly.helper import Helper
from barnraise.assembly.invites import INVITE_VARIABLE
from barnraise.assembly.keeper import kept
from barnraise.assembly.lab_faults import LabFaults, effect_of
from barnraise.assembly.local_workers import LocalWorkers, log_tail
from barnraise.config.schema import WorkerSection
from barnraise.controller.events import InterruptRequested
from barnraise.core.errors import InputError, RunFailedError
from barnraise.emulation import namespaces
from barnraise.emulation.tun_hub import Disturbance, Order, Port, Report
from barnraise.ledger import RunDirectory
from barnraise.plan.links import controller_link, live_link
from barnraise.plan.resolve import Plan
from barnraise.transport.links.link import Link
from barnraise.transport.links.presets import described

MOST_WORKERS = 64
READY_SECONDS = 90.0
"""For the emulator to start: ns-3 compiles for half a minute."""

ENDING = 3.0
"""Seconds that workers have to end by themselves once the run is over."""

RATE_SECONDS = 5.0
"""Over how long the use of a link is averaged."""

HOST = "host"
BACKENDS = {"tun": "barnraise.emulation.tun_hub", "ns3": "barnraise.emulation.ns3_hub"}


class LabWorkers(LocalWorkers):
    """Starts the emulator, then a worker in each namespace. The namespaces are the emulator's, which removes them."""

    def __init__(self, run: RunDirectory, plan: Plan, backend: str, note: Callable[[str], None]) -> None:
        run_file = plan.run_file
        super().__init__(run, run_file.workers, plan.faults, lambda index, worker: None, note)
        joining = [fault.join for fault in run_file.faults if fault.join is not None]
        everybody = [*run_file.workers, *joining]
        if len(everybody) > MOST_WORKERS:
            raise InputError(f"a lab has {MOST_WORKERS} workers at most, not {len(everybody)}: take fewer (--workers)")
        names = [HOST, *(worker.name for worker in everybody)]
        self.namespaces = dict(zip(names, (f"lab-{run_file.run.name}-{name}" for name in names), strict=True))
        self.links: dict[str, Link | None] = {HOST: controller_link(run_file)}
        self.links |= {worker.name: live_link(run_file, at, worker) for at, worker in enumerate(everybody)}
        self.order = Order(
            [Port(self.namespaces[name], namespaces.address(at), self.links[name]) for at, name in enumerate(names)],
            run_file.run.seed,
        )
        self.backend = backend
        own = {name: namespace for name, namespace in self.namespaces.items() if name != HOST}
        self.faults = LabFaults(plan.faults, self, note, own, self._disturb)
        if backend == "ns3" and (links := {fault.name for fault in plan.faults if effect_of(fault.fault)}):
            raise InputError(f"ns-3's links have no faults ({', '.join(sorted(links))}): leave out --ns3")
        if backend == "ns3" and any(link and (link.up.jitter or link.down.jitter) for link in self.links.values()):
            note("warning: ns-3 has no jitter; the links are without it")
        self.invite = ""
        self.reports: deque[Report] = deque()
        self.first = Report()
        self.stopping = self.broken = False
        self._processes: set[asyncio.Task[None]] = set()

    async def warm_up(self) -> None:
        """Start the emulator and wait until its namespaces are there; then this thread lives in the host's."""
        namespaces.require()
        log, keeper = self.run.logs / "links.log", kept()
        if keeper is None or not keeper.deaths:
            namespaces.refuse_stale(list(self.namespaces.values()))
        self.helper = await Helper.start(BACKENDS[self.backend], log)
        if not self.helper.again:
            self.helper.order(msgspec.json.encode(self.order))
        try:
            async with asyncio.timeout(READY_SECONDS):
                report = await self._report()
        except TimeoutError:
            raise RunFailedError(f"the link emulator was not ready after {READY_SECONDS:g} s: {log}") from None
        if report is None or report.error:
            reason = report.error if report else log_tail(log)
            raise InputError(f"the links of the lab cannot be made: {reason}")
        if self.helper.again:
            for namespace in self.namespaces.values():
                self._disturb(Disturbance(namespace))  # what befell the links when the controller died is over
        namespaces.enter(self.namespaces[HOST])

    def _disturb(self, disturbance: Disturbance) -> None:
        assert self.helper is not None
        if not self.stopping:
            self.helper.order(msgspec.json.encode(disturbance))

    async def _report(self) -> Report | None:
        assert self.helper is not None
        line = await self.helper.report()
        return msgspec.json.decode(line, type=Report) if line else None

    def launch(self, worker: WorkerSection) -> None:
        living = namespaces.pids(self.namespaces[worker.name])
        task = asyncio.ensure_future(self._adopt(worker.name, min(living)) if living else self._work(worker))
        self._processes.add(task)
        task.add_done_callback(self._processes.discard)

    async def _work(self, worker: WorkerSection) -> None:
        """One worker process, from its start to its end."""
        command = ["ip", "netns", "exec", self.namespaces[worker.name], sys.executable, "-m", "barnraise.cli.main"]
        command += ["join", "--name", worker.name, "--home", str(self.run.path / "lab")]
        for option, value in vars(self.means(worker)).items():
            command += [f"--{option.replace('_', '-')}", str(value)] if value is not None else []
        path = self.run.logs / f"worker-{worker.name}.log"
        with path.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, INVITE_VARIABLE: self.invite},
            )  # fmt: skip
        self.has_process(worker.name, process.pid)
        code = await process.wait()
        if not self.stopping:
            self.ended(worker.name, code, log_tail(path, 1))

    async def _adopt(self, name: str, pid: int) -> None:
        """One that an earlier controller started, to its end; with which code it ended can only be told by what for."""
        self.has_process(name, pid)
        await _end_of(pid)
        if not self.stopping:
            over = self.server.machine.state.progress.final
            code = -signal.SIGKILL if name in self.down else 0 if over else 1
            self.ended(name, code, log_tail(self.run.logs / f"worker-{name}.log", 1))

    async def _watch(self) -> None:
        """Keep the emulator's last reports."""
        while (report := await self._report()) is not None:
            self._take(report)
        if not self.stopping:
            self.broken = True
            self.note(f"the link emulator ended: {log_tail(self.run.logs / 'links.log')}")
            self.server.post(InterruptRequested("the link emulator ended", failed=True))

    def _take(self, report: Report) -> None:
        if report.ports:
            self.reports.append(report)
            while len(self.reports) > 2 and self.reports[1].seconds < report.seconds - RATE_SECONDS:
                self.reports.popleft()

    def uses(self) -> list[LinkUse]:
        """What the links carried in the last seconds."""
        if len(self.reports) < 2:
            return []
        old, new = self.reports[0], self.reports[-1]
        seconds = new.seconds - old.seconds
        found = []
        for at, (name, link) in enumerate(self.links.items()):
            up, down = (after.bytes - before.bytes for before, after in zip(old.ports[at], new.ports[at], strict=True))
            rates = (link.up.rate, link.down.rate) if link else (None, None)
            found.append(LinkUse(name, up / seconds, down / seconds, *rates))
        return found[1:]  # without the host's

    async def stop(self) -> None:
        """End the workers that are left, then the emulator with its namespaces, and write down what it counted."""
        if self.stopping:
            return
        self.stopping = self.leaving = True
        self.faults.wake_all()
        if self._processes:
            await asyncio.wait(self._processes, timeout=ENDING)
        for pid in self.pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for task in self._tasks:
            task.cancel()
        if self.helper is None:
            return
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.helper.no_more_orders()
        if self.helper.own:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10.0):
                    while (report := await self._report()) is not None:
                        self._take(report)
            await self.helper.wait(1.0)
        namespaces.remove(list(self.namespaces.values()))  # should the emulator have been killed
        if self.reports:
            (self.run.path / FILE).write_text(json.dumps(self._totals(), indent=2) + "\n", "utf-8")

    def _totals(self) -> dict[str, Any]:
        last = self.reports[-1]
        entries = [
            {
                "name": name,
                "address": port.address,
                "link": described(port.link) if port.link else "no limit",
                "up": msgspec.to_builtins(up),
                "down": msgspec.to_builtins(down),
            }
            for name, port, (up, down) in zip(self.links, self.order.ports, last.ports, strict=True)
        ]
        return {"backend": self.backend, "seconds": round(last.seconds, 3), "links": entries}


async def _end_of(pid: int) -> None:
    """Wait until a process is no more, whoever started it."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
