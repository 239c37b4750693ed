"""`barnraise revoke RUN_DIR WHO`: who is out stays out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnraise.cli import console
from barnraise.core.errors import InputError

if TYPE_CHECKING:
    from barnraise.ledger import RunDirectory

MOST_NAMED = 20


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
    reason: Annotated[str, typer.Option(help="What the node is told, and the ledger keeps.")] = "no reason given",
) -> None:
    """Put a node out of a run for good, or take an invite back. A controller that runs obeys at once.

    A node's key is let in no more, under any name; what was accepted from it stays in the model. An invite that is
    taken back lets nobody else in; who came by it stays until revoked too.
    """
    from barnraise.ledger import RunDirectory

    run = RunDirectory.open(run_dir)
    if _revoke_invite(run, who):
        return
    from barnraise.account.account import read
    from barnraise.cli import requests

    account = read(run)
    if who not in [node.node for node in account.nodes]:
        raise InputError(_unknown(run, who, [node.node for node in account.nodes]))
    if account.finished:
        raise InputError(f"{run.path} is finished: nobody takes part in it any more")
    if requests.taken_up(run, requests.put(run, requests.RevokeNode(who, reason[:1000]))):
        console.say(f"'{who}' is out of the run")
    else:
        console.say(f"'{who}' is out of the run as soon as it goes on; no controller runs just now")
    _warn_of_invite(run, who)


def _revoke_invite(run: RunDirectory, who: str) -> bool:
    """Take the invite back that `who` is; False when it is none."""
    from barnraise.cli.invites import given, open_book
    from barnraise.transport import Invite

    token = who
    if who == "-" or who.startswith(("@", "barnraise://")):
        token = Invite.parse(given(who), now=0.0).token  # an expired one may be taken back too
    with open_book(run) as book:
        if token in book.tokens:
            book.revoke(token)
            console.say(f"invite {token} lets nobody in any more")
            return True
    if token != who:
        raise InputError(f"invite {token} was not issued by {run.path}")
    return False


def _warn_of_invite(run: RunDirectory, node: str) -> None:
    """Its machine could make another key, and come again by the invite that it has."""
    from barnraise.cli.invites import open_book
    from barnraise.ledger import LedgerView, NodeChanged

    with LedgerView(run.ledger) as view:
        changes = [change for _, change in view.news() if isinstance(change, NodeChanged) and change.node == node]
    match = re.fullmatch(r"invite ([0-9a-f]{16})", next((d.reason for d in changes if d.change == "enrolled"), ""))
    with open_book(run) as book:
        token = book.tokens.get(match[1]) if match else None
    if token is not None and token.uses and not token.revoked:
        console.warn(
            f"the invite by which '{node}' came lets in {token.uses} more: its machine could join anew, with another "
            f"key; to take it back: barnraise revoke {run.path} {token.id}"
        )


def _unknown(run: RunDirectory, who: str, nodes: list[str]) -> str:
    from barnraise.cli.invites import open_book

    with open_book(run) as book:
        invites = [token.id for token in book.tokens.values() if token.uses and not token.revoked]
    named = f"its nodes are {', '.join(nodes[:MOST_NAMED])}" if nodes else "it has no nodes yet"
    open_invites = f", its open invites {', '.join(invites[-MOST_NAMED:])}" if invites else ""
    return f"{run.path} has neither a node nor an invite '{who}'; {named}{open_invites}"
