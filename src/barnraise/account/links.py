"""What a lab's links carry: in the last seconds for a view of it, in the whole run in `links.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

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
    """The run's links.json; None when it did not run in a lab."""
    path = run.path / FILE
    return json.loads(path.read_text("utf-8")) if path.exists() else None
