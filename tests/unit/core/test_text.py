"""Text that is made safe: letters that are not seen or act on a terminal are not shown, and others stay."""

from __future__ import annotations

import pytest

from barnraise.core.text import printable, visible

from ...hostile import BIDI, ESCAPES, EVIL, STACKED, THAI, UNSEEN, require_harmless


@pytest.mark.parametrize(
    "letter", [*ESCAPES, *BIDI, *UNSEEN, "\ud800", "\u2028", "\x85", "\uffff", STACKED, THAI, EVIL], ids=ascii
)
def test_a_letter_that_is_not_seen_is_not_shown(letter: str) -> None:
    for text in (letter, f"a{letter}b", letter * 1000):
        shown = printable(text)
        shown.encode()
        require_harmless(shown)
        require_harmless(visible(text), 1_000_000)


def test_a_text_keeps_its_accents() -> None:
    assert printable("Việt Nam, cafe\u0301, ŝ, שלום, 日本語, 😀") == "Việt Nam, cafe\u0301, ŝ, שלום, 日本語, 😀"
    assert visible("Việt Nam\n日本語 ▁▂▃") == "Việt Nam\n日本語 ▁▂▃"
