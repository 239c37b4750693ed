"""A worker by invite: enrolled under a name of this machine, until the run is over or it is stopped."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from barnraise.assembly.signals import on_signals
from barnraise.core.errors import InputError, InviteError, RunFailedError

if TYPE_CHECKING:
    from barnraise.assembly.voice import Say
    from barnraise.worker.gauges import Show
    from barnraise.worker.machine import MakeWorker
    from barnraise.worker.options import Given, Outcome, WorkerOptions
    from barnraise.worker.task_executor import BuildExecutor


async def join(
    invite: str,
    say: Say,
    *,
    name: str = "",
    network: str | None = None,
    home: Path | None = None,
    new_keys: bool = False,
    build: BuildExecutor | None = None,
    machine: MakeWorker | None = None,
    show: Show | None = None,
    on_end: Callable[[float], None] = lambda seconds: None,
    **given: Unpack[Given],
) -> Outcome:
    """Be a worker: why it stopped, once nothing is left to do. `build` makes its executor, and `machine` its state
    machine, where these are not the usual ones. With `new_keys` it takes new keys, for which those that it is known by
    vouch. `show` is given its progress, twice a second and at the end. `on_end` hears, as soon as it is known, within
    how many seconds the worker will have ended; it is called by a signal's handler. Raises RunFailedError when it
    stopped before, InputError and InviteError."""
    from barnraise.transport import Invite, Keys, identity
    from barnraise.transport.links.presets import index_of, parse
    from barnraise.trust.roles import HELPER, WORKER, wrong_invite
    from barnraise.worker.leaving import LEAVES_WITHIN
    from barnraise.worker.lending import MAX_DISK
    from barnraise.worker.options import Means, WorkerOptions

    ticket = Invite.parse(invite, time.time())
    if ticket.role not in (WORKER, HELPER):
        raise InviteError(wrong_invite(ticket.role, WORKER))
    wanted = name or re.sub(r"[^A-Za-z0-9_.-]+", "-", platform.node()).strip("-_.")[:64] or "worker"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", wanted):
        raise InputError(f"name {name!r} cannot name a node: use up to 64 letters, digits, '_', '.' and '-'")
    given.setdefault("max_disk", MAX_DISK)
    means = Means(**given, link=parse(network, index_of(wanted)) if network else None)
    means = replace(means, threads=given.get("threads") or os.cpu_count() or 1)
    _check_device(means.device)
    with identity.claimed((home or default_home()) / ticket.run, wanted) as (node, folder):
        if node != wanted:
            say(f"'{wanted}' works on this machine already: joining as '{node}'")
        path, following = folder / "keys.json", folder / "keys-next.json"
        changing = new_keys or following.exists()  # an earlier process may have begun to
        former = Keys.load_or_create(path) if changing else None

        def joined(node: str) -> None:
            if changing:
                following.replace(path)
            say(f"joined run {ticket.run} as '{node}'; Ctrl-C leaves")

        options = WorkerOptions(
            uri=ticket.uri,
            server_key=ticket.server_key,
            name=node,
            keys=Keys.load_or_create(following if changing else path),
            cache=folder / "data",
            moments=folder / "moments.safetensors",
            invite=ticket,
            means=means,
            former=former,
        )
        if lent := means.lent().seconds:
            on_end(lent + LEAVES_WITHIN)
        outcome = await _work(options, joined, say, build, machine, show=show, on_end=on_end)
    if not outcome.final:
        raise RunFailedError(f"worker '{node}' stopped: {outcome.reason}")
    return outcome


async def _work(
    options: WorkerOptions,
    joined: Callable[[str], None],
    say: Say,
    build: BuildExecutor | None,
    machine: MakeWorker | None,
    *,
    show: Show | None,
    on_end: Callable[[float], None],
) -> Outcome:
    """Be the worker until the run is over, or a signal asks it to leave."""
    from barnraise.worker.building import build_executor
    from barnraise.worker.cache import delete
    from barnraise.worker.leaving import LEAVES_WITHIN
    from barnraise.worker.machine import Worker
    from barnraise.worker.runtime import WorkerRuntime

    make = machine or Worker
    runtime = WorkerRuntime(
        options, build=build or build_executor, machine=make, on_connected=joined, say=say, show=show
    )

    def leave(name: str) -> None:
        say(f"{name}: handing in what there is, then leaving (again to stop at once)")
        runtime.leave(f"asked to leave ({name})")

    with on_signals(leave, lambda: None, lambda: on_end(LEAVES_WITHIN)):
        outcome = await runtime.run()
    if runtime.machine.over and options.means.max_disk:  # a laboratory's machines lend none of their own
        delete(options.cache, options.moments)
    return outcome


def default_home() -> Path:
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "barnraise"


def _check_device(device: str) -> None:
    """InputError when torch cannot use `device`; only asked for devices other than the CPU."""
    if device == "cpu":
        return
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        first = str(error).splitlines()[0]
        raise InputError(f"device '{device}' cannot be used ({first}); try cpu, or `barnraise doctor`") from None
