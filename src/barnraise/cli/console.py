"""The output of the commands: results on stdout, everything else on stderr; colours only on a terminal.

Control characters in a text have no effect.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

from barnraise.core.text import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


def say(text: str = "") -> None:
    """Print a line of the command's result."""
    _write(sys.stdout, text)


def show(lines: Iterable[Text]) -> None:
    """Print the styled lines of a result, each in full, however narrow the terminal is."""
    screen = console()
    for line in lines:
        screen.print(line)


def emit_json(value: Any) -> None:
    """Print one line of JSON: the result for a program to read.

    NaN and infinities become null, as JSON has none.
    """
    _write(sys.stdout, json.dumps(_finite(value), allow_nan=False))


def note(text: str) -> None:
    """Print a remark beside the result."""
    _write(sys.stderr, text)


def warn(text: str) -> None:
    """Print a warning: it works, but probably not as intended."""
    _labelled("warning", "yellow", text)


def fail(text: str) -> None:
    """Print why the command ends without a result."""
    _labelled("error", "bold red", text)


def console(stream: TextIO | None = None) -> Console:
    """Return a rich console for live views and tables on `stream` (stdout); plain text where that is no terminal."""
    from barnraise.cli.screen import Screen

    return Screen(file=stream or sys.stdout, soft_wrap=True)


def _labelled(label: str, style: str, text: str) -> None:
    if not sys.stderr.isatty():
        _write(sys.stderr, f"{label}: {text}")
        return
    from rich.text import Text

    console(sys.stderr).print(Text.assemble((f"{label}: ", style), text))


def _write(stream: TextIO, text: str) -> None:
    """Print, and ignore a closed stream (`| head`, a terminal that was closed): the command continues.

    A line of standard error may be lost while its disk is full; a result that cannot be written raises OSError.
    """
    try:
        stream.write(f"{visible(text)}\n")
        stream.flush()
    except OSError as error:
        if stream is sys.stderr and error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            return
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
