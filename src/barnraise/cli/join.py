"""`barnraise join INVITE`: a worker, until the run is over or it is stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from barnraise.assembly.invites import INVITE_VARIABLE
from barnraise.assembly.joining import join as work
from barnraise.cli import console
from barnraise.cli.consent import ask, own_files
from barnraise.cli.invites import given
from barnraise.cli.log_forms import LogForm, Plain
from barnraise.core.signals import COME_AGAIN, end_within
from barnraise.core.sites import DELTA
from barnraise.worker.lending import MAX_DISK


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
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE",
            help="Autocast type, where the device is slow with the run's: as `training.precision`.",
            show_default=False,
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="LINK",
            help="For trials: emulate such a link, a preset, or figures as in 10mbit/50ms.",
            show_default=False,
        ),
    ] = None,
    slowdown: Annotated[
        float, typer.Option(help="For trials: idle for so many seconds after each second of training.", min=0.0)
    ] = 0.0,
    max_memory: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Most memory that the run may take, as 4GB; batches are split to fit.",
            show_default=False,
        ),
    ] = "",
    max_disk: Annotated[
        str,
        typer.Option(metavar="SIZE", help="Most disk that the run's files may take; they are deleted when it is over."),
    ] = MAX_DISK,
    hours: Annotated[float | None, typer.Option(help="Hours after which it leaves.", show_default=False)] = None,
    until: Annotated[
        str, typer.Option(metavar="HH:MM", help="Time of day, here, at which it leaves.", show_default=False)
    ] = "",
    only: Annotated[
        str,
        typer.Option(
            metavar="KINDS",
            help="Kinds of work that it does, with commas: train,evaluate; all unless given.",
            show_default=False,
        ),
    ] = "",
    base: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            help="A folder with copies of the run's base model, or of its data, which then are not fetched.",
            show_default=False,
        ),
    ] = "",
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILES",
            help="Your own files, folders or patterns, for a run whose rows stay with their owners; can be repeated.",
            show_default=False,
        ),
    ] = None,
    release: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SETTING",
            help="With --data: send less besides updates, as loss=off; can be repeated.",
            show_default=False,
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            metavar="EPSILON",
            help="With --data: most that differential privacy may spend of your rows; this machine counts it itself.",
            show_default=False,
        ),
    ] = None,
    delta: Annotated[float, typer.Option(help="With --epsilon: the delta at which it counts.")] = DELTA,
    yes: Annotated[bool, typer.Option("--yes", help="With --data: agree to what is sent, without a question.")] = False,
    new_keys: Annotated[
        bool, typer.Option("--new-keys", help="Take new keys; those that this machine is known by vouch for them.")
    ] = False,
    trustees: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The roster of the trustees that you accept. Without masks for these, no update leaves this machine.",
            show_default=False,
        ),
    ] = None,
    members: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="For a trustee: the roster of the workers whose updates you accept. Sums have no others.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="The key file, where the run's updates are encrypted (`barnraise keys make`).",
            show_default=False,
        ),
    ] = "",
    log: LogForm = "",
    plain: Plain = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="In a log, a line for each contribution.")] = False,
    home: Annotated[Path | None, typer.Option(help="Where keys and fetched data are kept.", show_default=False)] = None,
) -> None:
    """Work for the run that an invite is for, until it is over or you press Ctrl-C.

    Needs nothing but the invite: model, data and settings come from the controller. Only dials out, over one port: ZMQ,
    or HTTP where ZMQ does not get through and the controller offers it. Other users of this machine can read arguments:
    give the invite in a file or in the environment if there are any. Shows what the machine does and has done: in a
    live line on a terminal, elsewhere in a line each half minute. On SIGINT or SIGTERM, and when its time is over, it
    submits its results and leaves, within a minute whatever the controller does; on a second signal it ends at once.
    With --data it trains on your own files, which stay here: it shows what it sends, and asks once.
    Started again, it takes part as the same node. A second process, or a machine with the same host name or a copy of
    its keys, takes a name of its own. Exit code 0: the run is over. 75: the lent time is over, or it was asked to
    leave; it may come again. 2: it is refused permanently, or something that was given cannot work. 1: it failed. 130:
    a second signal ended it.
    """
    from barnraise.cli.lending import make_view

    own = own_files(data or (), release or (), epsilon, delta)
    if own is not None:
        ask(own, yes=yes)
    view = make_view(log, plain, verbose)
    try:
        outcome = asyncio.run(
            work(
                given(invite), view.note, name=name, device=device, threads=threads, precision=precision,
                network=network, slowdown=slowdown, home=home, new_keys=new_keys,
                max_memory=max_memory, max_disk=max_disk, hours=hours, until=until, only=only,
                base=base, trustees=trustees, members=members, own=own, key_file=key,
                show=view.update, on_end=_end_within,
            )
        )  # fmt: skip
    finally:
        view.close()
    view.note(outcome.reason)
    if outcome.left:
        raise typer.Exit(COME_AGAIN)


def _end_within(seconds: float) -> None:
    """End the process after `seconds` if the worker still holds it, for example by an endless step."""
    words = "the worker did not end in time by itself: it is ended now, and its current task is lost"
    end_within(seconds, lambda: console.fail(words))
