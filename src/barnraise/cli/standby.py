"""`barnraise standby INVITE`: a second controller that follows the first, and takes over."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from barnraise.assembly.invites import INVITE_VARIABLE
from barnraise.cli import console
from barnraise.cli.invites import given
from barnraise.cli.log_forms import LogForm, Plain, form_of
from barnraise.core.errors import InputError, InviteError


def standby(
    invite: Annotated[
        str,
        typer.Argument(
            metavar="INVITE",
            envvar=INVITE_VARIABLE,
            help="The invite that `barnraise invite RUN_DIR --standby` printed; @FILE reads a file, - standard input.",
            show_default=False,
        ),
    ] = "",
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
    take_over: Annotated[
        Path | None,
        typer.Option(
            "--take-over",
            metavar="COPY",
            help="Tell the standby that keeps this copy to take over now, however many workers have come to it.",
            show_default=False,
        ),
    ] = None,
    log: LogForm = "",
    plain: Plain = False,
    json: Annotated[bool, typer.Option("--json", help="End with one line of JSON, where it took over.")] = False,
) -> None:
    """Copy a run continuously, and take over when its controller is lost.

    Follows the ledger, payloads, checkpoints and data into a run directory, and says how far behind it is. When the
    controller has been silent for controller.standby_lease seconds, it listens to the workers, and becomes the run's
    controller once more than half of them have come to it. If they do not come, you decide: `--take-over COPY`, or
    SIGUSR1. The old controller ends if it returns. Ctrl-C ends the standby.
    """
    if take_over is not None:
        _tell(take_over, invite)
        return
    if not invite:
        raise InputError(
            "which run? Give the invite that `barnraise invite RUN_DIR --standby` printed there, or --take-over COPY"
        )
    from barnraise.transport import Invite
    from barnraise.trust.roles import STANDBY, wrong_invite

    ticket = Invite.parse(given(invite), 0.0)  # may be expired for one that followed before: the controller decides
    if ticket.role != STANDBY:
        raise InviteError(wrong_invite(ticket.role, STANDBY))
    from barnraise.assembly.standby import StandbyPlace, stand_by
    from barnraise.cli.summary import tell
    from barnraise.cli.view import voice_of

    form = form_of(log, plain)
    voice = voice_of(form)
    summary = asyncio.run(stand_by(ticket, voice, StandbyPlace(dir, host, port, http_port, name)))
    if summary is None:
        voice.say("nothing was taken over")
    else:
        tell(summary, form, json=json)


def _tell(path: Path, invite: str) -> None:
    """Have the standby that keeps the copy at `path` take over.

    Raises InputError where none does.
    """
    from barnraise.assembly.requests import put_take_over
    from barnraise.assembly.standby import MARK
    from barnraise.ledger import RunDirectory

    if invite:
        raise InputError("--take-over speaks to a standby that runs already: give it without an invite")
    run = RunDirectory.open(path).require_real("take over")
    if not (path / MARK).is_file():
        raise InputError(f"{path} is not a copy that a standby keeps: if it took over, it is a run by itself")
    if run.holder() is None:
        raise InputError(f"no standby keeps {path} now: to continue with the copy, run `barnraise resume {path}`")
    put_take_over(run)
    console.note(f"told the standby of {path} to take over")
