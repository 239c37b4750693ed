"""What the controller has observed since its process started, and may forget with it. None of it is on the ledger."""

from __future__ import annotations

import math

from barnraise.controller.custody import Custody
from barnraise.core.types import LinkReport, Update
from barnraise.matching.base import TaskView


class Soft:
    """What was observed since this process started, and may be forgotten with it."""

    def __init__(self) -> None:
        self.seen: dict[str, float] = {}  # nodes that said Hello to this process, the longest silent first
        self.awaited: dict[str, None] = {}  # nodes that were live before it started and have not said Hello yet
        self.awaited_until = math.inf
        self.lease = self.lease_told = 0.0  # seconds of silence allowed, and when the fleet was last told so much
        self.asking: dict[str, int] = {}  # node -> version it has
        self.links: dict[str, LinkReport] = {}
        self.resting: dict[str, int] = {}  # those that wait for a version (without overlap)
        self.watching: dict[str, int] = {}  # nodes that train and want to know of a newer version than they have
        self.told: dict[str, int] = {}  # the version that such a node has once what was sent has arrived
        self.fresh: list[TaskView] = []  # as many as were ever offered at once
        self.custody = Custody()
        self.evaluating = False
        self.checkpointing = False
        self.updates: dict[int, Update] = {}  # version -> the delta that leads to it, while worth sending
        self.update_bytes = 0
        self.news = 0  # joins, departures and verdicts so far: each changes a rate or who is alive
        self.median_rate = self.total_rate = 0.0  # over the living
        self.round_seconds = 0.0  # of a round at the fleet's pace; 0 while no rate is known
        self.usual_staleness = 0.0  # of the median node
        self.rates_at = self.paced_at = -1  # news when the rates and the round were computed
        self.wanted_size, self.wanted_at = 1, -1  # K if enough nodes live, likewise
        self.advised = False  # that a pinned K is too small
