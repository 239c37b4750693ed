"""The base class of the parts that the controller's state machine consists of.

A part is one concern: it owns its observations and its settings. It declares the parts that it needs as parameters of
`__init__`, by their types; `assembly.assemble` makes them first. It handles the events and messages that it names, sees
decisions as they are applied, and looks, in order, at the consequences of a change. A part's observations are not on
the ledger and start empty after a restart.
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
"""Steps of a handler: decisions, actions, and events for all parts, each dealt with before the handler continues."""


class TaskHold(NamedTuple):
    """The reason why a node that takes part gets no task, and the end of that.

    `until` is infinite where no time ends the hold but an event, such as a verdict. `until_heard` says that the next
    frame of the node ends it.
    """

    until: float
    reason: str
    until_heard: bool = False


class Context:
    """The context that all parts share: the settings, the folded ledger, the time of the current event."""

    def __init__(self, settings: EngineSettings, state: State, epoch: int) -> None:
        self.settings, self.state, self.epoch, self.now = settings, state, epoch, 0.0

    @property
    def arrival_version(self) -> int:
        """Return the version that a contribution arriving now is compared with.

        The newest published, but a closed synchronous round accepts no further ones.
        """
        closed = self.state.closing is not None and not self.settings.asynchronous
        return self.state.newest.version + closed


class Part:
    """One concern of the controller.

    A subclass overrides the methods that it needs.
    """

    def __init__(self, context: Context) -> None:
        self.context, self.state = context, context.state

    @property
    def now(self) -> float:
        """Return the time of the current event."""
        return self.context.now

    def events(self) -> dict[type[Event], Callable[[Any], Steps]]:
        """Return the handlers of events.

        Several parts may handle one, in their order.
        """
        return {}

    def messages(self) -> dict[type[Message], Callable[[str, Any], Steps]]:
        """Return the handlers of messages from nodes that have greeted: (node, message).

        One part handles a message.
        """
        return {}

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        """Return the handlers of decisions that change its observations, as they are applied."""
        return {}

    def look(self) -> Steps:
        """Handle the consequences of any change."""
        yield from ()

    def expire(self) -> Steps:
        """Handle the passing of time alone."""
        yield from ()

    def deadline(self) -> float:
        """Return when the next `expire` is due, in the machine's time; infinite when there is none."""
        return math.inf

    def hold(self, node: NodeState, now: float) -> TaskHold | None:
        """Return why a node that takes part gets no task at `now`, as far as this part knows.

        None when it may have one. It changes nothing. `Fleet.available` asks the parts that `machine.HOLDS` lists.
        """
        return None

    def excuse(self, seconds: float) -> None:
        """Extend deadlines by `seconds` in which no node could be heard, by no fault of theirs."""

    def forget(self, node: str) -> None:
        """Drop what was observed of the session of a node that has left, or starts over."""
