"""A run in a lab: a new one, or a resumed one; controller in this process, workers in namespaces of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from barnraise.assembly.addresses import listen
from barnraise.assembly.ending import Summary, conclude
from barnraise.assembly.hosting import Host
from barnraise.assembly.invites import new_invite
from barnraise.assembly.lab_workers import LabWorkers
from barnraise.assembly.lifecycle import how_to_go_on, see_through
from barnraise.assembly.preparing import new_run, prepare
from barnraise.assembly.voice import Say, Voice
from barnraise.emulation import namespaces
from barnraise.ledger import RunDirectory
from barnraise.plan.resolve import Plan

INVITE_HOURS = 1000.0


async def lab_new(plan: Plan, voice: Voice, *, backend: str) -> Summary:
    """Make the run directory, prepare it and train."""
    controller = plan.run_file.controller.model_copy(update={"host": namespaces.address(0)})
    plan = replace(plan, run_file=plan.run_file.model_copy(update={"controller": controller}))
    with new_run(plan, voice.say) as run:
        return await _lab(run, plan, voice, backend, lambda: prepare(plan, run, voice.say))


async def resume_lab(run: RunDirectory, plan: Plan, voice: Voice) -> Summary:
    """Continue a run whose lock is held, in new namespaces."""
    return await _lab(run, plan, voice, "tun", lambda: None)


async def _lab(run: RunDirectory, plan: Plan, voice: Voice, backend: str, prepare: Callable[[], None]) -> Summary:
    lab = LabWorkers(run, plan, backend, voice.say)

    async def listening(host: Host, note: Say) -> str:
        note(how_to_go_on(run))
        uri, key = await listen(host.server, run, plan, "lab"), host.server.enrolment.keys.public
        lab.invite = str(new_invite(run, uri, key, uses=2 * len(lab.links), hours=INVITE_HOURS))
        return uri

    with namespaces.coming_back():
        host, finish = await see_through(run, plan, voice, listening, lab, prepare)
    ending = conclude(host, finish, voice)
    if lab.broken:
        return replace(ending, broken=f"the link emulator ended before the run did: see {run.logs / 'links.log'}")
    return ending
