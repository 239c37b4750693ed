"""`barnraise invite RUN_DIR`: another invite to a run, whether its controller runs now or not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnraise.cli import console
from barnraise.trust.roles import ROLES, STANDBY, WORKER, require_role

_ROLES = "; ".join(f"{role.name}: {role.summary} ({role.command})" for role in ROLES.values())


def invite(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run's folder.", show_default=False)],
    role: Annotated[str, typer.Option(help=f"The role that it admits. {_ROLES}.")] = WORKER,
    uses: Annotated[int, typer.Option(help="Number of machines that it admits.", min=1)] = 1,
    expires: Annotated[str, typer.Option(metavar="TIME", help="How long it is valid, as 90min, 36h or 2d.")] = "",
    hours: Annotated[float, typer.Option(help="The same in hours.", min=0.01)] = 24.0,
    host: Annotated[
        str, typer.Option(help="The address that workers dial, instead of the one that the controller listens on.")
    ] = "",
    standby: Annotated[bool, typer.Option("--standby", help="The same as --role standby.")] = False,
) -> None:
    """Make another invite to a run. A controller that runs now accepts it at once.

    An invite for a standby gives all that the run has, its secret keys too: give it only to people whom you would let
    run it.
    """
    from barnraise.assembly.invites import another_invite
    from barnraise.core.units import seconds_of
    from barnraise.ledger import RunDirectory

    role = STANDBY if standby else require_role(role)
    hours = seconds_of(expires, "--expires") / 3600.0 if expires else hours
    run = RunDirectory.open(run_dir).require_real("invite to")
    console.say(str(another_invite(run, uses=uses, hours=hours, host=host, role=role)))
