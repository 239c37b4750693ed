"""Training the embedded way: a new run, or one that is resumed, with local workers, to its summary."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from barnraise.cli import console
from barnraise.cli.hosting import Host, open_host, prepare
from barnraise.cli.local_workers import LocalWorkers
from barnraise.cli.session import work
from barnraise.cli.view import make_view
from barnraise.controller.actions import Finish
from barnraise.ledger import RunDirectory
from barnraise.plan.links import live_link
from barnraise.plan.resolve import Plan


async def train_new(plan: Plan, *, json: bool) -> None:
    """Make the run directory, prepare it and train."""
    run = RunDirectory.create(plan.run_file.run.name, Path(plan.run_file.run.dir))
    with run.lock():
        console.note(f"run directory {run.path}")
        await _train(run, plan, json, lambda: prepare(plan, run, console.note))


async def resume_training(run: RunDirectory, plan: Plan, *, json: bool) -> None:
    """Go on with a run whose lock is held, with its local workers started anew."""
    await _train(run, plan, json, lambda: None)


async def _train(run: RunDirectory, plan: Plan, json: bool, prepared: Callable[[], None]) -> None:
    local = LocalWorkers(run, plan.run_file.workers, plan.run_file.faults, partial(live_link, plan.run_file))
    await local.warm_up()
    try:
        prepared()
        host = open_host(run, plan, console.warn)
    except BaseException:
        await local.stop()
        raise
    if host.resumed:
        local.skip_faults(host.machine.state.tokens / host.machine.settings.tokens)
    if host.machine.state.finished:
        await local.stop()
        host.ledger.close()
        conclude(host, None, json=json)
        return
    view = make_view()
    view.note(f"should this be interrupted, go on with: barnraise resume {run.path}")
    try:
        finish = await work(host, view, local, "train")
    finally:
        view.close()
    if host.machine.state.finished:
        shutil.rmtree(run.moments, ignore_errors=True)  # nobody goes on from there
    conclude(host, finish, json=json)


def conclude(host: Host, finish: Finish | None, *, json: bool) -> None:
    """Export the model, write the report, print the summary."""
    from barnraise.cli.summary import summarise

    summarise(host.run, host.plan, json=json)
