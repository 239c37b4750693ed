"""`barnraise join INVITE`: a worker, until the run is over or it is stopped."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from barnraise.cli import console
from barnraise.core.errors import InputError, RunFailedError


def join(
    invite: Annotated[str, typer.Argument(metavar="INVITE", help="The line the host gave you.", show_default=False)],
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
    On SIGINT or SIGTERM it hands in what it has and leaves. Started again, it takes part as the same node.
    """
    from barnraise.transport import Invite, Keys
    from barnraise.transport.presets import index_of, parse
    from barnraise.worker.runtime import Outcome, WorkerOptions, WorkerRuntime

    ticket = Invite.parse(invite, time.time())
    node = name or re.sub(r"[^A-Za-z0-9_.-]+", "-", platform.node()).strip("-_.")[:64] or "worker"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", node):
        raise InputError(f"--name {name!r} cannot name a node: use up to 64 letters, digits, '_', '.' and '-'")
    link = parse(network, index_of(node)) if network else None
    folder = (home or _default_home()) / ticket.run / node
    _check_device(device)
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

    async def work() -> Outcome:
        runtime = WorkerRuntime(
            options,
            on_connected=lambda node: console.note(f"joined run {ticket.run} as '{node}'; Ctrl-C leaves"),
            say=console.note,
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, runtime.leave, f"asked to leave ({number.name})")
        return await runtime.run()

    outcome = asyncio.run(work())
    if not outcome.final:
        raise RunFailedError(f"worker '{node}' stopped: {outcome.reason}")
    console.note(outcome.reason)


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
