"""Training with local workers: a new run, or a resumed one, to its end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from barnraise.assembly.addresses import listen
from barnraise.assembly.ending import Summary, conclude
from barnraise.assembly.hosting import Host
from barnraise.assembly.lifecycle import how_to_go_on, see_through
from barnraise.assembly.local_workers import LocalWorkers
from barnraise.assembly.preparing import new_run, prepare
from barnraise.assembly.voice import Say, Voice
from barnraise.ledger import RunDirectory
from barnraise.plan.links import live_link
from barnraise.plan.masking import local_trustees
from barnraise.plan.resolve import Plan


async def train_new(plan: Plan, voice: Voice) -> Summary:
    """Make the run directory, prepare it and train."""
    with new_run(plan, voice.say) as run:
        return await _train(run, plan, voice, lambda: prepare(plan, run, voice.say))


async def resume_training(run: RunDirectory, plan: Plan, voice: Voice) -> Summary:
    """Continue a run whose lock is held, with its local workers started again."""
    return await _train(run, plan, voice, lambda: None)


async def _train(run: RunDirectory, plan: Plan, voice: Voice, prepare: Callable[[], None]) -> Summary:
    run_file = plan.run_file
    links = partial(live_link, run_file)
    local = LocalWorkers(
        run,
        run_file.workers,
        plan.faults,
        links,
        voice.say,
        trustees=local_trustees(run_file),
        key_file=plan.encryption.section.key_file if plan.encryption else "",
    )
    return conclude(*await see_through(run, plan, voice, _listen, local, prepare), voice)


async def _listen(host: Host, note: Say) -> str:
    note(how_to_go_on(host.run))
    return await listen(host.server, host.run, host.plan, "train")
