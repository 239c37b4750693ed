"""Measure the time and the gain of matching: repair at scale, from scratch, each scheduler beside the optimum.

    python benchmarks/matching.py            about five minutes

1. Repair: nodes with one or two slots, speeds, links and sizes lognormal, clipped to 0.1 to 100; a random node leaves,
   another of a different speed joins. CPU time of the thread, of each event the least of five runs; over the events.
2. From scratch: a market that opens (tables, prices and matching), and deferred acceptance alone on lists of 64 nodes.
3. Cost against the least possible, n tasks on n nodes of one slot each, and of every fifth task urgent. Then tasks with
   sizes against the linear relaxation of

       min sum_ij x_ij c_ij,   sum_i x_ij = 1,   sum_j w_j x_ij <= C_i

   with C_i in proportion to speed, twice the work there is in all. Median and range over the seeds.
4. Churn at the prices of the start: cost, moves an event, blocking pairs, stability index; then prices renewed.

Targets: repair p50 < 0.2 ms, p95 < 1 ms at 10,000; lists < 0.5 s at 10,000 and < 2 s at 100,000; cost <= 1.02 times the
optimum for unit tasks, <= 1.08 times the bound for sized ones; no blocking pair.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Sequence

import numpy as np

from barnraise import matching
from barnraise.matching import Market, NodeView, Preferences, TaskView
from barnraise.matching.metrics import MatchingTally, TimeAverage
from barnraise.matching.tables import cost_matrix

RUNS = 5
PREFERENCES = Preferences()
SLOW = {"dt_fm": {"generations": 300}}


def fleet(seed: int, size: int, slots: int = 1, urgent: float = 0.0) -> tuple[list[TaskView], list[NodeView]]:
    """Return as many tasks as nodes; each node has one to `slots` slots."""
    random = np.random.default_rng(seed)

    def lognormal() -> np.ndarray:
        return np.clip(random.lognormal(0, 1, size), 0.1, 100)

    speed, up, down, work, num_bytes = (lognormal() for _ in range(5))
    latency, capacity = random.uniform(0.005, 0.13, size), random.integers(1, slots + 1, size)
    priority = (random.random(size) < urgent).astype(float)
    nodes = [NodeView(f"n{i}", speed[i], up[i], down[i], latency[i], capacity=int(capacity[i])) for i in range(size)]
    tasks = [
        TaskView(j, work[j], down_bytes=0.2 * num_bytes[j], up_bytes=0.1 * num_bytes[j], priority=priority[j])
        for j in range(size)
    ]
    return tasks, nodes


def sized(tasks: list[TaskView], nodes: list[NodeView], slack: float) -> list[NodeView]:
    """The same nodes, with room for work in proportion to their speed, `slack` times what there is."""
    share = slack * sum(task.work for task in tasks) / sum(node.speed for node in nodes)
    return [dataclasses.replace(n, capacity=len(tasks), work_capacity=share * n.speed) for n in nodes]


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def repair(size: int, events: int, switching_cost: float, in_work: bool = False) -> None:
    """The same events on several markets: of each event the least time, since others may use the machine, too."""
    runs = [play(size, events, switching_cost, in_work) for _ in range(RUNS)]
    market, moves = runs[0][0], runs[0][3]
    opened = min(run[1] for run in runs)
    blocking = len(market.blocking_pairs()) if size <= 2000 else "not looked for"
    what = "work" if in_work else "slots"
    print(f"{size:6} nodes, {what}, switching cost {switching_cost:g} s: opened in {opened:.2f} s", end="")
    for kind in ("leave", "join"):
        least = np.min([run[2][kind] for run in runs], axis=0)
        middle, late = np.quantile(least, [0.5, 0.95])
        print(f"; {kind} p50 {middle:.3f} ms, p95 {late:.3f} ms, {np.mean(moves[kind]):.1f} moves", end="")
    print(f"; blocking pairs: {blocking}")


def play(
    size: int, events: int, switching_cost: float, in_work: bool
) -> tuple[Market, float, dict[str, list[float]], dict[str, list[int]]]:
    """Return the market, seconds to open it, milliseconds of each event, and moves of each event."""
    tasks, nodes = fleet(0, size, slots=2)
    if in_work:
        nodes = sized(tasks, nodes, 2.0)
    began = time.thread_time()
    market = Market(Preferences(switching_cost=switching_cost), nodes, tasks, sized=in_work)
    opened = time.thread_time() - began
    random = np.random.default_rng(1)
    taken: dict[str, list[float]] = {"leave": [], "join": []}
    moves: dict[str, list[int]] = {"leave": [], "join": []}
    for event in range(events):
        place = int(random.integers(size))
        gone = nodes[place]
        speed = gone.speed * float(np.exp(0.3 * random.normal()))
        nodes[place] = dataclasses.replace(gone, id=f"x{event}", speed=speed)
        for what in ("leave", "join"):
            began = time.thread_time()
            moved = market.leave(gone.id) if what == "leave" else market.join(nodes[place])
            taken[what].append(1000 * (time.thread_time() - began))
            moves[what].append(len(moved))
    return market, opened, taken, moves


def from_lists(size: int, length: int = 64) -> None:
    """Every task knows `length` nodes, nearest first by cost; nodes rank by size."""
    random = np.random.default_rng(0)
    speed, work = np.clip(random.lognormal(0, 1, (2, size)), 0.1, 100)
    known = random.integers(0, size, (size, length))
    costs = work[:, None] / speed[known] + random.exponential(1.0, (size, length))
    order = np.argsort(costs, axis=1)
    known, scores = np.take_along_axis(known, order, axis=1), np.repeat(work[:, None], length, axis=1)
    taken = []
    for _ in range(3):
        began = time.thread_time()
        found = matching.deferred_acceptance_from_lists(known, scores, np.ones(size, dtype=int))
        taken.append(time.thread_time() - began)
    print(f"{size:6} tasks with lists of {length}: {min(taken):.3f} s, {np.mean(found >= 0):.1%} placed")


def total(pairs: dict[int, str], tasks: list[TaskView], nodes: list[NodeView]) -> float:
    task_of, node_of = {task.id: task for task in tasks}, {node.id: node for node in nodes}
    return sum(PREFERENCES.cost(task_of[j], node_of[i]) for j, i in pairs.items())


def costs(size: int, seeds: int, urgent: float, slack: float | None) -> None:
    """A table: of every scheduler the ratio to the least total, where all tasks were placed."""
    ratios: dict[str, list[float]] = {name: [] for name in [*matching.CATALOG.names(), "(without prices)"]}
    left = dict.fromkeys(ratios, 0)
    for seed in range(seeds):
        tasks, nodes = fleet(seed, size, urgent=urgent)
        if slack:
            nodes = sized(tasks, nodes, slack)
            work, room = [task.work for task in tasks], [node.work_capacity for node in nodes]
            bound, _ = matching.relaxed_optimum(cost_matrix(PREFERENCES, tasks, nodes), work, room)
        else:
            bound = matching.assignment_optimum(cost_matrix(PREFERENCES, tasks, nodes), [1] * size)
        for name in ratios:
            if name in matching.CATALOG.names():
                found = dict(matching.create(name, **SLOW.get(name, {})).assign(tasks, nodes))
            else:
                found = Market(PREFERENCES, nodes, tasks, sized=bool(slack), priced=False).assignment
            left[name] += size - len(found)
            if len(found) == size:
                ratios[name].append(1 + matching.regret(total(found, tasks, nodes), bound))
    what = f"sized, {slack:g} times the room" if slack else f"one slot each, {urgent:.0%} urgent"
    print(f"{size} tasks and nodes, {what}, {seeds} seeds")
    for name, values in sorted(ratios.items(), key=lambda item: statistics.median(item[1] or [np.inf])):
        said = spread(values) if values else "never placed all"
        print(f"  {name:18} {said}{f', {left[name]} tasks without a place' if left[name] else ''}")


def churn(size: int, events: int, seeds: int) -> None:
    """Measure churn: half of the events are nodes that leave and join, half are finished and new tasks."""
    after, renewed, index, tally, blocking = [], [], [], MatchingTally(), 0
    for seed in range(seeds):
        tasks, nodes = fleet(seed, size)
        others, more = fleet(seed + 1000, events)[::-1]
        market, random, stability = Market(PREFERENCES, nodes, tasks), np.random.default_rng(seed), TimeAverage()
        for event in range(events // 4):
            j, i = (int(k) for k in random.integers(size, size=2))
            moved = [market.leave(nodes[i].id), market.remove(tasks[j].id)]
            nodes[i] = dataclasses.replace(others[event], id=f"x{event}")
            tasks[j] = dataclasses.replace(more[event], id=size + event)
            moved += [market.join(nodes[i]), market.add(tasks[j])]
            tally.events += 4
            tally.moves += sum(map(len, moved))
            blocking += len(market.blocking_pairs())
            if event % 10 == 0:
                stability.note(event, true_stability(market, tasks, nodes))
        least = matching.assignment_optimum(cost_matrix(PREFERENCES, tasks, nodes), [1] * size)
        assert len(market.assignment) == size
        after.append(total(market.assignment, tasks, nodes) / least)
        index.append(stability.mean(events // 4))
        market.renew()
        renewed.append(total(market.assignment, tasks, nodes) / least)
    print(
        f"{size} tasks and nodes, {events} events: cost {spread(after)}, prices renewed {spread(renewed)}; "
        f"{tally.moves_an_event:.2f} moves an event, {blocking} blocking pairs at the prices in use; "
        f"stability index without prices, over time {spread(index)}"
    )


def true_stability(market: Market, tasks: list[TaskView], nodes: list[NodeView]) -> float:
    """Return the stability index by time alone; only a gain of a tenth of the paid cost or more counts."""
    scores = -cost_matrix(PREFERENCES, tasks, nodes)
    ranks = np.repeat([[PREFERENCES.standing(task)[0]] for task in tasks], len(nodes), axis=1)  # nothing else differs
    place, assignment = {node.id: i for i, node in enumerate(nodes)}, market.assignment
    at = np.array([place[assignment[task.id]] if task.id in assignment else -1 for task in tasks])
    paid = -scores[np.arange(len(tasks)), at]
    return matching.stability_index(scores, ranks, [node.capacity for node in nodes], at, 0.1 * paid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    quick = parser.parse_args().quick
    for size in (200,) if quick else (1000, 10_000):
        repair(size, 20 if quick else 500, 0.0)
        repair(size, 20 if quick else 500, 0.1)
    for size in (100,) if quick else (1000, 10_000):
        repair(size, 20 if quick else 300, 0.0, in_work=True)
    for size in (500,) if quick else (10_000, 100_000):
        from_lists(size)
    size, seeds = (40, 2) if quick else (400, 10)
    costs(size, seeds, 0.0, None)
    costs(size, seeds, 0.2, None)
    costs(size, seeds, 0.0, 2.0)
    churn(size, 40 if quick else 400, seeds)


if __name__ == "__main__":
    main()
