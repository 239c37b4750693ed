"""Text that came from somebody else, made fit for a terminal or a log."""

from __future__ import annotations

LONGEST = 160
"""Characters that are shown of it where nothing else is said."""


LONGEST_NAME = 64
"""Of a node's name, which has no more where it is one."""


def visible(text: str) -> str:
    """`text` in its lines, without anything that a terminal would obey or that turns a line around: for what is put
    together of many parts, as it is written out. It cuts nothing, and whoever quotes others does that (`printable`).

    >>> visible("fine\\n\\x1b[2Jnot\\u202e so\\n")
    'fine\\n\ufffd[2Jnot\ufffd so\\n'
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter == "\n" else _STANDS_FOR.get(letter, "\ufffd") for letter in text
    )


_STANDS_FOR = {"\t": "    ", "\r": "", "\u00a0": " "}


def printable(text: str, longest: int = LONGEST) -> str:
    """`text` on one line, short, without anything that a terminal would obey or that turns the line around.

    For whatever the other side said, wherever it is shown: reasons, names, errors that quote either.

    >>> printable("bye\\x1b]52;c;Y3VybA==\\x07\\u202e\\n now")
    'bye ]52;c;Y3VybA== now'
    """
    shown = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * longest])
    shown = " ".join(shown.split())
    return shown if len(shown) <= longest else f"{shown[: longest - 3]}..."
