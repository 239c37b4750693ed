"""`barnraise invite RUN_DIR`: another invite to a run, whether its controller runs now or not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnraise.cli import console


def invite(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run's folder.", show_default=False)],
    uses: Annotated[int, typer.Option(help="How many machines it lets in.", min=1)] = 1,
    hours: Annotated[float, typer.Option(help="How long it is good for.", min=0.01)] = 24.0,
    host: Annotated[str, typer.Option(help="The address workers shall dial instead of the one listened on.")] = "",
    standby: Annotated[
        bool, typer.Option("--standby", help="Not for workers, but for a machine that is to take over if need be.")
    ] = False,
) -> None:
    """Make another invite to a run. A controller that runs now accepts it at once.

    One for a standby (`barnraise standby INVITE`) gives all that the run has, its secret keys too: hand it to nobody
    whom you would not let run it.
    """
    from barnraise.assembly.invites import another_invite
    from barnraise.ledger import RunDirectory
    from barnraise.transport.invite import STANDBY, WORKER

    role = STANDBY if standby else WORKER
    console.say(str(another_invite(RunDirectory.open(run_dir), uses=uses, hours=hours, host=host, role=role)))
