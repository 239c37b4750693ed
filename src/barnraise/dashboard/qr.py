"""QR codes as images that a page can show."""

from __future__ import annotations

from functools import lru_cache

import segno

from barnraise.core.errors import InputError

LONGEST = 1500
"""Characters of a code that cameras still read."""


@lru_cache(32)
def drawn(text: str) -> str:
    """Return a QR code of `text` as the address of an SVG image. Raises InputError."""
    if not 0 < len(text) <= LONGEST:
        raise InputError(f"a QR code has 1 to {LONGEST:,} characters, this text has {len(text):,}")
    made: str = segno.make(text, error="l", micro=False).svg_data_uri(scale=4, border=4, dark="#000", light="#fff")
    return made
