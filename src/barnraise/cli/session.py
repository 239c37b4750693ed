"""One controller process from its first event to its last: what train, serve and resume have in common."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import Protocol

from barnraise.cli.addresses import listen
from barnraise.cli.hosting import Host
from barnraise.cli.local_workers import LocalWorkers
from barnraise.controller.actions import Finish
from barnraise.controller.events import StopRequested
from barnraise.core.errors import RunFailedError

VIEW_INTERVAL = 0.5

REPEATED_SIGNAL = 1.0
"""Seconds within which a second signal is the first one, sent twice (to a process and to its group)."""


class View(Protocol):
    """Shows a run while it works."""

    def note(self, text: str) -> None: ...
    def update(self, host: Host) -> None: ...
    def close(self) -> None: ...


async def work(
    host: Host,
    view: View,
    local: LocalWorkers | None,
    mode: str,
    listening: Callable[[str], None] = lambda uri: None,
) -> Finish:
    """Listen, start local workers if there are any, and run to the end. SIGINT and SIGTERM finish early and cleanly."""
    server, run = host.server, host.run
    uri = await listen(server, run, host.plan, mode)
    listening(uri)
    _stop_on_signals(host, view)
    if local is not None:
        local.start(server, uri.split()[0])
    watching = asyncio.ensure_future(_watch(host, view, local))
    try:
        finish = await server.run(host.first)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().remove_signal_handler(number)
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        if local is not None:
            await local.stop()
        host.ledger.close()
    if finish.failed:
        raise RunFailedError(f"{finish.reason}\nthe run can go on: barnraise resume {run.path}")
    return finish


def _stop_on_signals(host: Host, view: View) -> None:
    loop = asyncio.get_running_loop()
    asked_at: list[float] = []

    def stop(name: str) -> None:
        if not asked_at:
            asked_at.append(loop.time())
            view.note(f"{name}: finishing with what was accepted so far (again to stop at once)")
            host.server.post(StopRequested(name))
        elif loop.time() - asked_at[0] > REPEATED_SIGNAL:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
            signal.raise_signal(signal.Signals[name])

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number.name)


async def _watch(host: Host, view: View, local: LocalWorkers | None) -> None:
    """Refresh the view and play planned faults."""
    budget = host.machine.settings.tokens
    while True:
        view.update(host)
        if local is not None:
            local.play_faults(host.machine.state.tokens / budget, view.note)
        await asyncio.sleep(VIEW_INTERVAL)
