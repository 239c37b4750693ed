"""One controller from its first event to its last, with its local workers if it has any."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from barnraise.assembly import requests
from barnraise.assembly.alerting import Alerting
from barnraise.assembly.hosting import Host
from barnraise.assembly.local_workers import LocalWorkers
from barnraise.assembly.tracing import tracing_of
from barnraise.assembly.voice import View
from barnraise.config.schema import TrainingSection
from barnraise.controller.state.actions import Finish
from barnraise.controller.state.events import InterruptRequested
from barnraise.core.errors import DIVERGED, RunFailedError
from barnraise.core.program import program
from barnraise.core.signals import on_signals
from barnraise.core.text import printable
from barnraise.ledger import RunDirectory

VIEW_INTERVAL = 0.5


async def work(host: Host, view: View, local: LocalWorkers | None, uri: str) -> Finish:
    """Run to the end, with local workers if there are any.

    SIGINT and SIGTERM save its state and leave it open. Raises RunFailedError when the run cannot continue by itself;
    it is open then too.
    """
    server = host.server
    background: list[asyncio.Task[None]] = []

    def start(work: Coroutine[Any, Any, None]) -> None:
        background.append(asyncio.ensure_future(work))
        server.supervise(background[-1])

    def interrupt(name: str) -> None:
        view.note(f"{name}: saving the state of the run (again to stop at once)")
        start(_interrupt(host, local, name))

    with on_signals(interrupt, view.close):
        if local is not None:
            local.start(server, uri.split()[0])
        start(_watch(host, view, local))  # before `run` reads: requests come first
        start(host.account.keep_cache(host.ledger))
        if host.tracking is not None:
            start(host.tracking.follow(view.note))
        alerting = Alerting(host.plan.run_file.alerts, host.account, view.note)
        if alerting.wanted:
            start(alerting.follow(host))
        tracing = tracing_of(host, view.note)
        try:
            finish = await server.run(host.first)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            if local is not None:
                await local.stop()
            if tracing is not None:
                await asyncio.to_thread(tracing.finish)
    if alerting.wanted:
        await alerting.end(host, finish.reason if finish.failed else "")
    if finish.failed:
        raise RunFailedError(f"{finish.reason}\ncontinue the run with: {program()} resume {host.run.path}")
    return finish


async def _interrupt(host: Host, local: LocalWorkers | None, reason: str) -> None:
    """Interrupt: local workers submit their results, which the controller makes durable.

    Others wait for its return.
    """
    if local is not None:
        await local.leave()
    host.server.post(InterruptRequested(reason))


async def _watch(host: Host, view: View, local: LocalWorkers | None) -> None:
    """Handle requests, play planned faults, check for remaining workers, refresh the view."""
    budget = host.machine.settings.tokens
    while True:
        await requests.obey(host.run, host.server, view.note)
        view.update(host)
        state = host.machine.state
        if local is not None:
            local.faults.play(share=state.totals.tokens / budget, seconds=host.server.clock())
            if local.exhausted and not (state.num_live or state.progress.final or state.progress.stopping):
                reason = why_nobody_is_left(local.exhausted, host.plan.run_file.training, host.run)
                host.server.post(InterruptRequested(reason, failed=True))
        await asyncio.sleep(VIEW_INTERVAL)


def why_nobody_is_left(reasons: Mapping[str, str], training: TrainingSection, run: RunDirectory) -> str:
    """Return why each local worker ended, and the remedy when training diverged."""
    names: dict[str, list[str]] = {}
    for name, reason in sorted(reasons.items()):
        names.setdefault(printable(reason), []).append(f"'{name}'")
    told = "; ".join(f"{', '.join(who)}: {reason}" for reason, who in names.items())
    if not any(DIVERGED in reason for reason in reasons.values()):
        return f"no worker is left ({told}); logs are in {run.logs}"
    clip = "null" if training.gradient_clip is None else f"{training.gradient_clip:g}"
    return (
        f"no worker is left ({told}); before you resume the run, lower training.learning_rate, which is "
        f"{training.learning_rate:g}, in {run.run_file}; a lower training.gradient_clip, which is {clip}, takes a new "
        "run"
    )
