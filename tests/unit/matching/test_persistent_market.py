"""The state between calls: the places of a market, and a plan for all nodes."""

from __future__ import annotations

import pytest

from barnraise.matching import NodeView, TaskView
from barnraise.matching.dt_fm import DTFM
from barnraise.matching.optimum import Optimum
from barnraise.matching.persistent_market import GaleShapley
from barnraise.matching.planned import Planned

NODES = [NodeView(f"n{i}", speed=1.0 + i) for i in range(8)]


def lane(number: int, times: float = 1e18, work: float = 100.0) -> TaskView:
    return TaskView(-number, work, shards={number: 1000}, times=times)


def places(scheduler: GaleShapley, original: int) -> int:
    return sum(scheduler.original(task.id) == original for task in scheduler.market.tasks)


def test_a_market_has_no_more_places_for_a_lane_than_it_has_tasks_left() -> None:
    scheduler = GaleShapley()
    scheduler.offer([lane(1), lane(2, times=6)])
    left, seen = 6, set()
    for node in NODES * 3:
        left -= scheduler.place([], [node]) == [(-2, node.id)]
        count = places(scheduler, -2)
        seen.add(count)
        assert 1 <= count <= max(1, left)  # one as long as it is on offer
    assert seen >= {1, 4}
    assert places(scheduler, -1) == 4
    scheduler.offer([lane(1), lane(3)])
    assert (places(scheduler, -1), places(scheduler, -2), places(scheduler, -3)) == (4, 0, 4)


def test_a_market_of_one_lane_does_not_stand_and_says_why() -> None:
    scheduler = GaleShapley()
    assert "no task is on offer" in scheduler.no_market()
    scheduler.offer([lane(1)])
    scheduler.place([], NODES)
    assert scheduler.figures() is None
    assert "one lane of rows" in scheduler.no_market()
    scheduler.offer([lane(1), lane(2)])
    assert scheduler.no_market() == ""
    assert "keeps none" in Optimum().no_market()


def test_a_market_at_prices_is_stable_at_them_and_less_so_by_time_alone() -> None:
    """The faster a node computes the slower it fetches: prices send tasks past the node that is soonest done."""
    nodes = [NodeView(f"n{i}", speed=1.0 + i, down_bandwidth=1000.0 / (1 + i)) for i in range(8)]
    stability = {}
    for priced in (False, True):
        scheduler = GaleShapley(priced=priced)
        scheduler.offer([TaskView(-k, 100.0 * k, shards={k: 20_000 * (1 + k % 3)}) for k in range(1, 9)])
        scheduler.place([], nodes)
        scheduler.market.renew()
        found = scheduler.figures()
        assert found is not None
        assert found.priced == 1.0
        stability[priced] = found.stability
    assert stability[False] == 1.0
    assert stability[True] < 0.5


def test_offers_have_no_prices_by_default() -> None:
    prices = []
    for scheduler in (GaleShapley(), GaleShapley(priced=True)):
        scheduler.offer([lane(1), lane(2, work=1000.0)])
        scheduler.place([], NODES)
        scheduler.market.renew()
        prices.append(max(scheduler.market.prices.values()))
    assert prices[0] == 0.0 < prices[1]


def test_lanes_that_replace_others_are_one_event_of_the_market() -> None:
    scheduler = GaleShapley()
    scheduler.offer([lane(1), lane(2)])
    scheduler.place([], NODES)
    moves = scheduler.tally.moves
    scheduler.offer([lane(1), lane(3)])
    assert scheduler.tally.moves - moves == 4  # those that come take the places of those that go
    assert not scheduler.market.blocking_pairs()


def test_a_lane_offered_again_has_its_new_length() -> None:
    scheduler = GaleShapley()
    scheduler.offer([lane(1), lane(2, times=1)])
    scheduler.place([], NODES)
    scheduler.offer([lane(1)])
    scheduler.offer([lane(1), lane(2, times=4)])
    assert places(scheduler, -2) == 4


@pytest.mark.parametrize("scheduler", [Optimum(), DTFM(generations=20)], ids=["optimum", "dt_fm"])
def test_a_plan_is_for_all_nodes_though_one_alone_asks(scheduler: Planned) -> None:
    """The slow one would be done sooner with the short task, but it is worth more to the fast one's line."""
    slow = NodeView("slow", speed=10.0, shards=frozenset({1, 2}))
    fast = NodeView("fast", speed=1000.0, down_bandwidth=10.0, shards=frozenset({1}))
    scheduler.offer([lane(1, work=90.0), lane(2, work=100.0)])
    assert scheduler.place([], [slow]) == [(-1, "slow")]  # it is alone, and takes what is cheapest
    assert scheduler.place([], [fast]) == [(-1, "fast")]  # 100 s for the other's bytes
    assert scheduler.place([], [slow]) == [(-2, "slow")]
    scheduler.forget("fast")
    assert scheduler.place([], [slow]) == [(-1, "slow")]


def test_a_plan_is_remade_for_a_changed_speed_and_not_for_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, made = Optimum(), []
    assign = scheduler.assign
    monkeypatch.setattr(scheduler, "assign", lambda tasks, nodes: made.append(len(nodes)) or assign(tasks, nodes))
    scheduler.offer([lane(1), lane(2)])
    for speed in (100.0, 110.0, 90.0, 200.0):
        scheduler.place([], [NodeView("a", speed=speed)])
    assert made == [1, 1]


def test_a_node_without_a_feasible_planned_task_gets_a_feasible_one() -> None:
    scheduler = Optimum()
    large = TaskView(-1, 10.0, memory_bytes=100)
    scheduler.offer([large, lane(2)])
    small = [NodeView(name, memory_bytes=10) for name in ("a", "b", "c")]
    scheduler.place([], [NodeView("big", memory_bytes=100)])
    assert [scheduler.place([], [node]) for node in small] == [[(-2, node.id)] for node in small]
    assert scheduler.place([large], small) == [(-2, node.id) for node in small]
