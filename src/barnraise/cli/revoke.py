"""`barnraise revoke RUN_DIR WHO`: excludes a node permanently, or takes an invite back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnraise.cli import console
from barnraise.cli.invites import given
from barnraise.core.errors import InputError


def revoke(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run's folder.", show_default=False)],
    who: Annotated[
        str,
        typer.Argument(
            metavar="NODE|INVITE",
            help="A node's name; or an invite: the line, @FILE, - for standard input, or its 16 digits.",
            show_default=False,
        ),
    ],
    reason: Annotated[str, typer.Option(help="The reason, for the node and the ledger.")] = "no reason given",
) -> None:
    """Put a node out of a run permanently, or take an invite back. A controller that runs obeys at once.

    A node's key is not admitted again, under any name; what was accepted from it stays in the model. An invite that is
    taken back admits no other machine; nodes that used it stay until revoked too.
    """
    from barnraise.assembly.revoking import revoke_invite, revoke_node, way_back
    from barnraise.ledger import RunDirectory
    from barnraise.transport import Invite

    run = RunDirectory.open(run_dir).require_real("revoke")
    is_invite = who == "-" or who.startswith(("@", "barnraise://"))
    token = Invite.parse(given(who), now=0.0).token if is_invite else who  # an expired one may be taken back too
    if revoke_invite(run, token):
        console.say(f"invite {token} admits no machine any more")
        return
    if is_invite:
        raise InputError(f"invite {token} was not issued by {run.path}")
    console.say(revoke_node(run, who, reason))
    if left := way_back(run, who):
        console.warn(left)
