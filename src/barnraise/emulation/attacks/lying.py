"""A worker that lies in its messages and timing: its state machine, with an attack between it and the link.

It is the same machine in a live worker and in a simulated one, and imports no torch: it acts where work is only costed,
too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from barnraise.core.types import Contribution, NodeProfile, Train
from barnraise.emulation.conduct import Conduct
from barnraise.wire.messages import Assign, Decline, Message, Offer, RequestTask
from barnraise.worker import actions as wa
from barnraise.worker.events import Event, Received, Tick
from barnraise.worker.machine import Worker

from .base import HONEST, Attack
from .catalog import create

LOOKS = 1.0
"""Seconds between two checks of the results that it holds back."""

IDLE = 2.0
"""Seconds without a task after which it submits the results that it holds back."""

REASON = "I would rather not"


class LyingWorker(Worker):
    """One process of `node`, which attacks as `attack` does."""

    def __init__(self, attack: Attack, node: str, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.attack, self.node = attack, node
        self.acting: dict[int, Attack] = {}  # by assignment
        self._bounds: dict[int, tuple[int, int]] = {}  # base and staleness bound of assignments
        self._held: dict[int, float] = {}  # assignments whose results are held back, since when
        self._last: Message | None = None  # the message that it repeats
        self._flood_at = self._look_at = self._idle_since = math.inf

    @property
    def deadline(self) -> float:
        return min(super().deadline, self._flood_at, self._look_at) if not self.quit else math.inf

    def start(self, now: float) -> list[wa.Action]:
        return [lied for action in super().start(now) for lied in self._lied(action, now)]

    def handle(self, event: Event, now: float) -> list[wa.Action]:
        if self.quit:
            return []
        message = event.message if isinstance(event, Received) else None
        if isinstance(message, Assign) and (declined := self._assigned(message, now)):
            return declined
        due = not isinstance(event, Tick) or now >= super().deadline
        found = super().handle(event, now) if due else []
        actions = [lied for action in found for lied in self._lied(action, now)]
        return [*self._flood(now), *self._given_out(now), *actions]

    def _assigned(self, message: Assign, now: float) -> list[wa.Action]:
        task = message.task
        if not isinstance(task, Train):
            return []
        acting = self.acting[task.id] = self.attack.in_task(f"{self.node} {task.id}")
        self._bounds[task.id] = task.base, task.max_staleness
        if acting.takes():
            return []
        asks = RequestTask(self.incoming.have, self.contact.link)
        return [self.contact.send(Decline(task.id, REASON), now), self.contact.send(asks, now)]

    def _lied(self, action: wa.Action, now: float) -> Iterator[wa.Action]:
        """Yield the actions to carry out instead of `action`."""
        offer = action if isinstance(action, wa.Offer) else getattr(action, "message", None)
        if isinstance(offer, wa.Offer | Offer) and isinstance(offer.result, Contribution):
            number = offer.result.assignment
            if number not in self._held and isinstance(action, wa.Offer):
                self._held[number] = now
            if number in self._held:
                return
        if isinstance(action, wa.Send):
            message = self.attack.says(action.message)
            self._last = message if isinstance(message, RequestTask) else self._last
            action = wa.Send(message)
        yield action

    def _given_out(self, now: float) -> Iterator[wa.Action]:
        """Yield results that are held back no longer: a waiting worker gets no task before it submits one."""
        if self.tasks.running is not None:
            self._idle_since = math.inf
        elif self._idle_since == math.inf:
            self._idle_since = now
        for number, since in list(self._held.items()):
            result = self.outgoing.pending.get(number)
            base, bound = self._bounds.get(number, (0, 0))
            staleness = max(0, self.incoming.have - base)
            holds = self.acting.get(number, HONEST).holds(staleness, bound, now - since)
            if result is not None and holds and now - self._idle_since < IDLE:
                continue
            del self._held[number]
            if result is not None:
                yield wa.Offer(result)
        self._look_at = now + LOOKS if self._held else math.inf

    def _flood(self, now: float) -> Iterator[wa.Action]:
        """Yield the last request, again and again."""
        rate = self.attack.floods
        if not rate or self._last is None:
            return
        if now >= self._flood_at:
            yield wa.Send(self._last)
        if now >= self._flood_at or self._flood_at == math.inf:
            self._flood_at = now + 1.0 / rate


class Lying(Conduct):
    """The conduct of a simulated `node` which attacks as `section` says; each process has an attack of its own."""

    def __init__(self, section: Mapping[str, Any], node: str) -> None:
        self.section, self.node = section, node
        self._worker: LyingWorker | None = None

    def worker(self, session: int) -> Worker:
        self._worker = LyingWorker(create(self.section), self.node, session, NodeProfile())
        return self._worker

    def pace(self, assignment: int) -> float:
        assert self._worker is not None
        return self._worker.acting.get(assignment, HONEST).pace()
