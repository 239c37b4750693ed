"""The assignment of work to nodes, and the way of a replica to its base."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial

import pytest

from barnraise.controller.fleet.pacing import Pacing
from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.fleet.speeds import Speeds
from barnraise.controller.machine import Controller
from barnraise.controller.state import events as ev
from barnraise.controller.state.fold import MOST_OPEN
from barnraise.controller.state.settings import RowNeeds
from barnraise.controller.state.state import Newest, NodeState, Roster, Speed, State
from barnraise.controller.versions.publishing import LONGEST_CHAIN, Publishing
from barnraise.controller.work.dispatch import Dispatch
from barnraise.core.types import MOST_ROW_RANGES, Blob, LinkReport, NodeProfile, Update
from barnraise.data.ranges import RowIndex
from barnraise.ledger.decisions import Assigned, Noted
from barnraise.ledger.notes import Advice, Matched
from barnraise.matching import create as scheduler
from barnraise.matching.persistent_market import GaleShapley
from barnraise.staleness import create as staleness
from barnraise.wire.frames import decode_from_controller, encode
from barnraise.wire.messages import Assign

from ....state_machine.engine import Engine, contribution, digest, engine_settings, overlap


def assigned(engine: Engine) -> list[Assigned]:
    return [decision for decision in engine.journal if isinstance(decision, Assigned)]


def test_every_row_gets_its_turn() -> None:
    engine = Engine(engine_settings())
    for index in range(12):
        engine.hello(f"n{index}")
        engine.next(f"n{index}")
    rows = [(r.shard, row) for d in assigned(engine) for r in d.rows for row in range(r.start, r.stop)]
    assert len(rows) == 12 * 4
    assert len(set(rows)) == 37
    assert max(Counter(rows).values()) <= 3


def test_nodes_keep_to_shards_of_their_own() -> None:
    rules = partial(scheduler, "gale_shapley", default_bandwidth=1000.0)
    engine = Engine(
        engine_settings(
            rows=RowIndex([40] * 5, lengths=[3] * 5), needs=RowNeeds(100, {}), tokens=10**9, scheduler=rules
        )
    )
    for node in "abc":
        engine.hello(node)
        engine.next(node)
    for _ in range(4):
        for node in "abc":
            engine.next(node)
            engine.offer(node, contribution(next(iter(engine.held[node].values()))))
            for job in list(engine.jobs):
                engine.answer(job)
    shards = {node: {r.shard for d in assigned(engine) if d.node == node for r in d.rows} for node in "abc"}
    assert shards == {"a": {0}, "b": {1}, "c": {2}}


def test_rows_too_long_for_every_node_are_reported_once() -> None:
    engine = Engine(engine_settings(rows=RowIndex([40] * 2, lengths=[3, 9]), needs=RowNeeds(1, {3: 100, 9: 900})))

    def told() -> list[str]:
        return [d.note.reason for d in engine.journal if isinstance(d, Noted) and isinstance(d.note, Advice)]

    engine.hello("a", profile=NodeProfile(memory_bytes=500))
    assert told() == [
        "rows of 9 tokens wait for a node with the memory: they need 900 B, and a, the nearest, has 500 B"
    ]
    engine.hello("b", profile=NodeProfile(memory_bytes=300))
    assert len(told()) == 1
    engine.hello("c", profile=NodeProfile(memory_bytes=900))
    engine.leave("c")
    assert len(told()) == 2


@pytest.mark.parametrize("name", ["gale_shapley", "fifo", "random"])
def test_a_small_node_gets_short_rows_and_long_rows_wait_for_larger_nodes(name: str) -> None:
    settings = engine_settings(
        rows=RowIndex([40] * 6, lengths=[3, 9] * 3),
        needs=RowNeeds(1, {3: 100, 9: 900}),
        tokens=10**9,
        lease=1000.0,
        scheduler=partial(scheduler, name),
    )
    engine = Engine(settings)
    engine.hello("small", profile=NodeProfile(memory_bytes=500))
    engine.hello("large", profile=NodeProfile(memory_bytes=1000))
    engine.hello("accelerated", profile=NodeProfile(memory_bytes=500, device="H100"))
    engine.hello("silent", profile=NodeProfile())
    lengths: dict[str, set[int]] = {}
    for _ in range(25):
        for node in ("small", "large", "accelerated", "silent"):
            engine.next(node)
            number = engine.state.totals.assigned
            (work,) = [work for work in engine.state.works.values() if work.assignment == number]
            assert work.node == node, "it got nothing"
            lengths.setdefault(node, set()).update(settings.tasks.rows.lengths[rows.shard] for rows in work.rows)
            engine.offer(node, contribution(engine.held[node][number]))
            engine.upload(node, number)
            while engine.jobs:
                engine.answer(engine.jobs[0])
    assert lengths["small"] == {3}
    assert lengths["large"] | lengths["accelerated"] | lengths["silent"] == {3, 9}


def test_figures_of_the_matching_are_noted_once_a_minute() -> None:
    engine = Engine(
        engine_settings(
            rows=RowIndex([40] * 5, lengths=[3] * 5),
            tokens=10**9,
            lease=1000.0,
            scheduler=partial(scheduler, "gale_shapley"),
        )
    )
    told = []
    for node in "abc":
        engine.hello(node)
        engine.next(node)
    for minute in range(4):
        engine.now = 61.0 * minute
        engine.handle(ev.Tick())
        told.append([d.note for d in engine.journal if isinstance(d, Noted) and isinstance(d.note, Matched)])
    assert [len(notes) for notes in told] == [0, 1, 2, 3]
    last = told[-1][-1]
    assert (last.nodes, last.tasks) == (3, 3)
    assert last.events >= 6
    assert (last.stability, last.nearly, last.blocking) == (1.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("shard_rows", "batch_size", "steps", "rows"),
    [
        ([3, 2], 4, 160, 640),  # 256 ranges: 128 times around 5 rows
        ([3], 5, 153, 765),  # 768 rows, but whole batches
        ([1], 1000, 1, 256),  # not even one
        ([7, 30], 4, 1000, 4000),  # all of it
    ],
)
def test_a_task_goes_around_few_rows_only_so_often(
    shard_rows: list[int], batch_size: int, steps: int, rows: int
) -> None:
    wanted = 1000 if batch_size < 1000 else 3
    engine = Engine(
        engine_settings(
            rows=RowIndex(shard_rows, lengths=[3] * len(shard_rows)),
            batch_size=batch_size,
            local_steps=wanted,
            max_local_steps=wanted,
            tokens=10**9,
        )
    )
    for node in ("a", "b"):
        engine.hello(node)
        engine.next(node)
    first, second = assigned(engine)
    assert (first.local_steps, first.tokens) == (steps, rows * engine.settings.tasks.context)
    assert sum(piece.stop - piece.start for piece in first.rows) == rows
    assert len(first.rows) <= MOST_ROW_RANGES
    assert first.cursor == rows
    handed = Counter((r.shard, row) for r in first.rows + second.rows for row in range(r.start, r.stop))
    assert max(handed.values()) <= 2 + min(handed.values())
    task = engine.held["a"][first.assignment]
    assert decode_from_controller(encode(Assign(task))) == (Assign(task), None)


def test_a_node_holds_only_so_much_and_is_served_once_it_hands_something_in() -> None:
    engine = Engine(engine_settings())
    engine.hello("a")
    for _ in range(3 * MOST_OPEN):
        engine.next("a")
    assert len(assigned(engine)) == MOST_OPEN
    engine.offer("a", contribution(engine.held["a"][1], steps=10**6))
    assert len(assigned(engine)) == MOST_OPEN + 1


def test_lost_work_comes_before_fresh_work() -> None:
    engine = Engine(engine_settings())
    for node in ("a", "b"):
        engine.hello(node)
        engine.next(node)
    engine.leave("a")
    engine.hello("c")
    engine.next("c")
    engine.next("b")
    assert [d.redo for d in assigned(engine)] == [0, 0, 1, 0]


def test_lost_work_is_done_in_pieces_of_what_each_node_takes() -> None:
    """However much the one was given, by its speed or its own word: no other node's rounds are as long as its."""
    engine = Engine(engine_settings(pace="matched", max_local_steps=1000, tokens=10**6))
    for node, rate in (("slow", 60.0), ("fast", 600.0)):
        engine.hello(node)
        engine.observed(**{node: rate})
    engine.next("fast")
    (lost,) = assigned(engine)
    assert lost.local_steps == 10 * engine.settings.tasks.local_steps
    engine.offer("fast", contribution(engine.held["fast"][1], steps=10**6))
    done = 0
    while done < lost.local_steps:
        engine.observed(slow=60.0, fast=600.0)
        engine.next("slow")
        piece = assigned(engine)[-1]
        (task,) = engine.held["slow"].values()
        assert (piece.rows, task.batches.skip, task.batches.seed) == (lost.rows, done, engine.settings.tasks.seed + 1)
        assert 1 <= piece.local_steps <= engine.settings.tasks.local_steps
        engine.offer("slow", contribution(task))
        while engine.jobs:
            engine.answer(engine.jobs[0])
        done += piece.local_steps
    assert engine.state.totals.tokens == lost.tokens
    assert not engine.state.redo


def test_a_piece_of_lost_work_that_is_lost_is_done_with_what_comes_after_it() -> None:
    engine = Engine(engine_settings(pace="matched", max_local_steps=1000, tokens=10**6))
    for node, rate in (("slow", 60.0), ("fast", 600.0)):
        engine.hello(node)
        engine.observed(**{node: rate})
    engine.next("fast")
    engine.leave("fast")
    engine.next("slow")
    whole, piece = assigned(engine)
    assert piece.local_steps < whole.local_steps
    engine.leave("slow")
    (lost,) = engine.state.redo.values()
    assert (lost.done, lost.local_steps, lost.tokens) == (0, whole.local_steps, whole.tokens)
    engine.hello("slow")  # which still holds the piece: by now it is part of what waits for others
    assert not engine.held["slow"]


def hand_in(engine: Engine, node: str) -> None:
    """The node's oldest task, all that follows from it, and its next."""
    engine.offer(node, contribution(next(iter(engine.held[node].values()))))
    while engine.jobs:
        engine.answer(engine.jobs[0])
    engine.next(node)


@pytest.mark.parametrize("overlapping", [True, False])
def test_a_fast_node_takes_more_steps_only_with_overlap(overlapping: bool) -> None:
    engine = Engine(engine_settings(buffer_size=2, worker=overlap(overlapping)))
    for node in ("a", "b"):
        engine.hello(node)
        engine.next(node)
    for _ in range(2):
        engine.tick(0.5)
        hand_in(engine, "a")
        engine.tick(2.5)
        hand_in(engine, "b")
    steps = {node: [d.local_steps for d in assigned(engine) if d.node == node] for node in ("a", "b")}
    assert set(steps["b"]) == {engine.settings.tasks.local_steps}
    assert (steps["a"][-1] > engine.settings.tasks.local_steps) == overlapping


def test_a_clock_that_goes_back_leaves_tasks_their_steps() -> None:
    engine = Engine(engine_settings(buffer_size=2, worker=overlap(True)))
    for node in ("a", "b"):
        engine.hello(node)
        engine.next(node)
    engine.tick(0.5)
    hand_in(engine, "a")
    engine.now -= 8.0
    hand_in(engine, "b")
    for node in ("a", "b"):
        engine.next(node)
        assert engine.state.nodes[node].speed.turnaround >= 0.0
    assert {d.local_steps for d in assigned(engine)} == {engine.settings.tasks.local_steps}


def test_no_work_while_paused_or_stopping() -> None:
    engine = Engine(engine_settings(minimum_nodes=2))
    engine.hello("a")
    engine.next("a")
    assert engine.state.progress.paused == "1 live node, but the aggregation rule needs 2"
    assert assigned(engine) == []
    engine.hello("b")
    assert not engine.state.progress.paused
    assert [d.node for d in assigned(engine)] == ["a"]


def test_a_synchronous_node_waits_for_the_next_version() -> None:
    engine = Engine(engine_settings(asynchronous=False))
    engine.hello("a")
    engine.hello("b")
    for node in ("a", "b"):
        engine.next(node)
        engine.next(node)  # one more than it may have now
    assert [d.node for d in assigned(engine)] == ["a", "b"]
    for node in ("a", "b"):
        engine.offer(node, contribution(next(iter(engine.held[node].values()))))
    while engine.jobs:
        engine.answer(engine.jobs[-1])
    assert engine.state.newest.version == 1
    assert [(d.node, d.base) for d in assigned(engine)[2:]] == [("a", 1), ("b", 1)]


def update(version: int, size: int) -> Update:
    return Update("delta", version, Blob(digest(version), size), digest(100 + version))


@pytest.mark.parametrize(
    ("have", "size", "expected"),
    [
        (3, 100, []),
        (2, 100, [3]),
        (0, 100, [1, 2, 3]),
        (0, 4000, ["snapshot"]),  # the chain is more bytes
        (-1, 100, ["snapshot"]),
        (7, 100, ["snapshot"]),  # a version that never was
    ],
)
def test_the_way_to_the_base_is_whichever_is_fewer_bytes(have: int, size: int, expected: list[object]) -> None:
    settings = engine_settings(exchanged=1000)
    published = Controller(settings, State(newest=Newest(3, digest(103)))).parts[Publishing]
    published.updates = {version: update(version, size) for version in (1, 2, 3)}
    way = published.updates_from(have)
    assert [u.version if u.kind == "delta" else "snapshot" for u in way] == expected
    if expected == ["snapshot"]:
        assert way == (Update("snapshot", 3, Blob(digest(103), 4000), digest(103)),)


def test_a_chain_has_no_gap() -> None:
    published = Controller(engine_settings(), State(newest=Newest(3, digest(103)))).parts[Publishing]
    published.updates = {1: update(1, 10), 3: update(3, 10)}
    (way,) = published.updates_from(0)
    assert way.kind == "snapshot"


def test_few_small_deltas_are_kept_however_cheap_they_are() -> None:
    engine = Engine(engine_settings(exchanged=10**6, tokens=10**9, checkpoint_seconds=1e9))
    engine.check = lambda: None  # type: ignore[method-assign]
    engine.hello("a")
    for _ in range(LONGEST_CHAIN + 5):
        engine.next("a")
        engine.offer("a", contribution(next(iter(engine.held["a"].values()))))
        while engine.jobs:
            engine.answer(engine.jobs[0])
    assert len(engine.machine.parts[Publishing].updates) == LONGEST_CHAIN
    assert len(engine.machine.parts[Publishing].updates_from(0)) == 1


def test_the_bound_follows_the_nodes_speed_when_the_task_is_assigned() -> None:
    engine = Engine(engine_settings(staleness=staleness("adaptive", max_staleness=50, min_staleness=5)))
    for node, rate in (("slow", 30.0), ("middle", 100.0), ("fast", 2000.0)):
        engine.hello(node)
        engine.observed(**{node: rate})
    for node in ("slow", "middle", "fast"):
        engine.next(node)
    assert {d.node: d.terms.max_staleness for d in assigned(engine)} == {"slow": 167, "middle": 50, "fast": 8}
    assert engine.state.buffer.size == 1, "two tasks are in flight: four times two versions must not be too many"


def node_at(name: str, rate: float, turnaround: float = 0.1) -> NodeState:
    """Return a node with an observed speed in tokens a second."""
    return NodeState(name, live=True, speed=Speed(rate, rate, 1.0, turnaround))


def speeds_of(nodes: dict[str, NodeState]) -> Speeds:
    """Return the speeds of a controller that knows these nodes."""
    return Controller(engine_settings(), State(nodes=nodes, roster=Roster(live=len(nodes)))).parts[Speeds]


def test_participation_is_a_share_of_all_work() -> None:
    nodes = {name: node_at(name, rate) for name, rate in (("a", 30.0), ("b", 10.0), ("c", 0.0))}
    shares = [speeds_of(nodes).participation(node) for node in nodes.values()]
    assert shares == [0.75, 0.25, pytest.approx(1 / 3)]
    assert (
        Controller(engine_settings(), State(nodes=nodes, roster=Roster(live=1))).parts[Speeds].participation(nodes["a"])
        == 1.0
    )


def paced(engine: Engine, **rates: float) -> dict[str, Assigned]:
    """Return the first tasks of nodes with these observed rates."""
    for node, rate in rates.items():
        engine.hello(node)
        engine.observed(**{node: rate})
    for node in rates:
        engine.next(node)
    return {d.node: d for d in assigned(engine)}


def test_matched_nodes_get_tasks_of_one_length_in_time() -> None:
    settings = engine_settings(pace="matched", max_local_steps=100)
    tasks = paced(Engine(settings), slow=10.0, middle=20.0, fast=4000.0)
    steps = {node: task.local_steps for node, task in tasks.items()}
    assert steps == {"slow": settings.tasks.local_steps, "middle": 2 * settings.tasks.local_steps, "fast": 100}
    for task in tasks.values():
        assert sum(piece.stop - piece.start for piece in task.rows) == task.local_steps * settings.tasks.batch_size
        assert task.tokens == task.local_steps * settings.tasks.batch_size * settings.tasks.context
    assert tasks["slow"].terms.learning_rate > tasks["middle"].terms.learning_rate > tasks["fast"].terms.learning_rate


@pytest.mark.parametrize("batch_rows", [2, 1])
def test_a_rate_does_not_rise_with_delay_and_falls_with_the_batch(batch_rows: int) -> None:
    settings = engine_settings(pace="matched", max_local_steps=1000)
    nodes = {"near": node_at("near", 60.0), "far": node_at("far", 60.0, turnaround=9.0)}  # 0.1 s a step
    machine = Controller(settings, State(nodes=nodes, roster=Roster(live=2)))
    machine.parts[NodeRecords]["far"].link = LinkReport(round_trip=5.0)
    taken, factors = {}, {}
    for name, node in nodes.items():
        taken[name] = steps = machine.parts[Pacing].local_steps(node)
        factors[name] = machine.parts[Pacing].rate_factor(node, steps, steps * batch_rows)
    assert taken == {"near": 250, "far": 200}  # a round is five exchanges long
    smaller = batch_rows / settings.tasks.batch_size  # sgd: in proportion
    assert factors["near"] == factors["far"] == pytest.approx(max(0.1, smaller * math.sqrt(2 / 250)), rel=1e-9)


def test_scaled_to_equal_work_nodes_share_a_version_alike() -> None:
    nodes = {name: node_at(name, rate) for name, rate in (("a", 30.0), ("b", 10.0))}
    assert [speeds_of(nodes).participation(node, alike=True) for node in nodes.values()] == [0.5, 0.5]


def test_a_fixed_pace_is_the_same_for_all() -> None:
    settings = engine_settings(pace="fixed")
    tasks = paced(Engine(settings), slow=10.0, fast=4000.0)
    assert {task.local_steps for task in tasks.values()} == {settings.tasks.local_steps}
    assert {task.terms.learning_rate for task in tasks.values()} == {settings.tasks.learning_rate}


def test_unschedulable_lost_work_does_not_block_later_work() -> None:
    """Long rows were lost first, and those who are there have the memory for short ones."""
    engine = Engine(
        engine_settings(
            rows=RowIndex([40] * 6, lengths=[3, 9] * 3), needs=RowNeeds(1, {3: 100, 9: 900}), tokens=10**9, lease=1e3
        )
    )
    for node, memory in (("large", 1000), ("short", 500), ("small", 500)):
        engine.hello(node, profile=NodeProfile(memory_bytes=memory))
    engine.next("large")
    while not (long := [work for work in engine.state.works.values() if work.rows[0].shard % 2]):
        engine.offer("large", contribution(next(iter(engine.held["large"].values()))))
        while engine.jobs:
            engine.answer(engine.jobs[0])
        engine.next("large")
    engine.next("short")
    short = engine.state.totals.assigned
    engine.leave("large")
    engine.leave("short")
    assert list(engine.state.redo) == [long[0].assignment, short]
    engine.next("small")
    assert list(engine.state.redo) == [long[0].assignment]
    assert assigned(engine)[-1].redo == short


def test_one_nodes_claimed_round_trip_does_not_lengthen_other_tasks() -> None:
    """No node can stretch the rounds of all nodes beyond a few times those of the median node."""
    steps = []
    for round_trip in (0.01, 3600.0):
        engine = Engine(engine_settings(pace="matched", tokens=10**9))
        for node in "abcd":
            engine.hello(node)
        engine.observed(a=10.0, b=10.0, c=10.0, d=10.0)
        for state in (engine.state, engine.shadow):
            for node in state.nodes.values():
                node.speed.turnaround = 60.0  # most of it computing
        for node in "abcd":
            engine.machine.parts[NodeRecords][node].link = LinkReport(round_trip if node == "d" else 0.01, 1e6, 1e6)
        for node in "abc":
            engine.next(node)
        steps.append([d.local_steps for d in assigned(engine)])
    assert steps[0] == steps[1]


def test_a_shard_cursor_that_begins_a_new_epoch_is_offered_again() -> None:
    """With as many nodes as shards all cursors stay open, and each lasts for an epoch."""
    engine = Engine(
        engine_settings(
            rows=RowIndex([40] * 2, lengths=[3] * 2),
            needs=RowNeeds(100, {}),
            tokens=10**9,
            buffer_size=1,
            lease=1e3,
            scheduler=partial(scheduler, "gale_shapley"),
        )
    )
    engine.hello("a")
    engine.hello("b")
    engine.next("a")
    offered = {task.id: task.times for task in engine.machine.parts[Dispatch].scheduler.on_offer}
    assert set(offered.values()) == {10.0}
    for _ in range(16):
        for node in ("a", "b"):
            for task in list(engine.held[node].values()):
                engine.offer(node, contribution(task))
            while engine.jobs:
                engine.answer(engine.jobs[0])
            engine.next(node)
    assert min(engine.state.totals.handed.values()) > 40
    standing = engine.machine.parts[Dispatch].scheduler
    assert isinstance(standing, GaleShapley)
    assert all(0 < each.left <= 10 for each in standing._places.values())
