"""Training the embedded way: a new run, or one that is resumed, with local workers, to its summary."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import typer

from barnraise.cli import console
from barnraise.cli.addresses import listen
from barnraise.cli.hosting import Host, making, open_host, prepare
from barnraise.cli.local_workers import LocalWorkers
from barnraise.cli.session import work
from barnraise.cli.signals import INTERRUPTED, interruptible
from barnraise.cli.view import make_view
from barnraise.controller.actions import Finish
from barnraise.ledger import RunDirectory
from barnraise.plan.links import live_link
from barnraise.plan.resolve import Plan


async def train_new(plan: Plan, *, json: bool) -> None:
    """Make the run directory, prepare it and train."""
    run = RunDirectory.create(plan.run_file.run.name, Path(plan.run_file.run.dir))
    with run.lock(), making(run, console.note):
        console.note(f"run directory {run.path}")
        await _train(run, plan, json, lambda: prepare(plan, run, console.note))


async def resume_training(run: RunDirectory, plan: Plan, *, json: bool) -> None:
    """Go on with a run whose lock is held, with its local workers started anew."""
    await _train(run, plan, json, lambda: None)


async def _train(run: RunDirectory, plan: Plan, json: bool, prepared: Callable[[], None]) -> None:
    run_file, finish = plan.run_file, None
    local = LocalWorkers(run, run_file.workers, run_file.faults, partial(live_link, run_file), console.note)
    await local.warm_up()
    try:
        with interruptible():
            prepared()
            host = open_host(run, plan, console.warn)
        if host.resumed:
            local.skip_faults(host.machine.state.tokens / host.machine.settings.tokens)
        if host.machine.state.finished:
            host.ledger.close()
        else:
            view = make_view()
            view.note(f"should this be interrupted, go on with: barnraise resume {run.path}")
            try:
                finish = await work(host, view, local, await listen(host.server, run, plan, "train"))
            finally:
                view.close()
    finally:
        await local.stop()
    conclude(host, finish, json=json)


def conclude(host: Host, finish: Finish | None, *, json: bool) -> None:
    """Export the model, write the report, print the summary; or say how an interrupted run goes on."""
    if finish is not None and finish.interrupted:
        state, path = host.machine.state, host.run.path
        share = state.tokens / host.machine.settings.tokens
        console.note(
            f"interrupted at version {state.version}, with {share:.1%} of the tokens; nothing accepted is lost"
        )
        console.note(f"end it with what it has learnt: barnraise finish {path}")
        console.note(f"train on: barnraise resume {path}")
        raise typer.Exit(INTERRUPTED)
    if host.machine.state.finished:
        shutil.rmtree(host.run.moments, ignore_errors=True)  # nobody goes on from there
    from barnraise.cli.summary import summarise

    summarise(host.run, host.plan, json=json)
