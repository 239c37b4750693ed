"""`barnraise join INVITE`: a worker, until the run is over or it is stopped."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnraise.cli import console
from barnraise.cli.invites import INVITE_VARIABLE, given
from barnraise.cli.signals import on_signals
from barnraise.core.errors import InputError, RunFailedError

if TYPE_CHECKING:
    from barnraise.worker.options import Outcome, WorkerOptions


def join(
    invite: Annotated[
        str,
        typer.Argument(
            metavar="INVITE",
            envvar=INVITE_VARIABLE,
            help="The line the host gave you; @FILE reads it from a file, - from standard input.",
            show_default=False,
        ),
    ],
    name: Annotated[str, typer.Option(help="This machine's name in the run; the host name by default.")] = "",
    device: Annotated[str, typer.Option(help="A torch device: cpu, cuda, cuda:1.")] = "cpu",
    threads: Annotated[int, typer.Option(help="Compute threads; all cores by default (0).", min=0)] = 0,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="LINK",
            help="For trials: emulate such a link, a preset (cellular, satellite ...) or 10mbit/50ms.",
            show_default=False,
        ),
    ] = None,
    slowdown: Annotated[
        float, typer.Option(help="For trials: idle for so many seconds after each second of training.", min=0.0)
    ] = 0.0,
    home: Annotated[Path | None, typer.Option(help="Where keys and fetched data are kept.", show_default=False)] = None,
) -> None:
    """Work for the run that an invite is for, until it is over or you press Ctrl-C.

    Needs nothing but the invite: model, data and settings come from the controller. Only dials out, over one port:
    ZMQ, or HTTP where ZMQ does not get through and the controller offers it.
    Other users of this machine can read arguments: give the invite in a file or in the environment if there are any.
    On SIGINT or SIGTERM it hands in what it has and leaves, on a second one at once. Started again, it takes part as
    the same node; started twice, the second takes a name of its own.
    """
    from barnraise.transport import Invite, Keys, identity
    from barnraise.transport.presets import index_of, parse
    from barnraise.worker.options import WorkerOptions

    ticket = Invite.parse(given(invite), time.time())
    wanted = name or re.sub(r"[^A-Za-z0-9_.-]+", "-", platform.node()).strip("-_.")[:64] or "worker"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", wanted):
        raise InputError(f"--name {name!r} cannot name a node: use up to 64 letters, digits, '_', '.' and '-'")
    link = parse(network, index_of(wanted)) if network else None
    _check_device(device)
    with identity.claimed((home or _default_home()) / ticket.run, wanted) as (node, folder):
        if node != wanted:
            console.note(f"'{wanted}' works on this machine already: joining as '{node}'")
        options = WorkerOptions(
            uri=ticket.uri,
            server_key=ticket.server_key,
            name=node,
            keys=Keys.load_or_create(folder / "keys.json"),
            cache=folder / "data",
            moments=folder / "moments.safetensors",
            invite=ticket,
            device=device,
            threads=threads or os.cpu_count() or 1,
            slowdown=slowdown,
            link=link,
        )
        outcome = asyncio.run(_work(options, ticket.run))
    if not outcome.final:
        raise RunFailedError(f"worker '{node}' stopped: {outcome.reason}")
    console.note(outcome.reason)


async def _work(options: WorkerOptions, run: str) -> Outcome:
    """Be the worker until the run is over, or a signal asks it to leave."""
    from barnraise.worker.runtime import WorkerRuntime

    def joined(node: str) -> None:
        console.note(f"joined run {run} as '{node}'; Ctrl-C leaves")

    runtime = WorkerRuntime(options, on_connected=joined, say=console.note)

    def leave(name: str) -> None:
        console.note(f"{name}: handing in what there is, then leaving (again to stop at once)")
        runtime.leave(f"asked to leave ({name})")

    with on_signals(leave, lambda: None):
        return await runtime.run()


def _default_home() -> Path:
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
