"""Checks of the receivers of alerts that a run file names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from barnraise.config.problems import Problem
from barnraise.config.schema import RunFile
from barnraise.core.errors import InputError

LONGEST_URL = 4096

_ADDRESS = re.compile(r"[^@\s,<>]+@[^@\s,<>]+")
_SERVER = re.compile(r"[^:\s]+(:\d{1,5})?")


def secret_of(path: str, name: str) -> str:
    """Return the content of a file that the key `name` names, without blanks around it. Raises InputError."""
    try:
        return Path(path).expanduser().read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InputError(f"{name} {path} cannot be read: {reason}") from None


def webhook_of(path: str) -> str:
    """Return the URL in a file. Raises InputError."""
    found = secret_of(path, "alerts.webhook_file")
    if not found.startswith(("http://", "https://")) or "\n" in found or len(found) > LONGEST_URL:
        raise InputError(f"alerts.webhook_file {path} must hold one line: a URL that begins with https:// or http://")
    return found


def alert_problems(run_file: RunFile) -> Iterator[Problem]:
    """Yield problems of the section `alerts`: files that cannot be read, addresses that are none."""
    section = run_file.alerts
    try:
        if section.webhook_file is not None:
            webhook_of(section.webhook_file)
        if section.smtp_password_file is not None:
            secret_of(section.smtp_password_file, "alerts.smtp_password_file")
    except InputError as error:
        key = "webhook_file" if "webhook_file" in str(error) else "smtp_password_file"
        yield Problem(("alerts", key), str(error))
    for place, address in enumerate(section.email_to):
        if not _ADDRESS.fullmatch(address):
            yield Problem(("alerts", "email_to", place), f"'{address}' is no address: write it as name@example.org")
    if section.email_from is not None and not _ADDRESS.fullmatch(section.email_from):
        yield Problem(("alerts", "email_from"), f"'{section.email_from}' is no address: write it as name@example.org")
    if not _SERVER.fullmatch(section.smtp):
        yield Problem(("alerts", "smtp"), f"'{section.smtp}' is no mail server: write it as mail.example.org:587")
