"""A worker by invite: enrolled under a name of this machine, until the run is over or it is stopped."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from barnraise.core.errors import InputError, InviteError, RunFailedError, TakenError
from barnraise.core.signals import on_signals

if TYPE_CHECKING:
    from barnraise.assembly.voice import Say
    from barnraise.core.sites import OwnFiles
    from barnraise.worker.gauges import Show
    from barnraise.worker.machine import MakeWorker
    from barnraise.worker.options import Given, Outcome, WorkerOptions
    from barnraise.worker.preparing import Prepare
    from barnraise.worker.task_executor import BuildExecutor

MOST_NAMES = 100
"""Names that a machine tries: its host name, and that with a number behind it."""


async def join(
    invite: str,
    say: Say,
    *,
    name: str = "",
    network: str | None = None,
    home: Path | None = None,
    new_keys: bool = False,
    trustees: Path | None = None,
    members: Path | None = None,
    own: OwnFiles | None = None,
    key_file: str = "",
    build: BuildExecutor | None = None,
    machine: MakeWorker | None = None,
    show: Show | None = None,
    on_end: Callable[[float], None] = lambda seconds: None,
    **given: Unpack[Given],
) -> Outcome:
    """Run a worker by invite, and return its outcome once nothing is left to do.

    `build` makes its executor, and `machine` its state machine, where these are not the usual ones. `trustees` is the
    roster of those for which it masks updates; None: any. `members` is, for a trustee, the roster of the nodes whose
    updates it accepts; None: any. `key_file` has the key to an encrypted run. With `new_keys` it takes new keys, which
    its known keys endorse. `own` are its files, for a run whose rows stay with their nodes. Where the host name, or the
    keys, belong to another machine, it takes others, by the same invite. `show` gets its progress, twice a second and
    at the end. A signal's handler calls `on_end`, as soon as it is known, with the seconds within which the worker will
    have ended. Raises RunFailedError when it stopped before, InputError and InviteError.
    """
    from barnraise.privacy.masking.member_roster import MemberRoster
    from barnraise.privacy.masking.roster import TrusteeRoster
    from barnraise.transport import Invite, Keys, identity
    from barnraise.transport.links.presets import index_of, parse
    from barnraise.trust.roles import TRUSTEE, WORKER, joins, wrong_invite
    from barnraise.wire.messages import TAKEN
    from barnraise.worker.leaving import LEAVES_WITHIN
    from barnraise.worker.lending import MAX_DISK
    from barnraise.worker.machine import Worker
    from barnraise.worker.options import Means, Safeguards, WorkerOptions
    from barnraise.worker.trustee import machine_of, preparation

    ticket = Invite.parse(invite, time.time())
    if not joins(ticket.role):
        raise InviteError(wrong_invite(ticket.role, WORKER))
    wanted = name or re.sub(r"[^A-Za-z0-9_.-]+", "-", platform.node()).strip("-_.")[:64] or "worker"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", wanted):
        raise InputError(f"name {name!r} cannot name a node: use up to 64 letters, digits, '_', '.' and '-'")
    if members is not None and ticket.role != TRUSTEE:
        raise InputError("--members is for trustees, and this invite is not for one: leave it out, or ask for another")
    if trustees is not None and ticket.role == TRUSTEE:
        raise InputError(
            "--trustees is for workers, and this invite is for a trustee: leave it out, or ask for another"
        )
    roster = TrusteeRoster.read(trustees.expanduser()) if trustees is not None else None
    listed = MemberRoster.read(members.expanduser()) if members is not None else None
    given.setdefault("max_disk", MAX_DISK)
    means = Means(**given, link=parse(network, index_of(wanted)) if network else None)
    means = replace(means, threads=given.get("threads") or os.cpu_count() or 1)
    _check_device(means.device)
    tried, reason = list[str](), ""
    while len(tried) < MOST_NAMES:
        with identity.claimed((home or default_home()) / ticket.run, wanted, tried) as (node, folder):
            if node != wanted:
                why = reason or f"'{wanted}' works on this machine already"
                say(f"{why}: joining as '{node}'")
            tried.append(node)
            path, following = folder / "keys.json", folder / "keys-next.json"
            changing = (new_keys and not reason) or following.exists()  # an earlier process may have begun to
            former = Keys.load_or_create(path) if changing else None
            joined = partial(_joined, ticket.run, path, following if changing else None, say)
            options = WorkerOptions(
                uri=ticket.uri,
                server_key=ticket.server_key,
                name=node,
                keys=Keys.load_or_create(following if changing else path),
                cache=folder / "data",
                moments=folder / "moments.safetensors",
                replica=folder / "replica",
                own=own,
                invite=ticket,
                means=means,
                former=former,
                safeguards=Safeguards(roster, key_file, listed),
            )
            if lent := means.lent().seconds:
                on_end(lent + LEAVES_WITHIN)
            try:
                steps = preparation(ticket.role, folder / "trustee")
                made = machine_of(ticket.role, machine or Worker)
                outcome = await _work(options, joined, say, build, made, steps=steps, show=show, on_end=on_end)
            except TakenError as error:
                if name and not reason:  # its owner chose it
                    raise
                reason = str(error)
                continue
        if outcome.refusal != TAKEN:
            return _judged(node, outcome)
        reason = outcome.reason
    raise TakenError(f"{reason}; {MOST_NAMES} names were tried: give this machine one of its own with --name")


def _joined(run: str, path: Path, following: Path | None, say: Say, node: str) -> None:
    if following is not None:
        following.replace(path)
    say(f"joined run {run} as '{node}'; Ctrl-C leaves")


def _judged(node: str, outcome: Outcome) -> Outcome:
    """Return the outcome of a worker that may come again.

    InviteError where the controller refuses it permanently, RunFailedError for a failure.
    """
    from barnraise.wire.messages import FOR_GOOD

    if outcome.refusal == FOR_GOOD:
        raise InviteError(f"worker '{node}' may not take part: {outcome.reason}")
    if not outcome.final:
        raise RunFailedError(f"worker '{node}' stopped: {outcome.reason}")
    return outcome


async def _work(
    options: WorkerOptions,
    joined: Callable[[str], None],
    say: Say,
    build: BuildExecutor | None,
    machine: MakeWorker,
    *,
    steps: Prepare,
    show: Show | None,
    on_end: Callable[[float], None],
) -> Outcome:
    """Run the worker until the run is over, or a signal asks it to leave.

    RunFailedError where memory is used up.
    """
    from barnraise.worker.building import build_executor
    from barnraise.worker.cache import delete
    from barnraise.worker.leaving import LEAVES_WITHIN
    from barnraise.worker.runtime import WorkerRuntime
    from barnraise.worker.shortage import shortage

    runtime = WorkerRuntime(
        options, build=build or build_executor, prepare=steps, machine=machine, on_connected=joined, say=say, show=show
    )

    def leave(name: str) -> None:
        say(f"{name}: submitting finished work, then leaving (again to stop at once)")
        runtime.leave(f"asked to leave ({name})")

    try:
        with on_signals(leave, lambda: None, lambda: on_end(LEAVES_WITHIN)):
            outcome = await runtime.run()
    except (MemoryError, OSError, RuntimeError) as error:
        if told := shortage(error):
            raise RunFailedError(told) from error
        raise
    if runtime.machine.over and options.means.max_disk:  # a laboratory's machines lend none of their own
        delete(options.cache, options.moments, options.replica)
    return outcome


def default_home() -> Path:
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "barnraise"


def _check_device(device: str) -> None:
    """Raise InputError when torch cannot use `device`; only asked for devices other than the CPU."""
    if device == "cpu":
        return
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        first = str(error).splitlines()[0]
        raise InputError(f"device '{device}' cannot be used ({first}); try cpu, or `barnraise doctor`") from None
