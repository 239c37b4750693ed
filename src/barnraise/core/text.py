"""Untrusted text from peers, made safe for a terminal or a log."""

from __future__ import annotations

LONGEST = 160
"""Characters shown by default."""


LONGEST_NAME = 64
"""Characters of a node's name, the limit of valid names."""


def visible(text: str) -> str:
    """Return `text` with its lines, without control characters and characters that change the writing direction.

    For text made of many parts as it is printed. It does not shorten; `printable` does that for quoted text.

    >>> visible("fine\\n\\x1b[2Jnot\\u202e so\\n")
    'fine\\n�[2Jnot� so\\n'
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter == "\n" else _STANDS_FOR.get(letter, "\ufffd") for letter in text
    )


_STANDS_FOR = {"\t": "    ", "\r": "", "\u00a0": " "}


def printable(text: str, longest: int = LONGEST) -> str:
    """Return `text` on one short line, without control characters and characters that change the writing direction.

    For everything a peer said, wherever it is shown: reasons, names, errors that quote either.

    >>> printable("bye\\x1b]52;c;Y3VybA==\\x07\\u202e\\n now")
    'bye ]52;c;Y3VybA== now'
    """
    shown = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * longest])
    shown = " ".join(shown.split())
    return shown if len(shown) <= longest else f"{shown[: longest - 3]}..."
