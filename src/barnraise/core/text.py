"""Text that came from somebody else, made fit for a terminal or a log."""

from __future__ import annotations

LONGEST = 160
"""Characters that are shown of it where nothing else is said."""


def printable(text: str, longest: int = LONGEST) -> str:
    """`text` on one line, short, without anything that a terminal would obey or that turns the line around.

    For whatever the other side said, wherever it is shown: reasons, names, errors that quote either.

    >>> printable("bye\\x1b]52;c;Y3VybA==\\x07\\u202e\\n now")
    'bye ]52;c;Y3VybA== now'
    """
    shown = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * longest])
    shown = " ".join(shown.split())
    return shown if len(shown) <= longest else f"{shown[: longest - 3]}..."
