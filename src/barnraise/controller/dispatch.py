"""Which piece of work goes to which node that asks for one.

The rows of all shards form one endless stream; a task takes the next `local_steps * batch_size` of them, unless lost
work waits to be done again. The scheduler decides who gets what; the controller adds what must be alike on both
sides: base version, the way there, rate, seed, and the staleness bound that is fixed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

from barnraise.controller import speeds
from barnraise.controller.actions import Action, Send
from barnraise.controller.folding import MOST_OPEN
from barnraise.controller.pacing import local_steps, participation, rate_factor, tuned
from barnraise.controller.settings import EngineSettings
from barnraise.controller.soft import Soft
from barnraise.controller.state import NodeState, State
from barnraise.core.types import MOST_ROW_RANGES, Blob, LinkReport, ParameterRange, RowRange, Task, Update
from barnraise.ledger.decisions import Assigned, Decision
from barnraise.matching.base import NodeView, TaskView
from barnraise.wire.messages import Assign, Newer

Steps = Iterator[Decision | Action]

IN_FLIGHT = 4.0
"""By how many times more versions than what is in flight makes a contribution may be behind: as a fleet starts, or a
line fills, more is on its way when it arrives than when its task was assigned."""

MOST_IN_BUFFER = 32
"""Contributions that a node may have in an open buffer. An honest one rarely has more than a few."""

ANY_STALENESS = 1 << 31
"""A residual is worth its place however old it is."""

CHAIN_SLACK = 1024
"""Bytes by which a chain may exceed the snapshot: an uncompressed delta is one payload header larger."""


def assign(state: State, soft: Soft, settings: EngineSettings, now: float) -> Steps:
    """Match the nodes that ask with the work there is."""
    soft.ask_again = math.inf
    if not soft.asking or state.paused or state.stopping or state.flushing is not None or state.final:
        return
    if state.closing is not None and not settings.asynchronous:
        return
    asking = [node for node in map(state.nodes.__getitem__, soft.asking) if _may_ask(state, soft, node)]
    if not settings.worker.overlap:
        asking = [node for node in asking if _may_start(state, soft, settings, node)]
    if not asking:
        return
    tasks = _offered(state, soft, settings, len(asking))
    for task, node in settings.scheduler.assign(tasks, [_view(state, soft, node) for node in asking]):
        yield from _assign_one(state, soft, settings, int(task), state.nodes[node], now)


def flush(state: State, soft: Soft, settings: EngineSettings, now: float) -> Steps:
    """Once the budget is met, ask everybody for what error feedback still holds."""
    if state.flushing is None or state.final:
        return
    for node in [state.nodes[name] for name in soft.seen if name not in state.flushed]:
        if not any(state.works[number].kind == "flush" for number in node.open):
            whole = ParameterRange(0, settings.num_parameters)
            number, base = state.last_assignment + 1, state.version
            yield Assigned(now, number, node.id, "flush", base, ANY_STALENESS, 0, 0, 0.0, (), whole, state.cursor)
            task = Task(
                number,
                "flush",
                (),
                0,
                0,
                settings.batch_size,
                0,
                0.0,
                0,
                whole,
                base,
                (),
                ANY_STALENESS,
                node.merged,
                1.0,
            )
            yield Send(node.id, Assign(task))


def _bound(state: State, soft: Soft, settings: EngineSettings, node: NodeState) -> int:
    """How stale the node's contribution may be: as its speed says, but never less than the versions that are made of
    what is in flight already, several times over, within what a node of median speed may be. A link or a controller
    that holds all up makes fast nodes no fresher."""
    bound = settings.staleness.bound
    in_flight = math.ceil(IN_FLIGHT * len(state.works) / max(1, state.buffer_size))
    return max(bound(speeds.relative(state, soft, node)), min(bound(1.0), in_flight))


def _may_ask(state: State, soft: Soft, node: NodeState) -> bool:
    """However fast a node is, others' contributions are to come between its own; one whose work comes to nothing again
    and again has to wait."""
    if len(node.open) >= MOST_OPEN or state.num_in_buffer(node.id) >= MOST_IN_BUFFER:
        return False
    if not soft.wasted.has(node.id, soft.now):
        soft.ask_again = min(soft.ask_again, soft.wasted.when(node.id))
        return False
    return True


def _may_start(state: State, soft: Soft, settings: EngineSettings, node: NodeState) -> bool:
    """Without overlap a node asks as it uploads, and rests until `wake`: in a round that it has contributed to or works
    for, or while its work is on the way into a version."""
    if settings.asynchronous:
        ready = not node.open and state.closing is None
    else:
        ready = node.id not in state.slots and all(state.works[number].base != state.version for number in node.open)
    if ready:
        return True
    soft.resting[node.id] = soft.asking.pop(node.id)
    return False


def wake(soft: Soft) -> None:
    """A version was made or a contribution judged: those that rest ask again."""
    soft.asking.update(soft.resting)
    soft.resting.clear()


def _offered(state: State, soft: Soft, settings: EngineSettings, count: int) -> list[TaskView]:
    """`count` tasks: lost work first (id > 0 names it), then fresh pieces (ids 0, -1, ...), which are all alike."""
    down, up = settings.snapshot_bytes, settings.max_payload_bytes
    lost = [
        TaskView(work.assignment, work.tokens, work.kind, down, up, priority=1)
        for work in islice(state.redo.values(), count)
    ]
    tokens = settings.local_steps * settings.batch_size * settings.context
    while len(soft.fresh) < count - len(lost):
        soft.fresh.append(TaskView(-len(soft.fresh), tokens, "train", down, up))
    return lost + soft.fresh[: count - len(lost)]


def _view(state: State, soft: Soft, node: NodeState) -> NodeView:
    """What matching knows of a node: observed speed, and its own word for its link."""
    profile, link = node.profile, soft.links.get(node.id, LinkReport())
    return NodeView(
        node.id,
        speeds.estimate(state, soft, node),
        link.up or profile.up_bytes_per_second,
        link.down or profile.down_bytes_per_second,
        link.round_trip / 2 or profile.latency_seconds,
        profile.memory_bytes,
    )


def _assign_one(state: State, soft: Soft, settings: EngineSettings, task: int, node: NodeState, now: float) -> Steps:
    have = soft.asking.pop(node.id)
    if node.id in soft.watching:
        soft.watching[node.id] = state.version
    assignment, cursor = state.last_assignment + 1, state.cursor
    root, done = assignment, 0
    yield from tuned(state, soft, settings, node, now)
    steps = max(local_steps(state, soft, settings, node), node.least_steps)
    if task > 0:
        lost = state.redo[task]
        steps = _piece(lost.local_steps, steps)
        rows, tokens, root, done = lost.rows, lost.credit(steps), lost.root, lost.done
    else:
        rows, steps = _rows(settings, cursor, steps)
        num_rows = sum(piece.stop - piece.start for piece in rows)
        tokens, cursor = settings.context * num_rows, cursor + num_rows
    schedule = settings.rate_multiplier(state.tokens, settings.tokens)
    rate = (
        settings.learning_rate * schedule * rate_factor(state, soft, settings, node, steps, tokens / settings.context)
    )
    decision = Assigned(
        now,
        assignment,
        node.id,
        "train",
        state.version,
        _bound(state, soft, settings, node) if settings.asynchronous else 0,
        tokens,
        steps,
        rate,
        rows,
        fragment(state, settings, node),
        cursor,
        node.rung,
        max(task, 0),
    )
    yield decision
    yield Send(
        node.id,
        Assign(
            Task(
                assignment,
                "train",
                rows,
                decision.tokens,
                decision.local_steps,
                settings.batch_size,
                decision.rung,
                rate,
                settings.seed + root,
                decision.parameters,
                decision.base,
                updates_from(state, soft, settings, have),
                decision.max_staleness,
                node.merged,
                own_share(state, soft, settings, node),
                done,
            )
        ),
    )


def _piece(lost: int, most: int) -> int:
    """How many of so many lost steps somebody does who takes `most`: what was much for one node is more for another.

    >>> _piece(100, 1000), _piece(100, 10), _piece(11, 10)
    (100, 10, 6)
    """
    return -(-lost // -(-lost // most))


def _rows(settings: EngineSettings, cursor: int, steps: int) -> tuple[tuple[RowRange, ...], int]:
    """The rows of a task of `steps` steps from `cursor` on, and its steps: fewer, in whole batches if possible, where
    the data has so few rows that a task would have to go around them too often."""
    wanted = steps * settings.batch_size
    pieces = settings.rows.ranges(cursor, wanted, MOST_ROW_RANGES)
    found = sum(stop - start for _, start, stop in pieces)
    if found < wanted:
        found -= found % settings.batch_size if found > settings.batch_size else 0
        pieces, steps = settings.rows.ranges(cursor, found), -(-found // settings.batch_size)
    return tuple(RowRange(*piece) for piece in pieces), steps


def publish(state: State, soft: Soft, settings: EngineSettings, node: NodeState) -> Steps:
    """Tell a node that trains of the newest version, if it watches and has an older one."""
    have = soft.watching.get(node.id)
    if have is None or have >= state.version or state.flushing is not None or state.final:
        return
    del soft.watching[node.id]
    soft.told[node.id] = state.version
    updates = updates_from(state, soft, settings, have)
    yield Send(node.id, Newer(updates, node.merged, own_share(state, soft, settings, node)))


def own_share(state: State, soft: Soft, settings: EngineSettings, node: NodeState) -> float:
    """What a contribution of the node weighs in a version."""
    if not settings.participation:
        return 1.0
    return participation(state, soft, node, bool(settings.worker.normalize_steps))


def fragment(state: State, settings: EngineSettings, node: NodeState) -> ParameterRange:
    """The parameters of the node's next contribution: its own turns in asynchronous mode, the round's for all else."""
    turn = node.turns if settings.asynchronous else state.version
    ranges = settings.partitions[node.partition]
    return ranges[turn % len(ranges)]


def updates_from(state: State, soft: Soft, settings: EngineSettings, have: int) -> tuple[Update, ...]:
    """How a replica at version `have` reaches the newest: a chain of deltas or a snapshot, whichever is fewer bytes."""
    if have == state.version:
        return ()
    snapshot = settings.snapshot_bytes
    chain: list[Update] = []
    if 0 <= have < state.version and state.version - have <= len(soft.updates):
        size = 0
        for version in range(have + 1, state.version + 1):
            update = soft.updates.get(version)
            size += update.blob.num_bytes if update else 0
            if update is None or size > snapshot + CHAIN_SLACK:
                break
            chain.append(update)
        else:
            return tuple(chain)
    return (Update("snapshot", state.version, Blob(state.digest, snapshot), state.digest),)
