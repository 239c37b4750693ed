"""What decoding raises for bytes that are not of their format, whatever is wrong with them.

Bytes on a disk can be damaged anywhere, so every place that decodes a file or a row of the ledger catches all of these.
"""

from __future__ import annotations

import msgspec

MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Not the format or not the type; a string that is not UTF-8; nested more deeply than this process can follow."""
