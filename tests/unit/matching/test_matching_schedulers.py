"""The schedulers by name: what each gives to whom, what none ever does, and what they cost against the optimum."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from barnraise import matching
from barnraise.core.errors import InputError, OptionError, UnknownNameError
from barnraise.matching import NodeView, Preferences, Scheduler, TaskView

NAMES = [
    "capability",
    "dt_fm",
    "fifo",
    "gale_shapley",
    "greedy",
    "htcondor",
    "optimum",
    "priority",
    "random",
    "round_robin",
    "swarm",
]


@pytest.fixture(params=NAMES)
def scheduler(request: pytest.FixtureRequest) -> Scheduler:
    return matching.create(request.param)


def test_the_catalog_lists_them() -> None:
    assert matching.CATALOG.names() == NAMES
    for name in NAMES:
        assert isinstance(matching.create(name), Scheduler)


def test_unknown_names_and_options_are_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'fifo'"):
        matching.create("fif")
    with pytest.raises(OptionError, match="did you mean 'priority_first'"):
        matching.create("gale_shapley", priorityfirst=True)
    with pytest.raises(OptionError, match="default_speed"):
        matching.create("gale_shapley", default_speed=0.0)
    with pytest.raises(OptionError, match="default_bandwidth"):
        matching.create("gale_shapley", default_bandwidth=float("inf"))
    with pytest.raises(OptionError, match="default_speed"):
        Preferences(default_speed=float("nan"))


def test_importing_the_package_loads_neither_numpy_nor_torch() -> None:
    code = (
        "import sys, barnraise.matching; print([name for name in ('numpy', 'torch', 'scipy') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_public_name_resolves() -> None:
    for name in matching.__all__:
        assert getattr(matching, name) is not None
    assert callable(matching.deferred_acceptance)
    with pytest.raises(AttributeError, match="no attribute 'deferred'"):
        _ = matching.deferred


def test_fifo_gives_the_oldest_task_to_the_first_node() -> None:
    tasks = [TaskView(1, 10), TaskView(2, 1000, priority=9), TaskView(3)]
    nodes = [NodeView("slow", 1.0), NodeView("fast", 1000.0)]
    assert matching.create("fifo").assign(tasks, nodes) == [(1, "slow"), (2, "fast")]


def test_fifo_skips_what_the_node_cannot_run_and_comes_back_for_it() -> None:
    tasks = [TaskView(1, memory_bytes=100), TaskView(2), TaskView(3, memory_bytes=100), TaskView(4)]
    nodes = [NodeView("small"), NodeView("large", memory_bytes=100, capacity=2)]
    assert matching.create("fifo").assign(tasks, nodes[:1]) == [(2, "small")]
    assert matching.create("fifo").assign(tasks, nodes) == [(1, "large"), (2, "small"), (3, "large")]


def test_priority_gives_the_most_urgent_first_the_oldest_of_equals() -> None:
    tasks = [TaskView(1), TaskView(2, priority=2), TaskView(3, priority=2), TaskView(4, priority=-1)]
    scheduler = matching.create("priority")
    assert scheduler.assign(tasks, [NodeView("a", capacity=3)]) == [(2, "a"), (3, "a"), (1, "a")]
    assert scheduler.assign(tasks, [NodeView("a"), NodeView("b")]) == [(2, "a"), (3, "b")]


def test_capability_gives_the_largest_task_to_the_fastest_node() -> None:
    tasks = [TaskView(1, 10), TaskView(2, 1000), TaskView(3, 100)]
    nodes = [NodeView("unmeasured"), NodeView("slow", 1.0), NodeView("fast", 1000.0)]
    assert matching.create("capability").assign(tasks, nodes) == [(2, "fast"), (3, "slow"), (1, "unmeasured")]


def test_deferred_acceptance_weighs_links_against_speed() -> None:
    # The fast node is behind a thin link: the task with much to move goes to the well connected one.
    nodes = [
        NodeView("fast", speed=1000.0, down_bandwidth=1e3, up_bandwidth=1e3),
        NodeView("near", speed=100.0, down_bandwidth=1e8, up_bandwidth=1e8),
    ]
    tasks = [TaskView(1, work=10_000, down_bytes=10_000_000), TaskView(2, work=9_000)]
    assert matching.create("gale_shapley").assign(tasks, nodes) == [(1, "near"), (2, "fast")]
    assert matching.create("capability").assign(tasks, nodes) == [(1, "fast"), (2, "near")]


def test_nodes_rank_work_then_priority_then_trust_then_locality() -> None:
    order = [
        TaskView(1, work=2),
        TaskView(2, work=1, priority=5),
        TaskView(3, work=1, min_trust=0.5),
        TaskView(4, work=1, shards={7: 100}),
        TaskView(5, work=1, shards={7: 50, 8: 50}),
        TaskView(6, work=1),
    ]
    node = NodeView("a", capacity=6, shards={7})
    scheduler = matching.create("gale_shapley")
    assert [task for task, _ in scheduler.assign(order[::-1], [node])] == [1, 2, 3, 4, 5, 6]
    for capacity in range(6):  # and the same when others compete for slots
        pair = [NodeView("a", capacity=capacity, shards={7}), NodeView("none", capacity=0)]
        assert {task for task, _ in scheduler.assign(order[::-1], pair)} == set(range(1, capacity + 1))
    urgent = matching.create("gale_shapley", priority_first=True)
    assert urgent.assign(order, [NodeView("a")]) == [(2, "a")]


def test_cost_is_compute_plus_transfer() -> None:
    task = TaskView(1, work=1000, down_bytes=100, up_bytes=50, shards={1: 300, 2: 600})
    node = NodeView("a", speed=200, down_bandwidth=10, up_bandwidth=25, latency=0.5, shards={2, 9})
    assert Preferences().cost(task, node) == 1000 / 200 + 0.5 + (100 + 300) / 10 + 50 / 25
    assert Preferences(default_speed=500, default_bandwidth=100).cost(task, NodeView("new")) == 2 + 0 + 1000 / 100 + 0.5


def test_nodes_that_are_not_measured_yet_still_get_work(scheduler: Scheduler) -> None:
    tasks = [TaskView(1, 100, down_bytes=100), TaskView(2, 100, down_bytes=100)]
    nodes = [NodeView("new"), NodeView("known", 5000.0, 1e6, 1e6), NodeView("crawling", 1e-300, 1e-300, 1e-300)]
    assert len(scheduler.assign(tasks, [nodes[0], nodes[1]])) == 2
    assert len(scheduler.assign(tasks, [nodes[0], nodes[2]])) == 2
    assert len(scheduler.assign(tasks, [nodes[2]])) == 1


@pytest.mark.parametrize(
    "task",
    [
        TaskView(1, memory_bytes=101),
        TaskView(1, min_trust=0.6),
        TaskView(1, kind="audit"),
        TaskView(1, accelerator_bytes=9),
        TaskView(1, only=frozenset({"fit", "gone"})),
    ],
    ids=["memory", "trust", "kind", "accelerator", "only"],
)
def test_no_task_goes_where_its_requirements_are_not_met(scheduler: Scheduler, task: TaskView) -> None:
    unfit = NodeView("unfit", 1e6, memory_bytes=100, trust=0.5, kinds={"train", "evaluate"})
    fit = NodeView("fit", 1.0, memory_bytes=101, trust=0.6, accelerator_bytes=9)
    assert scheduler.assign([task], [unfit]) == []
    assert scheduler.assign([task], [unfit, dataclasses.replace(unfit, id="other")]) == []
    assert scheduler.assign([task], [unfit, fit]) == [(1, "fit")]
    assert (1, "unfit") not in scheduler.assign([task, TaskView(2)], [unfit, fit])


def test_nothing_to_do(scheduler: Scheduler) -> None:
    for nodes in ([], [NodeView("a")], [NodeView("a"), NodeView("b")]):
        assert scheduler.assign([], nodes) == []
    assert scheduler.assign([TaskView(1)], []) == []
    assert scheduler.assign([TaskView(1)], [NodeView("a", capacity=0)]) == []


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: TaskView(3, work=float("nan")), "task 3: work is nan"),
        (lambda: TaskView(3, up_bytes=-1), "task 3: up_bytes is -1"),
        (lambda: TaskView(3, memory_bytes=10**400), "task 3: memory_bytes is 1000"),
        (lambda: TaskView(3, priority=float("inf")), "task 3: priority is inf"),
        (lambda: TaskView(3, shards={4: -5}), "task 3: shard 4 has -5 bytes"),
        (lambda: NodeView("n", speed=float("inf")), "node 'n': speed is inf"),
        (lambda: NodeView("n", latency=-0.1), "node 'n': latency is -0.1"),
        (lambda: NodeView("n", capacity=-1), "node 'n': capacity is -1"),
        (lambda: NodeView("n", capacity=1.5), "node 'n': capacity is 1.5"),  # type: ignore[arg-type]
    ],
)
def test_views_refuse_what_no_machine_can_be(build: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        build()


def heterogeneous(seed: int, size: int = 150) -> tuple[list[TaskView], list[NodeView]]:
    """Draw lognormal speeds, links and sizes, clipped to a spread of 0.01 to 100."""
    random = np.random.default_rng(seed)
    speed, up, down, work, num_bytes = np.clip(random.lognormal(0, 1, (5, size)), 0.01, 100)
    nodes = [NodeView(f"n{i}", speed[i] * 1e3, up[i] * 1e6, down[i] * 1e6, 0.05) for i in range(size)]
    tasks = [
        TaskView(j, work[j] * 2e4, down_bytes=num_bytes[j] * 2e6, up_bytes=num_bytes[j] * 5e5, priority=float(j % 3))
        for j in range(size)
    ]
    return tasks, nodes


@pytest.mark.parametrize("alias", ["gale-shapley", "deferred_acceptance"])
def test_other_spellings_are_taken_for_the_name(alias: str) -> None:
    tasks, nodes = heterogeneous(3, 20)
    named = matching.create("gale_shapley", priority_first=True)
    assert matching.create(alias, priority_first=True).assign(tasks, nodes) == named.assign(tasks, nodes)
    assert alias not in matching.CATALOG.names()
    assert matching.CATALOG.entry(alias).name == "gale_shapley"


def mixed(seed: int, size: int = 40) -> tuple[list[TaskView], list[NodeView]]:
    """Draw speeds, links, memory, kinds, shards and priorities that differ; as many slots as tasks."""
    tasks, nodes = heterogeneous(seed, size)
    random = np.random.default_rng(seed)
    for i, node in enumerate(nodes):
        kinds = frozenset({"train", "evaluate"} if i % 5 else {"train"})
        shards = frozenset(random.choice(8, 3, replace=False).tolist())
        nodes[i] = dataclasses.replace(node, memory_bytes=int(random.integers(4, 24)), kinds=kinds, shards=shards)
    for j, task in enumerate(tasks):
        kind = "evaluate" if j % 9 == 0 else "train"
        shards = {int(random.integers(0, 8)): 20_000_000}
        tasks[j] = dataclasses.replace(task, kind=kind, memory_bytes=int(random.integers(1, 12)), shards=shards)
    return tasks, nodes


def test_any_two_give_different_assignments_and_each_the_same_again() -> None:
    def run(name: str) -> list[dict[int, str]]:
        scheduler = matching.create(name)  # asked twice: some of them differ only in what they remember
        markets = [mixed(seed, 50) for seed in (1, 2)]
        return [dict(scheduler.assign(tasks, nodes[:40])) for tasks, nodes in markets]

    found = {name: run(name) for name in NAMES}
    for name, other in itertools.combinations(NAMES, 2):
        assert found[name] != found[other], (name, other)
    for name in NAMES:
        assert run(name) == found[name]
        assert all(len(pairs) >= 35 for pairs in found[name])


def test_a_scheduler_with_the_same_history_decides_the_same() -> None:
    def run(name: str) -> list[list[tuple[int, str]]]:
        scheduler, random = matching.create(name), np.random.default_rng(5)
        tasks, nodes = mixed(2)
        asking = [[nodes[int(i)] for i in random.choice(len(nodes), 3, replace=False)] for _ in range(20)]
        return [scheduler.assign(tasks[k : k + 6], some) for k, some in enumerate(asking)]

    for name in NAMES:
        assert run(name) == run(name)


def test_round_robin_continues_after_the_last_node() -> None:
    scheduler = matching.create("round_robin")
    nodes = [NodeView("c"), NodeView("a"), NodeView("b")]
    assert scheduler.assign([TaskView(1), TaskView(2)], nodes) == [(1, "a"), (2, "b")]
    assert scheduler.assign([TaskView(3), TaskView(4)], nodes) == [(3, "c"), (4, "a")]
    assert scheduler.assign([TaskView(5)], [NodeView("a"), NodeView("c")]) == [(5, "c")]


def test_random_follows_its_seed() -> None:
    tasks, nodes = mixed(4)
    one, other = matching.create("random", seed=1), matching.create("random", seed=2)
    first = one.assign(tasks, nodes)
    assert first != one.assign(tasks, nodes)
    assert first == matching.create("random", seed=1).assign(tasks, nodes) != other.assign(tasks, nodes)


def test_greedy_takes_the_cheapest_pair_first() -> None:
    tasks, nodes = [TaskView(1, 1000), TaskView(2, 10)], [NodeView("slow", 1.0), NodeView("fast", 10.0)]
    assert matching.create("greedy").assign(tasks, nodes) == [(2, "fast"), (1, "slow")]
    assert matching.create("optimum").assign(tasks, nodes) == [(1, "fast"), (2, "slow")]


def test_htcondor_gives_the_most_urgent_the_fastest_that_is_willing() -> None:
    tasks = [TaskView(1, kind="audit"), TaskView(2, priority=1), TaskView(3, memory_bytes=100)]
    nodes = [NodeView("slow", 1.0, memory_bytes=100), NodeView("fast", 9.0, kinds={"train"}), NodeView("middle", 5.0)]
    assert matching.create("htcondor").assign(tasks, nodes) == [(2, "fast"), (1, "middle"), (3, "slow")]


def test_swarm_balances_expected_runtime() -> None:
    """Algorithm 1 by hand: a node with twice the throughput takes two tasks for one of the other's."""
    scheduler = matching.create("swarm", smoothing=1.0)
    nodes = [NodeView("slow", 10.0, capacity=9), NodeView("fast", 20.0, capacity=9)]
    given = [node for _, node in scheduler.assign([TaskView(j, 20) for j in range(6)], nodes)]
    assert given == ["slow", "fast", "fast", "slow", "fast", "fast"]
    late = [*nodes, NodeView("late", 20.0, capacity=9)]  # it begins where the others stand: no flood
    given = [node for _, node in scheduler.assign([TaskView(j, 20) for j in range(10)], late)]
    assert given.count("late") <= 5


def test_the_genetic_search_comes_near_the_optimum_and_more_generations_nearer() -> None:
    tasks, nodes = heterogeneous(7, 60)
    cost = np.array([[Preferences().cost(task, node) for node in nodes] for task in tasks])
    best = matching.assignment_optimum(cost, [1] * 60)
    totals = []
    for generations in (0, 100, 1000):
        pairs = matching.create("dt_fm", generations=generations).assign(tasks, nodes)
        totals.append(sum(cost[task, int(node[1:])] for task, node in pairs))
    assert best <= totals[2] <= totals[1] <= totals[0]
    assert totals[2] < 1.1 * best


def test_optimum_is_that_of_brute_force() -> None:
    random = np.random.default_rng(0)
    for _ in range(30):
        tasks = [TaskView(j, float(work)) for j, work in enumerate(random.integers(1, 20, 4))]
        nodes = [
            NodeView(str(i), float(speed), latency=float(wait))
            for i, (speed, wait) in enumerate(random.integers(1, 9, (4, 2)))
        ]
        cost = np.array([[Preferences().cost(task, node) for node in nodes] for task in tasks])
        least = min(sum(cost[j, i] for j, i in enumerate(order)) for order in itertools.permutations(range(4)))
        pairs = matching.create("optimum").assign(tasks, nodes)
        assert sum(cost[task, int(node)] for task, node in pairs) == pytest.approx(least)
        assert matching.assignment_optimum(cost, [1] * 4) == pytest.approx(least)
        assert matching.relaxed_optimum(cost, [1] * 4, [1] * 4)[0] == pytest.approx(least)


def test_work_is_never_more_than_a_node_takes() -> None:
    for seed in range(3):
        tasks, nodes = mixed(seed)
        total, speed = sum(task.work for task in tasks), sum(node.speed for node in nodes)
        sized = [dataclasses.replace(n, capacity=100, work_capacity=2 * total * n.speed / speed) for n in nodes]
        work, task_of = {task.id: task.work for task in tasks}, {task.id: task for task in tasks}
        for name in NAMES:
            pairs = matching.create(name).assign(tasks, sized)
            assert len(dict(pairs)) == len(pairs) > 10, name
            for node in sized:
                held = [task for task, given in pairs if given == node.id]
                assert sum(work[task] for task in held) <= node.work_capacity * (1 + 1e-9), name
                assert all(task_of[task].memory_bytes <= node.memory_bytes for task in held), name


def test_cost_against_the_optimum() -> None:
    """The least total is nearly reached by a stable matching at congestion prices and by the genetic search alone."""
    ratios: dict[str, list[float]] = {}
    for seed in range(3):
        tasks, nodes = heterogeneous(seed)
        cost = np.array([[Preferences().cost(task, node) for node in nodes] for task in tasks])
        optimum = cost[linear_sum_assignment(cost)].sum()
        place = {node.id: i for i, node in enumerate(nodes)}
        for name in NAMES:
            pairs = matching.create(name).assign(tasks, nodes)
            assert len(pairs) == len(tasks)
            total = sum(cost[task, place[node]] for task, node in pairs)
            assert total >= optimum * (1 - 1e-9)
            ratios.setdefault(name, []).append(total / optimum)
    mean = {label: float(np.mean(values)) for label, values in ratios.items()}
    assert mean["optimum"] < 1 + 1e-9
    assert mean["gale_shapley"] < 1.03
    assert all(mean["gale_shapley"] < mean[name] for name in NAMES if name not in ("optimum", "dt_fm", "gale_shapley"))
    assert min(mean[name] for name in ("fifo", "random", "round_robin")) > 1.5


def test_a_switching_cost_holds_what_is_on_offer_where_it_is() -> None:
    def rematches(**options: float) -> int:
        found = matching.create("gale_shapley", **options)
        found.offer([TaskView(-1, 1000.0), TaskView(-2, 100.0)])
        for a, b in [(10.0, 5.0), (5.0, 10.0), (10.0, 5.0), (5.0, 10.0)]:
            found.place([], [NodeView("a", a), NodeView("b", b)])
        figures = found.figures()
        assert figures is not None
        return figures.rematches

    assert rematches() >= 4
    assert rematches(switching_cost=1000.0) == 0
    with pytest.raises(OptionError, match="switching_cost"):
        matching.create("gale_shapley", switching_cost=-1.0)
