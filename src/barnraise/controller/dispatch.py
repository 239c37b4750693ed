"""Which piece of work goes to which node that asks for one.

The rows of all shards form one endless stream; a task takes the next `local_steps * batch_size` of them, unless lost
work waits to be done again. The scheduler decides who gets what; the controller adds what must be alike on both
sides: base version, the way there, rate, seed, and the staleness bound that is fixed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from typing import Any

from barnraise.controller.actions import Send
from barnraise.controller.allowance import Allowance
from barnraise.controller.folding import MOST_OPEN
from barnraise.controller.membership import Membership
from barnraise.controller.pacing import Pacing
from barnraise.controller.part import Context, Part, Steps
from barnraise.controller.publishing import Publishing
from barnraise.controller.speeds import Speeds
from barnraise.controller.state import NodeState, Work
from barnraise.core.types import MOST_ROW_RANGES, LinkReport, ParameterRange, RowRange, Task
from barnraise.ledger.decisions import Assigned, Decision, Judged, Noted, VersionMade
from barnraise.ledger.notes import NOT_HELD, Released
from barnraise.matching.base import NodeView, TaskView
from barnraise.wire.messages import Assign, Message, Next

IN_FLIGHT = 4.0
"""By how many times more versions than what is in flight makes a contribution may be behind: as a fleet starts, or a
line fills, more is on its way when it arrives than when its task was assigned."""

MOST_IN_BUFFER = 32
"""Contributions that a node may have in an open buffer. An honest one rarely has more than a few."""

ANY_STALENESS = 1 << 31
"""A residual is worth its place however old it is."""


class Dispatch(Part):
    """Keeps who asks for work, who rests until a version is made, and whose work comes to nothing too often."""

    def __init__(
        self, context: Context, membership: Membership, speeds: Speeds, pacing: Pacing, publishing: Publishing
    ) -> None:
        super().__init__(context)
        self.settings, self.tasks, self.payloads = context.settings, context.settings.tasks, context.settings.payloads
        self.membership, self.speeds, self.pacing, self.publishing = membership, speeds, pacing, publishing
        self.asking: dict[str, int] = {}  # node -> version it has
        self.resting: dict[str, int] = {}  # those that wait for a version (without overlap)
        self.wasted = Allowance(burst=20.0, rate=0.5)  # tasks that a node may give back, or get refused
        self.ask_again = math.inf  # when the next of those that have to wait may ask
        self._fresh: list[TaskView] = []  # as many as were ever offered at once

    # Who asks

    def next(self, node: str, message: Next) -> Steps:
        """A node has room for a task."""
        self.resting.pop(node, None)
        self.asking[node] = self.publishing.known_to(node, message.have)
        self.speeds.links[node] = message.link
        yield from self._assign()

    def _wake(self) -> None:
        """A version was made or a contribution judged: those that rest ask again."""
        self.asking.update(self.resting)
        self.resting.clear()

    def _version_made(self, d: VersionMade) -> None:
        self._wake()

    def _judged(self, d: Judged) -> None:
        self._wake()
        if d.verdict != "accepted":
            self.wasted.take(d.node, d.time)

    def _noted(self, d: Noted) -> None:
        if type(d.note) is Released and d.note.reason == NOT_HELD:
            self.wasted.take(d.node, d.time)

    def forget(self, node: str) -> None:
        self.asking.pop(node, None)
        self.resting.pop(node, None)

    def _may_ask(self, node: NodeState) -> bool:
        """However fast a node is, others' contributions are to come between its own; one whose work comes to nothing
        again and again has to wait."""
        if len(node.open) >= MOST_OPEN or self.state.num_in_buffer(node.id) >= MOST_IN_BUFFER:
            return False
        if not self.wasted.has(node.id, self.now):
            self.ask_again = min(self.ask_again, self.wasted.when(node.id))
            return False
        return True

    def _may_start(self, node: NodeState) -> bool:
        """Without overlap a node asks as it uploads, and rests until it is woken: in a round that it has contributed to
        or works for, or while its work is on the way into a version."""
        state = self.state
        if self.settings.asynchronous:
            ready = not node.open and state.closing is None
        else:
            ready = node.id not in state.slots and all(
                state.works[number].base != state.version for number in node.open
            )
        if ready:
            return True
        self.resting[node.id] = self.asking.pop(node.id)
        return False

    # Who gets what

    def look(self) -> Steps:
        yield from self._flush()
        yield from self._assign()

    def deadline(self) -> float:
        return self.ask_again

    def _assign(self) -> Steps:
        """Match the nodes that ask with the work there is."""
        state, self.ask_again = self.state, math.inf
        if not self.asking or state.paused or state.stopping or state.flushing is not None or state.final:
            return
        if state.closing is not None and not self.settings.asynchronous:
            return
        asking = [node for node in map(state.nodes.__getitem__, self.asking) if self._may_ask(node)]
        if not self.settings.worker.overlap:
            asking = [node for node in asking if self._may_start(node)]
        if not asking:
            return
        tasks = self._offered(len(asking))
        for task, node in self.tasks.scheduler.assign(tasks, [self._view(node) for node in asking]):
            yield from self._give(int(task), state.nodes[node])

    def _offered(self, count: int) -> list[TaskView]:
        """`count` tasks: lost work first (id > 0 names it), then fresh pieces (ids 0, -1, ...), which are all alike."""
        down, up = self.payloads.snapshot, self.payloads.most
        lost = [
            TaskView(work.assignment, work.tokens, work.kind, down, up, priority=1)
            for work in islice(self.state.redo.values(), count)
        ]
        while len(self._fresh) < count - len(lost):
            self._fresh.append(TaskView(-len(self._fresh), self.tasks.tokens, "train", down, up))
        return lost + self._fresh[: count - len(lost)]

    def _view(self, node: NodeState) -> NodeView:
        """What matching knows of a node: observed speed, and its own word for its link."""
        profile, link = node.profile, self.speeds.links.get(node.id, LinkReport())
        return NodeView(
            node.id,
            self.speeds.estimate(node),
            link.up or profile.up_bytes_per_second,
            link.down or profile.down_bytes_per_second,
            link.round_trip / 2 or profile.latency_seconds,
            profile.memory_bytes,
        )

    def _give(self, task: int, node: NodeState) -> Steps:
        """Lost work of that number, or fresh rows, to a node that asks."""
        state, tasks = self.state, self.tasks
        have = self.asking.pop(node.id)
        if node.id in self.publishing.watching:
            self.publishing.watching[node.id] = state.version
        cursor = state.cursor
        yield from self.pacing.tuned(node)
        steps = max(self.pacing.local_steps(node), node.least_steps)
        lost: Work | None = None
        if task > 0:
            lost = state.redo[task]
            steps = _piece(lost.local_steps, steps)
            rows, tokens = lost.rows, lost.credit(steps)
        else:
            rows, steps = self._rows(cursor, steps)
            num_rows = sum(piece.stop - piece.start for piece in rows)
            tokens, cursor = tasks.context * num_rows, cursor + num_rows
        schedule = tasks.rate_multiplier(state.tokens, self.settings.tokens)
        factor = self.pacing.rate_factor(node, steps, tokens / tasks.context)
        number = state.last_assignment + 1
        decision = Assigned(
            time=self.now,
            assignment=number,
            node=node.id,
            kind="train",
            base=state.version,
            max_staleness=self._bound(node) if self.settings.asynchronous else 0,
            tokens=tokens,
            local_steps=steps,
            learning_rate=tasks.learning_rate * schedule * factor,
            rows=rows,
            parameters=self._fragment(node),
            cursor=cursor,
            rung=node.rung,
            redo=max(task, 0),
        )
        yield decision
        root, skip = (lost.root, lost.done) if lost is not None else (number, 0)
        yield Send(
            node.id,
            Assign(
                Task(
                    id=number,
                    kind="train",
                    rows=rows,
                    tokens=tokens,
                    local_steps=steps,
                    batch_size=tasks.batch_size,
                    rung=decision.rung,
                    learning_rate=decision.learning_rate,
                    seed=tasks.seed + root,
                    parameters=decision.parameters,
                    base=decision.base,
                    updates=self.publishing.updates_from(have),
                    max_staleness=decision.max_staleness,
                    merged=node.merged,
                    share=self.pacing.share(node),
                    skip=skip,
                )
            ),
        )

    def _bound(self, node: NodeState) -> int:
        """How stale the node's contribution may be: as its speed says, but never less than the versions that are made
        of what is in flight already, several times over, within what a node of median speed may be. A link or a
        controller that holds all up makes fast nodes no fresher."""
        bound = self.settings.versions.staleness.bound
        in_flight = math.ceil(IN_FLIGHT * len(self.state.works) / max(1, self.state.buffer_size))
        return max(bound(self.speeds.relative(node)), min(bound(1.0), in_flight))

    def _rows(self, cursor: int, steps: int) -> tuple[tuple[RowRange, ...], int]:
        """The rows of a task of `steps` steps from `cursor` on, and its steps: fewer, in whole batches if possible,
        where the data has so few rows that a task would have to go around them too often."""
        rows, batch_size = self.tasks.rows, self.tasks.batch_size
        wanted = steps * batch_size
        pieces = rows.ranges(cursor, wanted, MOST_ROW_RANGES)
        found = sum(stop - start for _, start, stop in pieces)
        if found < wanted:
            found -= found % batch_size if found > batch_size else 0
            pieces, steps = rows.ranges(cursor, found), -(-found // batch_size)
        return tuple(RowRange(*piece) for piece in pieces), steps

    def _fragment(self, node: NodeState) -> ParameterRange:
        """The parameters of the node's next contribution: its own turns in asynchronous mode, the round's for all
        else."""
        turn = node.turns if self.settings.asynchronous else self.state.version
        ranges = self.payloads.partitions[node.partition]
        return ranges[turn % len(ranges)]

    # Residuals

    def _flush(self) -> Steps:
        """Once the budget is met, ask everybody for what error feedback still holds."""
        state = self.state
        if state.flushing is None or state.final:
            return
        whole = ParameterRange(0, self.payloads.num_parameters)
        for node in [state.nodes[name] for name in self.membership.seen if name not in state.flushed]:
            if any(state.works[number].kind == "flush" for number in node.open):
                continue
            number, base = state.last_assignment + 1, state.version
            yield Assigned(
                time=self.now,
                assignment=number,
                node=node.id,
                kind="flush",
                base=base,
                max_staleness=ANY_STALENESS,
                tokens=0,
                local_steps=0,
                learning_rate=0.0,
                rows=(),
                parameters=whole,
                cursor=state.cursor,
            )
            task = Task(
                id=number,
                kind="flush",
                rows=(),
                tokens=0,
                local_steps=0,
                batch_size=self.tasks.batch_size,
                rung=0,
                learning_rate=0.0,
                seed=0,
                parameters=whole,
                base=base,
                updates=(),
                max_staleness=ANY_STALENESS,
                merged=node.merged,
                share=1.0,
            )
            yield Send(node.id, Assign(task))

    def messages(self) -> dict[type[Message], Callable[[str, Any], Steps]]:
        return {Next: self.next}

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {VersionMade: self._version_made, Judged: self._judged, Noted: self._noted}


def _piece(lost: int, most: int) -> int:
    """How many of so many lost steps somebody does who takes `most`: what was much for one node is more for another.

    >>> _piece(100, 1000), _piece(100, 10), _piece(11, 10)
    (100, 10, 6)
    """
    return -(-lost // -(-lost // most))
