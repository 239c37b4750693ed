"""The passing on of an invite: shown by the command that makes it, read by the one that takes it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from barnraise.cli import console
from barnraise.core.errors import InviteError
from barnraise.core.program import program

if TYPE_CHECKING:
    from barnraise.ledger import RunDirectory
    from barnraise.transport import Invite

MAX_INVITE = 4096
"""Characters of an invite at most."""


def show(run: RunDirectory, invite: Invite, file: Path, say: Callable[[str], None] = console.note) -> None:
    """Tell how to join, and which options the run asks of a worker.

    The invite itself is in `file`, and on a terminal, which keeps no log.
    """
    from barnraise.config.load import load

    run_file = load(run.run_file)
    options = {
        "--data FILES": run_file.data.kind == "site",
        "--key FILE": run_file.privacy.homomorphic_encryption is not None,
    }
    asked = " and ".join(["this", *(option for option, needed in options.items() if needed)])
    say(f"workers join with {asked}:" if any(options.values()) else "workers join with:")
    say(f"barnraise join '{invite if sys.stderr.isatty() else f'@{file}'}'")
    say(f"to take it back: {program()} revoke {run.path} {invite.token}")


def given(text: str) -> str:
    """Return the invite that `text` is, or names: `@FILE`, or `-` for standard input.

    Other users of this machine may read a command's arguments, so a secret belongs in these or the environment. Raises
    InviteError.
    """
    try:
        if text == "-":
            if sys.stdin.isatty():
                console.note("paste the invite, then press Enter:")
            return sys.stdin.readline(MAX_INVITE)
        if text.startswith("@"):
            with Path(text[1:]).expanduser().open(encoding="utf-8") as file:
                return file.read(MAX_INVITE)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InviteError(f"the invite cannot be read from {text.lstrip('@')}: {reason}") from None
    return text
