"""A run in a lab: a new one, or one that is resumed; controller in this process, workers in namespaces of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from barnraise.cli import console
from barnraise.cli.addresses import listen
from barnraise.cli.embedded import conclude
from barnraise.cli.hosting import making, open_host, prepare
from barnraise.cli.invites import new_invite
from barnraise.cli.lab_workers import LabWorkers
from barnraise.cli.session import work
from barnraise.cli.signals import interruptible
from barnraise.cli.view import make_view
from barnraise.config.document import Document
from barnraise.core.errors import RunFailedError
from barnraise.emulation import namespaces
from barnraise.ledger import RunDirectory
from barnraise.plan.resolve import Plan

MODE = "lab"
INVITE_HOURS = 1000.0


def with_workers(document: Document, count: int | None) -> Document:
    """`document` with so many workers: its first ones, and equal ones more where it has fewer."""
    listed = document.content.get("workers")
    if count is None or not (listed is None or isinstance(listed, list)):
        return document
    workers: list[Any] = list(listed or [])[:count]
    workers += [{"name": f"worker-{number}"} for number in range(len(workers) + 1, count + 1)]
    return replace(document, content={**document.content, "workers": workers})


async def lab_new(plan: Plan, *, backend: str, json: bool) -> None:
    """Make the run directory, prepare it and train."""
    controller = plan.run_file.controller.model_copy(update={"host": namespaces.address(0)})
    plan = replace(plan, run_file=plan.run_file.model_copy(update={"controller": controller}))
    run = RunDirectory.create(plan.run_file.run.name, Path(plan.run_file.run.dir))
    with run.lock(), making(run, console.note):
        console.note(f"run directory {run.path}")
        await _lab(run, plan, backend, json, lambda: prepare(plan, run, console.note))


async def resume_lab(run: RunDirectory, plan: Plan, *, json: bool) -> None:
    """Go on with a run whose lock is held, in namespaces made anew."""
    await _lab(run, plan, "tun", json, lambda: None)


async def _lab(run: RunDirectory, plan: Plan, backend: str, json: bool, prepared: Callable[[], None]) -> None:
    lab = LabWorkers(run, plan, backend, console.note)
    finish = None
    with namespaces.coming_back():
        try:
            await lab.warm_up()
            with interruptible():
                prepared()
                host = open_host(run, plan, console.warn)
            host.links = lab.uses
            if host.resumed:
                lab.skip_faults(host.machine.state.tokens / host.machine.settings.tokens)
            if host.machine.state.finished:
                host.ledger.close()
            else:
                view = make_view()
                view.note(f"should this be interrupted, go on with: barnraise resume {run.path}")
                try:
                    uri, key = await listen(host.server, run, plan, MODE), host.server.enrolment.keys.public
                    lab.invite = str(new_invite(run, uri, key, uses=2 * len(lab.links), hours=INVITE_HOURS))
                    finish = await work(host, view, lab, uri)
                finally:
                    view.close()
        finally:
            await lab.stop()
    conclude(host, finish, json=json)
    if lab.broken:
        raise RunFailedError(f"the link emulator ended before the run did: see {run.logs / 'links.log'}")
