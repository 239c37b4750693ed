"""What the controller has observed since its process started, and may forget with it. None of it is on the ledger."""

from __future__ import annotations

import math

from barnraise.controller.allowance import Allowance
from barnraise.controller.custody import Custody
from barnraise.controller.events import InterruptRequested
from barnraise.controller.state import NodeState
from barnraise.core.types import LinkReport, Update
from barnraise.matching.base import TaskView


class Speeds:
    """The fleet's figures as `speeds.refresh` found them last. Rates are tokens a second."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens  # of a usual task
        self.at, self.time = -1, -math.inf  # the news and the time it was found at
        self.count = 0  # how often by now
        self.counted: list[NodeState] = []  # on whose next contributions the others count
        self.median = self.total = 0.0  # of their rates
        self.lowest = self.highest = 0.0  # within which a claim is believed
        self.turnaround = 0.0  # median seconds from a task to its contribution
        self.usual_staleness = 0.0  # of the median node
        self.num_norms = 0  # nodes whose updates' norms are known
        self.norm = self.travel = 0.0  # those of the median node


class Soft:
    """What was observed since this process started, and may be forgotten with it. A usual task has `tokens`."""

    def __init__(self, tokens: int) -> None:
        self.seen: dict[str, float] = {}  # nodes that said Hello to this process, the longest silent first
        self.awaited: dict[str, None] = {}  # nodes that were live before it started and have not said Hello yet
        self.awaited_until = math.inf
        self.lease = self.lease_told = 0.0  # seconds of silence allowed, and when the fleet was last told so much
        self.leases: list[tuple[float, str]] = []  # a heap: when to look next whether a node's lease has ended
        self.leased: set[str] = set()  # the nodes in it
        self.heartbeat = 0.0  # seconds between frames that the fleet was told of
        self.silent: dict[str, float] = {}  # when nodes were last heard whose lease then ended
        self.lateness: dict[str, float] = {}  # seconds by which a node's frames were late, the worst slowly forgotten
        self.joins = Allowance(burst=20.0, rate=0.1)  # rows that a node's greetings may cost
        self.insane: dict[str, int] = {}  # updates in a row that could not be taken, by node
        self.wasted = Allowance(burst=20.0, rate=0.5)  # tasks that a node may give back, or get refused
        self.asking: dict[str, int] = {}  # node -> version it has
        self.ask_again = math.inf  # when the next of them may ask whose work came to nothing too often
        self.links: dict[str, LinkReport] = {}
        self.resting: dict[str, int] = {}  # those that wait for a version (without overlap)
        self.watching: dict[str, int] = {}  # nodes that train and want to know of a newer version than they have
        self.told: dict[str, int] = {}  # the version that such a node has once what was sent has arrived
        self.fresh: list[TaskView] = []  # as many as were ever offered at once
        self.custody = Custody()
        self.evaluating = False
        self.checkpointing = False
        self.interrupted: InterruptRequested | None = None
        self.updates: dict[int, Update] = {}  # version -> the delta that leads to it, while worth sending
        self.update_bytes = 0
        self.news = 0  # joins, departures and verdicts so far: each changes a rate or who is alive
        self.now = 0.0  # the time of the event in hand
        self.speeds = Speeds(tokens)
        self.round_seconds, self.paced_at = 0.0, 0  # of a round at the fleet's pace; the count of the speeds behind it
        self.automatic_size, self.sized_at = 1, 0  # K if enough nodes live, likewise
        self.patience = math.inf  # seconds for which an open buffer waits for K nodes
        self.advised = False  # that a pinned K is too small
