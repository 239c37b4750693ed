"""What a worker is started with, and what it ends with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from barnraise.transport import Invite, Keys
from barnraise.transport.links.link import Link

REASON = 1000
"""Letters of a reason that are told."""


@dataclass(frozen=True)
class WorkerOptions:
    """Where the controller is, who this worker is, and what it works with.

    `uri` is one address, or two with a space between, the second for a network that does not let the first through.
    With an `invite` the worker enrols first; without one its key is on the ledger already (a local worker).
    `slowdown` s makes each second of training take s + 1, and `link` is emulated (trials). `cache` holds token shards
    between runs, `moments` is the file of the optimizer's, None to keep none.
    """

    uri: str
    server_key: str
    name: str
    keys: Keys = field(repr=False)
    cache: Path
    moments: Path | None = None
    invite: Invite | None = field(default=None, repr=False)
    device: str = "cpu"
    threads: int = 1
    slowdown: float = 0.0
    link: Link | None = None


@dataclass(frozen=True)
class Outcome:
    """Why a worker stopped; `final` when nothing is left to do (else the run may go on without it)."""

    reason: str
    final: bool
