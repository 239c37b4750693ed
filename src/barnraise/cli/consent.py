"""The consent of an owner whose files stay with a machine: what leaves it is shown, and asked for once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args, get_type_hints

import msgspec
import typer

from barnraise.cli import console
from barnraise.core.errors import InputError
from barnraise.core.sites import DELTA

if TYPE_CHECKING:
    from barnraise.core.sites import OwnFiles, PrivacyLimit, Releases


def own_files(
    files: Sequence[str], releases: Sequence[str], epsilon: float | None = None, delta: float = DELTA
) -> OwnFiles | None:
    """Return the owner's files, releases and limit as given on the command line; None without files.

    Raises InputError for a release that does not exist, and a limit that is none.
    """
    from barnraise.core.sites import OwnFiles

    limit = limit_of(epsilon, delta)
    if not files:
        for name, given in (("--release", releases), ("--epsilon", limit)):
            if given:
                raise InputError(f"{name} counts only with --data, which names your own files; leave it out")
        return None
    return OwnFiles(tuple(files), releases_of(releases), limit=limit)


def limit_of(epsilon: float | None, delta: float) -> PrivacyLimit | None:
    """Return the owner's limit of differential privacy; InputError where it is none."""
    from barnraise.core.sites import MOST_DELTA, MOST_EPSILON, PrivacyLimit

    if epsilon is None:
        return None
    for name, value, most in (("--epsilon", epsilon, MOST_EPSILON), ("--delta", delta, MOST_DELTA)):
        if not 0.0 < value <= most:
            raise InputError(f"{name} is {value:g}, but it must be above 0, and {most:g} at most")
    return PrivacyLimit(epsilon, delta)


def releases_of(given: Sequence[str]) -> Releases:
    """Return releases from texts as `loss=off`; InputError for an unknown name or setting."""
    from barnraise.core.sites import Releases

    hints, found = get_type_hints(Releases), dict[str, str]()
    for text in given:
        name, _, setting = text.partition("=")
        if name not in hints or setting not in get_args(hints[name]):
            known = "; ".join(f"{key}={'|'.join(get_args(hint))}" for key, hint in hints.items())
            raise InputError(f"--release {text} is none; known: {known}")
        found[name] = setting
    return msgspec.convert(found, Releases)


def ask(own: OwnFiles, *, yes: bool) -> None:
    """Show what leaves this machine, and have the owner agree; InputError without a terminal, or without consent."""
    console.note(shown(own))
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError("joining with --data needs your consent: run it on a terminal, or give --yes")
    if not typer.confirm("Join, and send this?", err=True):
        raise InputError("no consent was given: nothing was sent")


def shown(own: OwnFiles) -> str:
    """Return the table of all that leaves this machine."""
    from barnraise.worker.releases import SENT

    lines = [f"Rows are made here of {', '.join(own.files)}, and stay here. This machine sends:"]
    for item in SENT:
        setting = getattr(own.releases, item.release) if item.release else "exact"
        switch = f" ({item.release}: {setting})" if item.release else ""
        lines.append(f"  {'- ' if setting != 'off' else 'not '}{item.what}, {item.when}{switch}")
    if own.limit is None:
        lines.append("An update can give away rows that it was trained on: see the guide on data that stay at home.")
    else:
        lines.append(
            "Updates have noise of differential privacy, and this machine leaves before they spend more than epsilon "
            f"{own.limit.epsilon:g} at delta {own.limit.delta:g}."
        )
    return "\n".join(lines)
