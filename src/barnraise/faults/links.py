"""Links as a target of faults: the effects of faults on messages or packets, wherever links are emulated."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple

from barnraise.config.faults import Corrupt, Duplicate, OneWayLoss, Partition, Reorder
from barnraise.faults.target import FaultTarget


class Fate(Enum):
    """The fate of a message or a packet, the worst first."""

    LOST = "lost"  # a message with its connection
    CORRUPT = "corrupt"  # it arrives, but is unreadable
    LATE = "late"  # others overtake it
    TWICE = "twice"


class Effect(NamedTuple):
    """A fault in force: a `share` of the messages or packets that go one `way` ("": both ways) has this fate."""

    fate: Fate
    way: str
    share: float
    rng: random.Random


class LinkTarget(FaultTarget):
    """Plays faults on the links of nodes, which have the nodes' names."""

    @abstractmethod
    def nodes(self) -> Sequence[str]:
        """Return the names of all nodes that have a link now."""

    @abstractmethod
    def effects(self, node: str) -> list[Effect]:
        """Return the list of effects in force on a node's link, to be changed in place."""

    def changed(self, node: str) -> None:
        """Note that the effects on a node's link have changed."""

    def partition(self, fault: Partition, rng: random.Random) -> None:
        self.affect(fault.nodes, fault.seconds, Effect(Fate.LOST, "", 1.0, rng))

    def one_way_loss(self, fault: OneWayLoss, rng: random.Random) -> None:
        self.affect(fault.nodes, fault.seconds, Effect(Fate.LOST, fault.way, fault.share, rng))

    def corrupt(self, fault: Corrupt, rng: random.Random) -> None:
        self.affect(fault.nodes, fault.seconds, Effect(Fate.CORRUPT, "", fault.share, rng))

    def duplicate(self, fault: Duplicate, rng: random.Random) -> None:
        self.affect(fault.nodes, fault.seconds, Effect(Fate.TWICE, "", fault.share, rng))

    def reorder(self, fault: Reorder, rng: random.Random) -> None:
        self.affect(fault.nodes, fault.seconds, Effect(Fate.LATE, "", fault.share, rng))

    def affect(self, nodes: Sequence[str], seconds: float, effect: Effect) -> None:
        """Put `effect` in force on the links of these nodes, or of all where there are none, for so many seconds."""
        nodes = nodes or self.nodes()
        for node in nodes:
            self.effects(node).append(effect)
            self.changed(node)
        self.after(seconds, partial(self._heal, nodes, effect))

    def _heal(self, nodes: Sequence[str], effect: Effect) -> None:
        for node in nodes:
            self.effects(node).remove(effect)
            self.changed(node)
