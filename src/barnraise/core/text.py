"""Untrusted text from peers, made safe for a terminal or a log."""

from __future__ import annotations

from unicodedata import category

LONGEST = 160
"""Characters shown by default."""


LONGEST_NAME = 64
"""Characters of a node's name, the limit of valid names."""

LONGEST_SENTENCE = 1000
"""Characters of a sentence about an event, which may list names."""


MOST_MARKS = 3
"""Accents and other marks on one letter: scripts in use need no more, and stacks of them cover other lines."""

INVISIBLE = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
    + "".join(map(chr, (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)
"""Letters and marks without a picture that Unicode counts as printable: fillers, blanks, variation selectors."""


def visible(text: str) -> str:
    """Return `text` with its lines, without control characters and characters that change the writing direction.

    For text made of many parts as it is printed. It does not shorten; `printable` does that for quoted text.

    >>> visible("fine\\n\\x1b[2Jnot\\u202e so\\n")
    'fine\\n�[2Jnot� so\\n'
    """
    text = _seen(text)
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
    shown = "".join(letter if letter.isprintable() else " " for letter in _seen(text[: 4 * longest]))
    shown = " ".join(shown.split())
    return shortened(shown, longest)


def shortened(text: str, longest: int) -> str:
    """Return `text`, or its beginning and dots where it is longer than that.

    >>> shortened("a long story", 8)
    'a lon...'
    """
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _seen(text: str) -> str:
    """Return `text` without invisible letters, and without more than MOST_MARKS marks in a row."""
    if text.isascii():
        return text
    kept, marks = [], 0
    for letter in text:
        if letter in INVISIBLE:
            continue
        marks = marks + 1 if category(letter) in ("Mn", "Me") else 0
        if marks <= MOST_MARKS:
            kept.append(letter)
    return "".join(kept)
