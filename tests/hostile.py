"""Text that attacks its readers: terminals, browsers, Markdown, Prometheus, spreadsheets, and people's eyes."""

from __future__ import annotations

import unicodedata

ESCAPES = "\x1b[2J\x1b]0;title\x07\x1b]8;;http://evil\x1b\\\x9b31m\r\b\x00\x7f"
BIDI = "\u202e\u2066\u200f\u061c\u2069"
THAI = "\u0e01" + "\u0e47" * 50
UNSEEN = "\u200b\u200d\ufeff\u2060\u00ad\u3164\u034f\ufe0f\u2800\U000e0041"
STACKED = "Z" + "\u0301" * 50
MARKUP = (
    "<script>alert(1)</script><img src=x onerror=alert(1)> &lt; [red]x[/red] [a](javascript:alert(1)) | `` ``` # * _"
)
BREAKS = '\n\n# Title\n| a | b |\n"} 1\nbarnraise_forged{a="\\"} 7\n\u2028\u2029\x85\n'
FORMULA = "=cmd|' /C calc'!A0 $\\frac{$ %s {0} {node} \\n"
EVIL = FORMULA + MARKUP + ESCAPES + BIDI + UNSEEN + STACKED + THAI + BREAKS
LARGE = EVIL + "A" * 1_000_000
LONGEST_LINE = 2000
"""Characters of a line that a terminal shows."""


def require_harmless(text: str, longest: int = LONGEST_LINE) -> None:
    """Fail for characters that a reader does not see, or that act on a terminal, and for endless lines."""
    for line_ in text.split("\n"):
        bad = {letter for letter in line_ if not letter.isprintable() or letter in UNSEEN}
        assert not bad, (bad, line_[:200])
        assert len(line_) <= longest, (len(line_), line_[:200])
        marks = "".join("m" if unicodedata.category(letter) in ("Mn", "Me") else "." for letter in line_)
        assert "mmmm" not in marks, line_[:200]
