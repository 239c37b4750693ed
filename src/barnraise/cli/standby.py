"""`barnraise standby INVITE`: a second controller that follows the first, and takes over."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from barnraise.assembly.invites import INVITE_VARIABLE
from barnraise.cli import console
from barnraise.cli.invites import given


def standby(
    invite: Annotated[
        str,
        typer.Argument(
            metavar="INVITE",
            envvar=INVITE_VARIABLE,
            help="What `barnraise invite RUN_DIR --standby` printed; @FILE reads a file, - standard input.",
            show_default=False,
        ),
    ],
    dir: Annotated[Path, typer.Option("--dir", help="Where the copy of the run is kept.")] = Path("standby"),
    host: Annotated[
        str,
        typer.Option(
            help="This machine's address for workers; the one from which it reaches the controller by default.",
            show_default=False,
        ),
    ] = "",
    port: Annotated[int, typer.Option(help="TCP port for workers; a free one by default (0).", min=0, max=65535)] = 0,
    http_port: Annotated[
        int, typer.Option(help="The same for HTTP, where the controller has one.", min=0, max=65535)
    ] = 0,
    name: Annotated[str, typer.Option(help="This standby's name; the host name by default.")] = "",
    json: Annotated[bool, typer.Option("--json", help="End with one line of JSON, where it took over.")] = False,
) -> None:
    """Copy a run as it goes, and take over when its controller is gone.

    Follows the ledger, payloads, checkpoints and data into a run directory, and says how far behind it is. When the
    controller has been silent for controller.standby_lease seconds, or this process gets SIGUSR1, it becomes the run's
    controller: workers find it by themselves, and the old one ends should it come back. Ctrl-C ends the standby.
    """
    line = given(invite)
    from barnraise.assembly.standby import Place, stand_by
    from barnraise.cli.summary import tell
    from barnraise.cli.view import VOICE

    summary = asyncio.run(stand_by(line, VOICE, Place(dir, host, port, http_port, name)))
    if summary is None:
        console.note("nothing was taken over")
    else:
        tell(summary, json=json)
