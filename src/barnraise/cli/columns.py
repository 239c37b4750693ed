"""Aligned columns for the terminal.

A tenth of the cost of a rich table: the live view draws them twice a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from rich.text import Text

Cell: TypeAlias = str | tuple[str, str]
"""A cell's text, or the text and its style."""


def columns(rows: Sequence[Sequence[Cell]], align: str, *, header: bool = True, gap: int = 2) -> list[Text]:
    """Return a line for each row; `align` has one of "<" and ">" for each column.

    With `header` the first row is dim. A cell is one character a letter wide: untrusted text is shown in ASCII
    (`chronicle.plain`).
    """
    if not rows:
        return []
    texts = [[cell if isinstance(cell, str) else cell[0] for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    made = []
    for number, row in enumerate(rows):
        base = "dim" if header and number == 0 else ""
        line = Text(no_wrap=True, overflow="ellipsis", end="\n")
        for place, (cell, side, width) in enumerate(zip(row, align, widths, strict=True)):
            text, style = (cell, base) if isinstance(cell, str) else cell
            last = place == len(row) - 1
            filled = text.rjust(width) if side == ">" else text if last else text.ljust(width)
            line.append(filled if last else filled + " " * gap, style or None)
        made.append(line)
    return made
