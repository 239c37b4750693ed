"""The records of the nodes: the controller's observations of each since it started.

Each part of the fleet writes its own small record of a node. None of it is on the ledger: after a restart all records
are empty. The ledger's facts about a node are `state.state.NodeState`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from barnraise.controller.fleet.failure_detector import FailureDetector
from barnraise.controller.state.part import Context, Part
from barnraise.core.types import LinkReport
from barnraise.ledger.decisions import Decision, NodeChanged

UNKNOWN_LINK = LinkReport()
"""The report of a link of which nothing is known."""

MOST_GONE = 4096
"""Nodes that are gone whose records are kept, the newest: a node that comes back is known again."""


class Frames(msgspec.Struct):
    """The times of a node's frames (`leases`), in seconds of the controller's clock.

    `seen` is that of the newest, while the node takes part. `silent` is that of the last one of a node whose lease then
    ended, NaN otherwise. `excused` are seconds of its silence in which the controller received no frame at all.
    `next_look` is when its lease is checked next, NaN while no check is planned. The detector outlives departures,
    since they do not change the link.
    """

    detector: FailureDetector
    seen: float = 0.0
    silent: float = math.nan
    excused: float = 0.0
    next_look: float = math.nan


class SessionRecord(msgspec.Struct):
    """The facts about the node's present session, which are dropped with it.

    `kinds` are the kinds of tasks that it can do, and `lent_until` is when its owner wants it back, both by its claim.
    `passed_over` says that it got no work because it was silent, and may get some at its next frame. `told` is the
    version that it has once the sent updates have arrived. `beaten_in` is the version in whose round another node
    submitted the same work first. `hold_noted` is when a hold of the node was put on the ledger, and until when that
    one lasts.
    """

    kinds: frozenset[str] = frozenset()
    lent_until: float = math.inf
    passed_over: bool = False
    told: int = -1
    beaten_in: int = -1
    hold_noted: tuple[float, float] = (-math.inf, 0.0)


class Returns(msgspec.Struct):
    """The losses and returns of a node (`backoff`).

    `count` decays with time and is as of `at`. `session` is 0 while the node is absent. `useful` says whether it has
    submitted a result since it came.
    """

    count: float = 0.0
    at: float = 0.0
    rests_until: float = 0.0
    session: int = 0
    lost: bool = False
    dismissed: bool = False
    useful: bool = False


class MemoryRecord(msgspec.Struct):
    """How much memory a node's tasks were seen to need (`memory_limits`), in bytes.

    The node gets no rows that need `below` or more (0: no limit was found). `over` is what its process holds beyond
    what the node offers, as it says. `met` is the largest need that it has met; `broke` are the smallest needs on which
    it broke, last at `broke_at`. `lost` is the session that ended without a word, and the need of its work then.
    """

    below: int = 0
    over: int = 0
    met: int = 0
    broke: list[int] = []
    broke_at: float = math.nan
    lost: tuple[int, int] | None = None


class ShardRecord(msgspec.Struct):
    """The shards that the node was given rows of: in the order in which it last was, and as a set."""

    newest: dict[int, None] = {}
    held: frozenset[int] = frozenset()


class WorkPace(msgspec.Struct):
    """The time of the node's newest contribution, and until when a machine of median speed would work on it.

    Used by `probation`.
    """

    came: float = math.nan
    worked_until: float = 0.0


class ConductRecord(msgspec.Struct):
    """The offences of a node, its consecutive unacceptable updates, and its returned audits.

    Used by `offences` and `auditing`.
    """

    offences: int = 0
    unusable: int = 0
    declined: int = 0


class NodeRecord(msgspec.Struct):
    """Everything that was observed of the node `id`.

    `link` is the link as the node reports it, and `uplink` the rate of its uploads as observed, in bytes a second (0:
    none was seen). `sampled_at` is when its figures were last put on the ledger.
    """

    id: str
    frames: Frames
    session: SessionRecord = msgspec.field(default_factory=SessionRecord)
    link: LinkReport | None = None
    uplink: float = 0.0
    shards: ShardRecord = msgspec.field(default_factory=ShardRecord)
    returns: Returns = msgspec.field(default_factory=Returns)
    memory: MemoryRecord = msgspec.field(default_factory=MemoryRecord)
    pace: WorkPace = msgspec.field(default_factory=WorkPace)
    conduct: ConductRecord = msgspec.field(default_factory=ConductRecord)
    sampled_at: float = -math.inf


class NodeRecords(Part):
    """Creates and drops the records of nodes.

    `present` are those of the nodes that have greeted this process, the longest silent first. The record of a node that
    left stays for its return, while fewer than MOST_GONE nodes have left since.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.present: dict[str, NodeRecord] = {}
        self._records: dict[str, NodeRecord] = {}
        self._gone: dict[str, None] = {}  # nodes with a record that take no part, the longest gone first

    def __getitem__(self, node: str) -> NodeRecord:
        """The record of an enrolled node, made as it is first asked for."""
        try:
            return self._records[node]
        except KeyError:
            record = NodeRecord(node, Frames(FailureDetector(self.context.settings.leases.longest)))
            self._records[node] = record
            if not self.state.nodes[node].live:
                self._leave(node)
            return record

    def find(self, node: str) -> NodeRecord | None:
        """The record of a node, if there is one."""
        return self._records.get(node)

    def __len__(self) -> int:
        return len(self._records)

    def forget(self, node: str) -> None:
        self.present.pop(node, None)
        if node in self._records:
            self._records[node].session = SessionRecord()

    def _changed(self, d: NodeChanged) -> None:
        if d.change.gone:
            self._leave(d.node)
        elif self.state.nodes[d.node].live:
            self._gone.pop(d.node, None)

    def _leave(self, node: str) -> None:
        if node in self._records:
            self._gone[node] = None
        while len(self._gone) > MOST_GONE:
            oldest = next(iter(self._gone))
            del self._gone[oldest], self._records[oldest]

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {NodeChanged: self._changed}
