"""The forms in which a command shows its work as it goes: a live picture, plain lines, or lines of JSON."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from barnraise.cli import console
from barnraise.core.errors import InputError, UnknownNameError
from barnraise.core.units import duration_text

LIVE, PLAIN, JSON = "live", "plain", "json"
FORMS = (LIVE, PLAIN, JSON)

LogForm = Annotated[
    str,
    typer.Option(
        "--log", metavar="FORM", help="live, plain or json; live on a terminal, else plain.", show_default=False
    ),
]
Plain = Annotated[bool, typer.Option("--plain", help="The same as --log plain.")]

LONGEST_SILENCE = 30.0
"""Seconds after which a command says what it still does."""


def form_of(log: str, plain: bool = False) -> str:
    """Return the form that the two options ask for: live on a terminal that can draw it, plain elsewhere.

    Raises UnknownNameError, and InputError where they disagree.
    """
    if log and log not in FORMS:
        raise UnknownNameError("form of log", log, FORMS)
    if plain and log not in ("", PLAIN):
        raise InputError(f"--plain is the same as --log plain, but --log {log} is given: leave one of them out")
    capable = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return PLAIN if plain else log or (LIVE if capable else PLAIN)


def emit(event: str, fields: dict[str, Any]) -> None:
    """Print an object on one line of standard output: when, which `event`, and its fields."""
    console.emit_json({"time": round(time.time(), 3), "event": event} | fields)


@contextmanager
def kept_told(say: Callable[[str], None], what: str, every: float = LONGEST_SILENCE) -> Iterator[None]:
    """Tell after `every` seconds that this command is still doing `what`, from a thread, while the context is open."""
    began = time.monotonic()
    with repeated(lambda: say(f"still {what}, after {duration_text(time.monotonic() - began)}"), every):
        yield


@contextmanager
def repeated(tell: Callable[[], None], every: float) -> Iterator[None]:
    """Call a function each `every` seconds, from a thread, while the context is open."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every):
            tell()

    teller = threading.Thread(target=run, name="teller", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
