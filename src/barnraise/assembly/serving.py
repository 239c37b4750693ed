"""The controller alone: a new run or a resumed one, with workers by invite."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from barnraise.assembly.addresses import listen, recorded_mode
from barnraise.assembly.ending import Summary, conclude
from barnraise.assembly.fencing import fence, predecessors
from barnraise.assembly.hosting import Host
from barnraise.assembly.invites import new_invite
from barnraise.assembly.lifecycle import how_to_go_on, see_through
from barnraise.assembly.preparing import new_run, prepare
from barnraise.assembly.voice import Say, Voice
from barnraise.core.errors import AddressError
from barnraise.ledger import RunDirectory
from barnraise.plan.resolve import Plan
from barnraise.transport import Invite
from barnraise.transport.handover import HandoverListener


@dataclass(frozen=True)
class Invitation:
    """An invite for `uses` machines, good for `hours` hours.

    `hand` is called with it, and its file, once the run listens.
    """

    uses: int
    hours: float
    hand: Callable[[RunDirectory, Invite, Path], None]


async def serve_new(plan: Plan, voice: Voice, invitation: Invitation) -> Summary:
    """Make the run directory, prepare it and listen."""
    voice.say(f"aggregation rule: {plan.rule_text}")
    with new_run(plan, voice.say) as run:
        return await _serve(run, plan, voice, lambda: prepare(plan, run, voice.say), invitation)


async def resume_serving(
    run: RunDirectory, plan: Plan, voice: Voice, handover: HandoverListener | None = None
) -> Summary:
    """Continue a run whose lock is held, for the workers that wait for it; some perhaps at a `handover`."""
    return await _serve(run, plan, voice, lambda: None, handover=handover)


async def _serve(
    run: RunDirectory,
    plan: Plan,
    voice: Voice,
    prepare: Callable[[], None],
    invitation: Invitation | None = None,
    handover: HandoverListener | None = None,
) -> Summary:
    fences: list[asyncio.Future[None]] = []

    async def listening(host: Host, note: Say) -> str:
        uri = await listen(host.server, run, plan, "serve", handover)
        keys, term = host.server.enrolment.keys, host.server.standbys.term
        fences.extend(asyncio.ensure_future(fence(before, keys, term)) for before in predecessors(run))
        note(f"listening on {uri.replace(' ', ' and ')}; {how_to_go_on(run)}")
        if invitation is not None:
            key = host.server.enrolment.keys.public
            invite = new_invite(run, uri, key, uses=invitation.uses, hours=invitation.hours)
            invitation.hand(run, invite, run.write_key("invite", f"{invite}\n".encode()))
        return uri

    try:
        return conclude(*await see_through(run, plan, voice, listening, prepare=prepare), voice)
    finally:
        for each in fences:
            each.cancel()
        await asyncio.gather(*fences, return_exceptions=True)


async def finish_run(run: RunDirectory, plan: Plan, voice: Voice) -> Summary:
    """End a run whose lock is held, as a request in its folder says.

    There are no local workers, and where the port is taken by now, other workers are not told.
    """

    async def listening(host: Host, note: Say) -> str:
        """Listen at the run's address, so that waiting workers learn of its end; where that is impossible, nowhere."""
        try:
            return await listen(host.server, run, plan, recorded_mode(run))
        except AddressError as error:
            voice.warn(f"{error}; workers that wait for the run are not told")
            return await host.server.bind(f"inproc://{run.path.name}")

    return conclude(*await see_through(run, plan, voice, listening), voice)
