"""The assignment of work to nodes that ask: lost work first, then the new work of each kind of task.

The scheduler decides who gets which task; the kind of the task fills it in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from operator import is_not
from typing import Any, TypeAlias

from barnraise.controller.fleet.fleet import Fleet
from barnraise.controller.fleet.membership import Membership
from barnraise.controller.fleet.memory_limits import MemoryLimits
from barnraise.controller.fleet.uploads import Uploads
from barnraise.controller.state.events import Changed
from barnraise.controller.state.fold import MOST_OPEN
from barnraise.controller.state.part import Context, Part, Steps, TaskHold
from barnraise.controller.state.state import NodeState, Work
from barnraise.controller.versions.buffer import Buffer
from barnraise.controller.versions.publishing import Publishing
from barnraise.controller.versions.task_kind import TaskKind
from barnraise.controller.work.speculation import Speculation
from barnraise.controller.work.task_kinds import TaskKinds
from barnraise.core.token_bucket import TokenBucket
from barnraise.ledger.decisions import Decision, Judged, Noted, VersionMade
from barnraise.ledger.notes import DECLINED, NOT_HELD, HeldOff, Matched, NoMarket, Released
from barnraise.matching.base import TaskView
from barnraise.wire.messages import Decline, Message, RequestTask

Needs: TypeAlias = tuple[str, int, int, frozenset[str]]
"""The needs of lost work on a node: its kind, bytes of memory and of an accelerator, and the nodes that may do it."""

TOLD_EVERY = 60.0
"""Seconds between figures of the matching on the ledger, at least."""

LEAST_NOTED, NOTED_EVERY = 5.0, 60.0
"""Seconds that a hold lasts at least to be noted on the ledger, and from one such note of a node to the next."""

MOST_IN_BUFFER = 32
"""Contributions that a node may have in an open buffer. An honest one rarely has more than a few."""


MOST_AHEAD = 3
"""Masked updates that a node may have under way and in the buffer."""


class Dispatch(Part):
    """Keeps the nodes that ask, those that rest until a version is made, and those whose work fails too often."""

    def __init__(
        self,
        context: Context,
        fleet: Fleet,
        membership: Membership,
        uploads: Uploads,
        memory_limits: MemoryLimits,
        publishing: Publishing,
        speculation: Speculation,
        task_kinds: TaskKinds,
        buffer: Buffer,
    ) -> None:
        super().__init__(context)
        self.settings, self.scheduler = context.settings, context.settings.tasks.scheduler()
        self.fleet, self.membership, self.uploads = fleet, membership, uploads
        self.memory_limits, self.publishing = memory_limits, publishing
        self.speculation, self.kinds, self.buffer = speculation, task_kinds.by_name, buffer
        kinds = self.kinds.values()
        self._with_open = [kind for kind in kinds if type(kind).open is not TaskKind.open]
        self._with_fresh = [kind for kind in kinds if type(kind).fresh is not TaskKind.fresh]
        self._with_offers = [kind for kind in kinds if type(kind).offers is not TaskKind.offers]
        self._with_search = [kind for kind in kinds if type(kind).looked_for is not TaskKind.looked_for]
        (self._trains,) = (kind for kind in self.kinds.values() if kind.task.trains)
        self.asking: dict[str, int] = {}  # node -> version it has
        self.resting: dict[str, int] = {}  # those that wait for a version (without overlap)
        self.wasted = TokenBucket(burst=20.0, rate=0.5)  # tasks that a node may give back, or get refused
        self.ask_again = math.inf  # when the next of the waiting nodes may ask
        self._untold: dict[str, TaskHold] = {}  # holds that are to be noted
        self._told_at = 0.0  # when figures of the matching were last on the ledger
        self._no_market = ""  # why there were none
        self._offers: list[Sequence[TaskView]] = []  # by kind
        self._on_offer: dict[int, TaskView] = {}

    # Requests

    def next(self, node: str, message: RequestTask) -> Steps:
        """Handle the request of a node that has room for a task."""
        self.resting.pop(node, None)
        self.asking[node] = message.have
        self.fleet[node].link = message.link
        yield from self._assign()

    def decline(self, node: str, message: Decline) -> Steps:
        """Handle a node's return of a task."""
        number = message.assignment
        if number in self.state.nodes[node].open and number not in self.uploads.inspecting:
            self.wasted.take(node, self.now)
            yield from self.membership.release(node, number, DECLINED + message.reason)
            yield Changed()

    def _wake(self) -> None:
        """Let resting nodes ask again, after a version was made or a contribution judged."""
        self.asking.update(self.resting)
        self.resting.clear()

    def _version_made(self, d: VersionMade) -> None:
        self._wake()

    def _judged(self, d: Judged) -> None:
        self._wake()
        if d.verdict == "refused":
            self.wasted.take(d.node, d.time)

    def _noted(self, d: Noted) -> None:
        if type(d.note) is Released and d.note.reason == NOT_HELD:
            self.wasted.take(d.node, d.time)

    def forget(self, node: str) -> None:
        self.scheduler.forget(node)
        self.asking.pop(node, None)
        self.resting.pop(node, None)

    def hold(self, node: NodeState, now: float) -> TaskHold | None:
        if len(node.open) >= MOST_OPEN:
            return TaskHold(math.inf, f"has {len(node.open)} tasks open, and gets the next once one is done")
        if self.state.buffer.count(node.id) >= MOST_IN_BUFFER:
            return TaskHold(math.inf, f"has {MOST_IN_BUFFER} contributions in the open buffer")
        if self._has_its_share(node):
            return TaskHold(math.inf, f"is {MOST_AHEAD} masked updates ahead: a version takes one of each node")
        if not self.wasted.has(node.id, now):
            return TaskHold(self.wasted.when(node.id), "gave back or got refused too many tasks lately")
        return None

    def _has_its_share(self, node: NodeState) -> bool:
        """Return whether a node has enough masked updates in the open buffer, and on their way there.

        A version takes one of each node: others wait for the next one, and become stale.
        """
        if self.settings.payloads.protection.masks is None:
            return False
        coming = sum(self.state.works[number].task.summed_only for number in node.open)
        return coming + self.state.buffer.count(node.id) >= MOST_AHEAD

    def _may_ask(self, node: NodeState) -> bool:
        """Whether a node may have work now. If not, says when to ask again, and notes a long hold."""
        hold = self.fleet.available(node.id)
        if hold is None:
            return True
        self.ask_again = min(self.ask_again, hold.until)
        session = self.fleet[node.id].session
        session.passed_over |= hold.until_heard
        told_at, told_until = session.hold_noted
        news = self.now >= told_at + NOTED_EVERY or hold.until > told_until + NOTED_EVERY
        if news and LEAST_NOTED <= hold.until - self.now < math.inf:
            session.hold_noted = self.now, hold.until
            self._untold[node.id] = hold
        return False

    def _may_start(self, node: NodeState) -> bool:
        """Return whether a node without overlap may start: it asks as it uploads, and rests until it is woken.

        It rests in a round that it has contributed to or works for, or while its work is on the way into a version.
        """
        state = self.state
        if self.settings.asynchronous:
            ready = not node.open and state.closing is None
        else:
            ready = (
                node.id not in state.buffer.slots
                and not self.speculation.rests(node.id)
                and all(state.works[number].base != state.newest.version for number in node.open)
            )
        if ready:
            return True
        self.resting[node.id] = self.asking.pop(node.id)
        return False

    # Assignment

    def look(self) -> Steps:
        yield from self._assign()
        if self.now >= self._told_at + TOLD_EVERY:
            self._told_at, found, before = self.now, self.scheduler.figures(), self._no_market
            self._no_market = "" if found is not None else self.scheduler.no_market()
            if found is not None:
                yield Noted(self.now, Matched(**asdict(found)))
            elif self._no_market != before:
                yield Noted(self.now, NoMarket(self._no_market))

    def deadline(self) -> float:
        return self.ask_again

    def _assign(self) -> Steps:
        """Match the nodes that ask with the work there is, and note who is held."""
        yield from self._match()
        if not self._untold:
            return
        untold, self._untold = self._untold, {}
        for node, hold in untold.items():
            yield Noted(self.now, HeldOff(hold.until - self.now, hold.reason), node)

    def _match(self) -> Steps:
        self.ask_again = math.inf
        if late := self.speculation.late():
            yield from self._copy(late)
        if not self.asking or not [kind for kind in self._with_open if kind.open]:
            return
        asking = [node for node in map(self.state.nodes.__getitem__, self.asking) if self._may_ask(node)]
        if not self.settings.worker.overlap:
            asking = [node for node in asking if self._may_start(node)]
        if not asking:
            return
        tasks = self._tasks(asking)
        for kind in self._with_search:
            yield from kind.looked_for()
        self._offer()
        views = []
        if tasks or self._on_offer:
            found = (self.fleet.view(node, self._kinds(node)) for node in asking)
            views = [view for view in found if view.kinds]
        if not views:
            return
        once = {task.id: task for task in tasks}
        for number, node in self.scheduler.place(tasks, views):
            task = once.get(number) or self._on_offer[number]
            work = self.state.redo[number] if number > 0 else task
            yield from self._give(node, self.asking.pop(node), work)

    def _copy(self, late: Sequence[Work]) -> Steps:
        """Assign copies of `late` work to nodes that ask or rest, where that gains something."""
        in_vain = set[str]()
        for work in late if self.resting or self.asking else ():
            kind, idle = self.kinds[work.kind], self.resting | self.asking
            if work.kind in in_vain or not kind.waits(work):
                continue
            trust = kind.least_trust()
            free = [node for name in idle if kind.suits(node := self.state.nodes[name], idle[name])]
            only = kind.only(work)
            free = [node for node in free if _weight(node) >= trust and (not only or node.id in only)]
            best = self.speculation.best(work, filter(self._may_ask, free))
            if best is None:
                in_vain.add(work.kind)
                continue
            yield self.speculation.copied(work, best)
            self.resting.pop(best.id, None)
            self.asking.pop(best.id, None)
            yield from self._give(best.id, idle[best.id], work)

    def _give(self, node: str, have: int, work: Work | TaskView) -> Steps:
        """Assign work to a node that says that it has version `have`."""
        kind = self.kinds[work.kind]
        yield from kind.give(self.state.nodes[node], self.publishing.known_to(node, have), work)
        if node in self.publishing.watching:
            self.publishing.watching[node] = self.state.newest.version

    def _tasks(self, asking: Sequence[NodeState]) -> list[TaskView]:
        """Return lost work that these nodes can do, no more than nodes, then new work (ids from 0 down)."""
        lost = self._lost(asking) if self.state.redo else []
        fresh = list[TaskView]()
        for kind in self._with_fresh:
            if not kind.open:
                fresh += kind.fresh(())
            elif sum(task.kind == kind.name for task in lost) < len(asking):
                fresh += kind.fresh([node for node in asking if self._comes(kind, node)])
        return lost + fresh

    def _lost(self, asking: Sequence[NodeState]) -> list[TaskView]:
        """Return lost work that these nodes can do, no more than there are nodes."""
        count, tasks = len(asking), self.settings.tasks
        down, up = self.settings.payloads.snapshot, self.settings.payloads.most
        able: dict[Needs, bool] = {}
        waiting = (work for work in self.state.redo.values() if self._waits(work) and self._suits(work, asking, able))
        return [
            TaskView(
                work.assignment,
                work.tokens,
                work.kind,
                down,
                up,
                shards=self._bytes(work),
                priority=1,
                memory_bytes=tasks.memory_for(work.rows),
                min_trust=self.kinds[work.kind].least_trust(),
                accelerator_bytes=tasks.accelerator_for(work.rows),
                only=self.kinds[work.kind].only(work),
            )
            for work in islice(waiting, count)
        ]

    def _offer(self) -> None:
        """Let the scheduler know of what stands, when that is not what it was."""
        offers = [kind.offers() for kind in self._with_offers]
        if len(offers) != len(self._offers) or any(map(is_not, offers, self._offers)):
            self._offers = offers
            self._on_offer = {task.id: task for tasks in offers for task in tasks}
            self.scheduler.offer(list(self._on_offer.values()))

    def _bytes(self, work: Work) -> dict[int, int]:
        """Return the bytes of the shards that it needs."""
        tasks = self.settings.tasks
        shards = {rows.shard for rows in work.rows if rows.shard < tasks.rows.num_shards}
        return {shard: tasks.shard_bytes(shard) for shard in sorted(shards)}

    def _waits(self, lost: Work) -> bool:
        kind = self.kinds.get(lost.kind)
        return kind is not None and kind.waits(lost)

    def _suits(self, lost: Work, asking: Sequence[NodeState], able: dict[Needs, bool]) -> bool:
        """Return whether any of the asking nodes can do it; `able` caches results by its needs."""
        tasks, only = self.settings.tasks, self.kinds[lost.kind].only(lost)
        memory, accelerator = tasks.memory_for(lost.rows), tasks.accelerator_for(lost.rows)
        needs = lost.kind, memory, accelerator, only
        if needs not in able:
            trust = self.kinds[lost.kind].least_trust()
            able[needs] = any(
                memory <= self.memory_limits.of(node)
                and accelerator <= node.session.profile.accelerator_bytes
                and (not only or node.id in only)
                and _weight(node) >= trust
                and lost.kind in self._kinds(node)
                for node in asking
            )
        return able[needs]

    def _kinds(self, node: NodeState) -> frozenset[str]:
        """Return the kinds of tasks that an asking node can be given now."""
        have, can = self.publishing.known_to(node.id, self.asking[node.id]), self.fleet[node.id].session.kinds
        kinds = [kind for name, kind in self.kinds.items() if name in can]
        return frozenset([kind.name for kind in kinds if self._comes(kind, node) and kind.suits(node, have)])

    def _comes(self, kind: TaskKind, node: NodeState) -> bool:
        """Return whether a node should do such work now.

        Where the next version cannot be made without it, it trains before it audits; once the budget is met only nodes
        that a version lacks train.
        """
        if kind.yields:
            trains = self._trains
            able = trains.open and self.membership.can(node.id, trains.name)
            return not (able and self.buffer.lacks(node, self._trainers(node)))
        return not kind.task.trains or not self.buffer.budget_met or self.buffer.lacks(node)

    def _trainers(self, node: NodeState) -> Iterator[str]:
        """All others who can train."""
        trains = self._trains
        return (name for name in self.fleet.present if name != node.id and self.membership.can(name, trains.name))

    def messages(self) -> dict[type[Message], Callable[[str, Any], Steps]]:
        return {RequestTask: self.next, Decline: self.decline}

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {VersionMade: self._version_made, Judged: self._judged, Noted: self._noted}


def _weight(node: NodeState) -> float:
    """Return how far a node is trusted."""
    return node.tally.reputation.weight()
