"""`barnraise invites RUN_DIR`: the role and state of each invite to a run."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnraise.cli import console
from barnraise.core.program import program

if TYPE_CHECKING:
    from barnraise.transport.invite import Token


def invites(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run's folder.", show_default=False)],
    json: Annotated[bool, typer.Option("--json", help="A line of JSON for each.")] = False,
) -> None:
    """List a run's invites: role, uses left, expiry.

    The secrets are not kept, so no invite can be shown again.
    """
    from barnraise.assembly.invites import open_book
    from barnraise.ledger import RunDirectory

    with open_book(RunDirectory.open(run_dir).require_real("invite to")) as book:
        tokens = sorted(book.tokens.values(), key=lambda token: token.expires)
    now = time.time()
    if json:
        for token in tokens:
            told = {"invite": token.id, "role": token.role, "uses": token.uses, "expires": token.expires}
            console.emit_json(told | {"state": _state(token, now)})
        return
    if not tokens:
        console.say(f"no invite was made to {run_dir}; {program()} invite {run_dir} makes one")
        return
    _show(tokens, now)


def _show(tokens: list[Token], now: float) -> None:
    from barnraise.account.chronicle import plain
    from barnraise.cli.columns import columns

    rows = [["invite", "role", "uses left", "expires", "state"]]
    for token in tokens:
        expires = f"{datetime.fromtimestamp(min(token.expires, 2**37)):%Y-%m-%d %H:%M}"
        rows.append([token.id, plain(token.role, 24), f"{token.uses:,}", expires, _state(token, now)])
    for line in columns(rows, "<<><<"):
        console.console().print(line)


def _state(token: Token, now: float) -> str:
    """Return open, or why the invite admits no machine."""
    if token.revoked:
        return "taken back"
    if now >= token.expires:
        return "expired"
    return "open" if token.uses else "used up"
