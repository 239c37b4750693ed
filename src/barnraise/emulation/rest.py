"""The rest of a run under virtual time: it begins with a fleet that is at work, and ends with the token budget."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from barnraise.controller.machine import Controller
from barnraise.controller.state import events as ce
from barnraise.emulation.churn import ChurnEvent
from barnraise.emulation.fleet import Machine
from barnraise.emulation.node import Node
from barnraise.emulation.simulator import Simulator
from barnraise.emulation.work import ControllerWork, MakeNodeWork
from barnraise.ledger.decisions import Decision, Judged

WARMED = 2
"""Contributions of each node before the rest of the run begins."""


class Played(NamedTuple):
    """A rest that was played: seconds and tokens from its beginning until the token budget was met.

    `work` are the tokens that its nodes would have trained on in that time without a pause, and `tail` the seconds from
    then to the end of the run.
    """

    seconds: float
    tokens: int
    work: float
    tail: float


class Rest(Simulator):
    """Plays a run whose nodes are known: first a warm-up with those that are `present`, then the rest.

    The rest begins when each of them has contributed twice, when `warm_tokens` tokens are counted, or after
    `warm_seconds`. From then on nodes come and go as `changes` say, in seconds from there. The budget of the
    controller's settings covers both.
    """

    def __init__(
        self,
        controller: Controller,
        fleet: Sequence[Machine],
        work: ControllerWork,
        node_work: MakeNodeWork,
        *,
        present: Collection[str],
        changes: Mapping[str, Sequence[ChurnEvent]],
        warm_tokens: int,
        warm_seconds: float,
        **options: Any,
    ) -> None:
        super().__init__(controller, fleet, work, node_work, **options)
        self.warm_tokens, self.changes = warm_tokens, changes
        self._cold = dict.fromkeys(present, WARMED)
        self._expected = 1  # the rest itself: a warm-up that has to wait ends no run
        self.at(warm_seconds if self._cold else 0.0, Rest._begin_rest, self, 0, None)
        self.observers.append(self._contributed)
        self._began: tuple[float, int, float] | None = None  # seconds, tokens and work when the rest began
        self._met: tuple[float, int, float] | None = None  # the same when the budget was met

    def played(self) -> Played | None:
        """Return the rest that was played; None when the budget was not met in it."""
        if self._began is None or self._met is None or self._met[0] <= self._began[0]:
            return None
        seconds, tokens, work = (after - before for after, before in zip(self._met, self._began, strict=True))
        return Played(seconds, int(tokens), work, self.now - self._met[0])

    def _expect(self, node: Node) -> None:
        if node.spec.name in self._cold or self._began is not None:
            super()._expect(node)

    def _begin_rest(self, _: int = 0, nothing: None = None) -> None:
        """Begin the rest now: plan when nodes leave and come."""
        if self._began is not None:
            return
        self._began = self._mark()
        self._expected -= 1
        for name, changes in self.changes.items():
            for change in changes:
                self._expected += change.up
                self.at(self.now + change.seconds, Rest._change, self, change.up, self.nodes[name])
        self.soon(Simulator._see_whether_to_wait, self, 0, None)

    def _change(self, up: int, node: Node) -> None:
        if not up:
            if node.up:
                node.stop()
                self.soon(Simulator._see_whether_to_wait, self, 0, None)
        elif node.up:
            self._expected -= 1
        elif node.incarnation:
            self._start(0, node)
        else:
            self._expected -= 1
            self._expect(node)

    def handle(self, event: ce.Event) -> None:
        super().handle(event)
        tokens = self.controller.state.totals.tokens
        if self._began is None and tokens >= self.warm_tokens:
            self._begin_rest()
        if self._met is None and tokens >= self.controller.settings.tokens:
            self._met = self._mark()

    def _contributed(self, now: float, decision: Decision) -> None:
        """Begin the rest once each node has contributed often enough."""
        if self._began is None and type(decision) is Judged and decision.contributes:
            left = self._cold.get(decision.node, 0) - 1
            if left > 0:
                self._cold[decision.node] = left
            elif self._cold.pop(decision.node, None) is not None and not self._cold:
                self._begin_rest()

    def _mark(self) -> tuple[float, int, float]:
        work = sum(node.uptime(self.now) * node.spec.rate for node in self.nodes.values())
        return self.now, self.controller.state.totals.tokens, work
