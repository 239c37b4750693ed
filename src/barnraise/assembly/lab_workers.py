"""The workers of a lab: each joins from a network namespace of its own, behind an emulated link."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from barnraise.account.links import FILE, LinkUse
from barnraise.assembly.forkserver import InvitedWorker
from barnraise.assembly.helper import Helper
from barnraise.assembly.local_workers import LocalWorkers, log_tail
from barnraise.config.trial_sections import WorkerSection
from barnraise.controller.shell.server import Server
from barnraise.controller.state.events import InterruptRequested
from barnraise.core.errors import InputError, RunFailedError
from barnraise.emulation import namespaces
from barnraise.emulation.tun_hub import Disturbance, HubOrder, HubReport, Port
from barnraise.faults.lab_links import LabLinks
from barnraise.faults.supervisor import kept
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
"""Seconds over which the use of a link is averaged."""

HOST = "host"
BACKENDS = {"tun": "barnraise.emulation.tun_hub", "ns3": "barnraise.emulation.ns3_hub"}


class LabWorkers(LocalWorkers):
    """Starts the emulator, then a worker in each namespace.

    The namespaces belong to the emulator, which removes them.
    """

    def __init__(self, run: RunDirectory, plan: Plan, backend: str, note: Callable[[str], None]) -> None:
        run_file = plan.run_file
        joining = [fault.join for fault in run_file.faults if fault.join is not None]
        everybody = [*run_file.workers, *joining]
        if len(everybody) > MOST_WORKERS:
            raise InputError(f"a lab has {MOST_WORKERS} workers at most, not {len(everybody)}: take fewer (--workers)")
        self.namespaces = {name: f"lab-{run_file.run.name}-{name}" for name in (HOST, *(w.name for w in everybody))}
        links = LabLinks({w.name: self.namespaces[w.name] for w in everybody}, self._disturb)
        if backend == "ns3" and (kinds := {fault.name for fault in plan.faults if links.plays(fault.name)}):
            raise InputError(f"ns-3's links have no faults ({', '.join(sorted(kinds))}): leave out --ns3")
        super().__init__(run, run_file.workers, plan.faults, lambda index, worker: None, note, targets=[links])
        self.links: dict[str, Link | None] = {HOST: controller_link(run_file)}
        self.links |= {worker.name: live_link(run_file, at, worker) for at, worker in enumerate(everybody)}
        self.order = HubOrder(
            [
                Port(self.namespaces[name], namespaces.address(at), link)
                for at, (name, link) in enumerate(self.links.items())
            ],
            run_file.run.seed,
        )
        self.backend = backend
        if backend == "ns3" and any(link and (link.up.jitter or link.down.jitter) for link in self.links.values()):
            note("warning: ns-3 has no jitter; the links are without it")
        self.invite = ""
        self.reports: deque[HubReport] = deque()
        self.first = HubReport()
        self.hub: Helper | None = None
        self.stopping = self.broken = False

    async def warm_up(self) -> None:
        """Start forkserver and emulator and wait until there are namespaces; then this thread lives in the host's."""
        namespaces.require()
        supervisor = kept()
        if supervisor is None or not supervisor.played:
            namespaces.refuse_stale(list(self.namespaces.values()))
        await super().warm_up()
        log = self.run.logs / "links.log"
        self.hub = await Helper.start("links", BACKENDS[self.backend], log)
        if not self.hub.again:
            self.hub.order(msgspec.json.encode(self.order))
        try:
            async with asyncio.timeout(READY_SECONDS):
                report = await self._report()
        except TimeoutError:
            raise RunFailedError(f"the link emulator was not ready after {READY_SECONDS:g} s: {log}") from None
        if report is None or report.error:
            reason = report.error if report else log_tail(log)
            raise InputError(f"the links of the lab cannot be made: {reason}")
        if self.hub.again:
            for namespace in self.namespaces.values():
                self._disturb(Disturbance(namespace))  # disturbances of the links before the controller died are over
        namespaces.enter(self.namespaces[HOST])

    def _disturb(self, disturbance: Disturbance) -> None:
        assert self.hub is not None
        if not self.stopping:
            self.hub.order(msgspec.json.encode(disturbance))

    async def _report(self) -> HubReport | None:
        assert self.hub is not None
        line = await self.hub.report()
        return msgspec.json.decode(line, type=HubReport) if line else None

    def start(self, server: Server, uri: str) -> None:
        super().start(server, uri)
        self.watch_over(self._watch_links())

    def order_for(self, worker: WorkerSection) -> InvitedWorker:
        return InvitedWorker(
            name=worker.name,
            log=str(self.log(worker)),
            means=self.means(worker),
            own=self.own(worker),
            namespace=self.namespaces[worker.name],
            invite=self.invite,
            home=str(self.run.path / "lab"),
        )

    async def _watch_links(self) -> None:
        """Keep the emulator's last reports."""
        while (report := await self._report()) is not None:
            self._take(report)
        if not self.stopping:
            self.broken = True
            self.note(f"the link emulator ended: {log_tail(self.run.logs / 'links.log')}")
            self.server.post(InterruptRequested("the link emulator ended", failed=True))

    def _take(self, report: HubReport) -> None:
        if report.ports:
            self.reports.append(report)
            while len(self.reports) > 2 and self.reports[1].seconds < report.seconds - RATE_SECONDS:
                self.reports.popleft()

    def uses(self) -> list[LinkUse]:
        """Return the traffic of the links in the last seconds."""
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
        """End the remaining workers, then the emulator with its namespaces, and write down its counters."""
        if self.stopping:
            return
        self.stopping = self.leaving = True
        self.processes.wake_all()
        if self.pids:
            self._left.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._left.wait(), ENDING)
        for pid in self.pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await super().stop()
        if self.hub is None:
            return
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.hub.no_more_orders()
        if self.hub.own:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10.0):
                    while (report := await self._report()) is not None:
                        self._take(report)
            await self.hub.wait(1.0)
        namespaces.remove(list(self.namespaces.values()))  # in case the emulator was killed
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
