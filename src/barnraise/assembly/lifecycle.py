"""The lifecycle of a run, from its prepared folder to its end, for every command with a controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from barnraise.assembly.hosting import Host, open_host
from barnraise.assembly.local_workers import LocalWorkers
from barnraise.assembly.session import work
from barnraise.assembly.voice import Say, Voice
from barnraise.controller.state.actions import Finish
from barnraise.core.program import program
from barnraise.core.signals import interruptible
from barnraise.ledger import RunDirectory
from barnraise.plan.resolve import Plan

Listen = Callable[[Host, Say], Awaitable[str]]
"""Lets the host listen, reports it, and returns the URI."""


async def see_through(
    run: RunDirectory,
    plan: Plan,
    voice: Voice,
    listen: Listen,
    local: LocalWorkers | None = None,
    prepare: Callable[[], None] = lambda: None,
) -> tuple[Host, Finish]:
    """Open the run, whose lock is held and which is not over, and work until it ends or is interrupted.

    `local` are started and ended along with it; they warm up while `prepare` makes the start of a new run. Raises as
    `open_host` and `session.work` do.
    """
    try:
        if local is not None:
            await local.warm_up()
        with voice.doing("preparing the run"), interruptible():
            prepare()
            host = open_host(run, plan, voice.warn, local.host if local is not None else None)
        if local is not None:
            host.links = local.uses
            if host.resumed:
                done = host.machine.state.totals.tokens / host.machine.settings.tokens
                local.skip_faults(done, host.server.clock())
        view = voice.view()
        try:
            uri = await listen(host, view.note)
            with voice.beside(host):
                finish = await work(host, view, local, uri)
        finally:
            view.close()
            await host.close()
    finally:
        if local is not None:
            await local.stop()
    return host, finish


def how_to_go_on(run: RunDirectory) -> str:
    """Return the command to resume the run, printed first, so that it is known when needed."""
    return f"should this be interrupted, resume it with: {program()} resume {run.path}"
