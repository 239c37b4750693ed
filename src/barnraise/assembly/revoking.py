"""Permanent exclusion of a node, and revocation of an invite."""

from __future__ import annotations

import math
import re

from barnraise.account.account import read
from barnraise.assembly import requests
from barnraise.assembly.invites import open_book
from barnraise.core.errors import InputError
from barnraise.core.program import program
from barnraise.core.text import LONGEST_NAME, printable
from barnraise.ledger import Change, LedgerView, NodeChanged, RunDirectory

MOST_NAMED = 20
LONGEST_REASON = 1000


def revoke_invite(run: RunDirectory, token: str) -> bool:
    """Take back the invite with these 16 digits; False when the run has none."""
    with open_book(run) as book:
        if token not in book.tokens:
            return False
        book.revoke(token)
        return True


def revoke_node(run: RunDirectory, node: str, reason: str, patience: float = math.inf) -> str:
    """Have the run's controller exclude `node`, wait for it as `requests.ask`, and return a sentence about it.

    Raises InputError.
    """
    account = read(run)
    names = [totals.node for totals in account.nodes]
    if node not in names:
        raise InputError(_unknown(run, node, names))
    if account.finished:
        raise InputError(f"{run.path} is finished: no node takes part in it any more")
    request = requests.RevokeNode(node, reason[:LONGEST_REASON])
    return requests.ask(run, request, f"'{printable(node, LONGEST_NAME)}' is out of the run", patience)


def way_back(run: RunDirectory, node: str) -> str:
    """Return the invite by which an excluded `node` could return with another key; empty when it cannot."""
    with LedgerView(run.ledger) as view:
        changes = [change for _, change in view.news() if isinstance(change, NodeChanged) and change.node == node]
    match = re.fullmatch(r"invite ([0-9a-f]{16})", next((d.reason for d in changes if d.change == Change.ENROLLED), ""))
    with open_book(run) as book:
        token = book.tokens.get(match[1]) if match else None
    if token is None or not token.uses or token.revoked:
        return ""
    return (
        f"the invite that '{node}' used admits {token.uses} more: its machine could join again, with another key; to "
        f"revoke the invite: {program()} revoke {run.path} {token.id}"
    )


def _unknown(run: RunDirectory, who: str, nodes: list[str]) -> str:
    with open_book(run) as book:
        invites = [token.id for token in book.tokens.values() if token.uses and not token.revoked]
    shown = ", ".join(printable(name, LONGEST_NAME) for name in nodes[:MOST_NAMED])
    named = f"its nodes are {shown}" if nodes else "it has no nodes yet"
    open_invites = f", its open invites {', '.join(invites[-MOST_NAMED:])}" if invites else ""
    return f"{run.path} has neither a node nor an invite '{printable(who)}'; {named}{open_invites}"
