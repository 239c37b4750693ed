"""The traffic on a lab's links: in the last seconds for a view of it, in the whole run in `links.json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from barnraise.core.decoding import MALFORMED
from barnraise.ledger import RunDirectory

FILE = "links.json"


@dataclass(frozen=True)
class LinkUse:
    """Bytes a second that a worker's link carried up and down, and its rates (None: no limit)."""

    name: str
    up: float
    down: float
    up_rate: float | None
    down_rate: float | None


def recorded(run: RunDirectory) -> dict[str, Any] | None:
    """Return the run's links.json; None when it did not run in a lab, or the file is damaged."""
    path = run.path / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, *MALFORMED):
        return None
