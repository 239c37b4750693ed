"""Markdown of reports: tables, blocks of text, and text without a meaning in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from barnraise.core.text import printable, shortened, visible

LONGEST_BLOCK = 100_000
"""Characters of a block of text."""


def table(header: Sequence[str], rows: Iterable[Sequence[str]], right: int = 0) -> Iterator[str]:
    """Yield a Markdown table; its last `right` columns hold figures."""
    yield f"| {' | '.join(header)} |"
    yield f"|{'|'.join('---:' if place >= len(header) - right else '---' for place in range(len(header)))}|"
    for row in rows:
        yield f"| {' | '.join(map(markdown, row))} |"


def fenced(text: str, language: str = "") -> Iterator[str]:
    """Yield `text`, but for what is invisible and too long, in a block that it cannot end."""
    text = shortened(text, LONGEST_BLOCK)
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}{language}"
    yield visible(text)
    yield fence


def markdown(text: str) -> str:
    """Return `text` on one line and without a meaning in Markdown or HTML."""
    escaped = printable(text, 400).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{letter}" if letter in "\\`*_[]|#" else letter for letter in escaped)
