"""Exceptions that decoding raises for malformed bytes.

Bytes on a disk can be damaged anywhere, so each place that decodes a file or a ledger row catches all of these.
"""

from __future__ import annotations

import msgspec

MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The bytes are not of the format or the type; a string is not UTF-8; the nesting is deeper than the stack allows."""
