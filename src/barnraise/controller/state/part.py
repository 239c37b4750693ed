"""The base class of the parts that the controller's state machine consists of.

A part is one concern: it owns what it has observed and its own settings. It declares the parts that it needs as
parameters of `__init__`, by their types; `assembly.assemble` makes them first. It handles the events and messages that
it names, sees decisions as they are applied, and looks, in its turn, at what follows from a change. What a part has
observed is not on the ledger and starts empty after a restart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from barnraise.controller.state.actions import Action
from barnraise.controller.state.events import Event
from barnraise.controller.state.settings import EngineSettings
from barnraise.controller.state.state import NodeState, State
from barnraise.ledger.decisions import Decision
from barnraise.wire.messages import Message

Steps: TypeAlias = Iterator[Decision | Action | Event]
"""What a handler yields: decisions, actions, and events for all parts, each dealt with before the handler continues."""


class TaskHold(NamedTuple):
    """Why a node that takes part gets no task, and until when.

    `until` is infinite where no time ends the hold but an event, such as a verdict. `until_heard` says that the next
    frame of the node ends it.
    """

    until: float
    reason: str
    until_heard: bool = False


class Context:
    """What all parts share: the settings, the folded ledger, the time of the event in hand."""

    def __init__(self, settings: EngineSettings, state: State, epoch: int) -> None:
        self.settings, self.state, self.epoch, self.now = settings, state, epoch, 0.0

    @property
    def arrival_version(self) -> int:
        """The version that a contribution arriving now is compared with: the newest published, but a synchronous round
        that is closed takes no more."""
        closed = self.state.closing is not None and not self.settings.asynchronous
        return self.state.newest.version + closed


class Part:
    """One concern of the controller. A subclass overrides what concerns it."""

    def __init__(self, context: Context) -> None:
        self.context, self.state = context, context.state

    @property
    def now(self) -> float:
        """The time of the event in hand."""
        return self.context.now

    def events(self) -> dict[type[Event], Callable[[Any], Steps]]:
        """The events that it handles. Several parts may handle one, in their order."""
        return {}

    def messages(self) -> dict[type[Message], Callable[[str, Any], Steps]]:
        """The messages that it handles, of nodes that have greeted: (node, message). One part handles a message."""
        return {}

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        """The decisions that change what it has observed, as they are applied."""
        return {}

    def look(self) -> Steps:
        """What follows from any change."""
        yield from ()

    def expire(self) -> Steps:
        """What follows from the time alone."""
        yield from ()

    def deadline(self) -> float:
        """When that may be, or when to look again, in the machine's time; infinite when nothing is due."""
        return math.inf

    def hold(self, node: NodeState, now: float) -> TaskHold | None:
        """Why a node that takes part gets no task at `now`, as far as this part knows; None when it may have one. It
        changes nothing. `Fleet.available` asks the parts that `machine.HOLDS` lists."""
        return None

    def excuse(self, seconds: float) -> None:
        """For so long nobody could be heard, and nobody's fault was it."""

    def forget(self, node: str) -> None:
        """The node has left, or starts over: drop what was observed of its session."""
