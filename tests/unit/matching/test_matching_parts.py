"""The parts of the market: labels of ranks, size classes, prices, bounds and counts."""

from __future__ import annotations

import doctest
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from barnraise import matching
from barnraise.core.errors import InputError
from barnraise.matching import MatchingTally, NodeView, TaskView, TimeAverage, metrics, optimum, preferences
from barnraise.matching.labels import Labels
from barnraise.matching.level import Level
from barnraise.matching.preferences import NO_WORK, class_size, size_class
from barnraise.matching.prices import congestion_prices, fill_prices
from barnraise.matching.scores import Floats, Ints


@pytest.mark.parametrize("module", [metrics, optimum, preferences])
def test_the_docstring_examples_hold(module: object) -> None:
    results = doctest.testmod(module)  # type: ignore[arg-type]
    assert results.attempted
    assert not results.failed


@given(st.floats(0, 1e18))
def test_a_size_class_holds_its_work_and_wastes_less_than_half_an_octave(work: float) -> None:
    index = size_class(work)
    assert (index == NO_WORK) == (work == 0)
    assert class_size(index) >= work
    assert work == 0 or class_size(index) <= work * 2**0.5 * (1 + 1e-9) or work < 1e-300


def test_the_largest_work_of_a_size_class_is_in_it() -> None:
    """Twice the logarithm of an odd class's bound is rounded up past it."""
    assert [size_class(class_size(index)) for index in range(-1000, 1000)] == list(range(-1000, 1000))


def test_a_task_that_fits_nowhere_has_no_optimum_and_leaves_the_others_theirs() -> None:
    total, shares = matching.relaxed_optimum([[np.inf]], [1.0], [1.0])
    assert total == np.inf
    assert not shares.any()
    total, shares = matching.relaxed_optimum([[np.inf, np.inf], [1.0, 2.0]], [1.0, 1.0], [1.0, 1.0])
    assert total == np.inf
    nodes = [NodeView("a", speed=1.0, work_capacity=5.0), NodeView("b", speed=2.0, work_capacity=5.0)]
    optimum = matching.create("optimum")
    assert optimum.assign([TaskView(1, work=10.0)], nodes) == []
    assert optimum.assign([TaskView(1, work=10.0), TaskView(2, work=4.0)], nodes) == [(2, "b")]


def test_labels_keep_order_when_there_is_no_number_left_between_two() -> None:
    labels, known = Labels(), dict[tuple[Fraction, ...], float]()
    low, high, changes = Fraction(0), Fraction(1), 0
    for key in (low, high):
        known[(key,)] = labels.take((key,))[0]
    for step in range(150):  # ever closer: precision runs out
        middle = (low + high) / 2
        label, changed = labels.take((middle,))
        changes += bool(changed)
        known = {key: changed.get(old, old) for key, old in known.items()} | {(middle,): label}
        low, high = (middle, high) if step % 2 else (low, middle)
        ordered = sorted(known)
        assert sorted(known, key=known.__getitem__) == ordered
        assert len(set(known.values())) == len(ordered)
    assert changes
    for key in list(known):
        labels.give_back(key)
    assert labels.take((5.0,)) == (0.0, {})  # nothing is kept of who left


class Plain:
    """A level's pairs where all is equal but the standing."""

    def costs(self, j: int) -> Floats:
        return np.ones(1)

    def costs_at(self, i: int, tasks: Ints) -> Floats:
        return np.ones(len(tasks))

    def cheapest(self, tasks: list[int], toll: Floats) -> tuple[list[int], list[float]]:
        return [0] * len(tasks), [1.0] * len(tasks)

    def maybe_cheaper(self, i: int, limits: Floats) -> Ints:
        return np.flatnonzero(limits > 1)

    def localities(self, j: int) -> Floats | None:
        return None

    def localities_at(self, i: int, tasks: Ints) -> Floats | None:
        return None


def test_a_level_outlives_new_labels() -> None:
    """Ranks ever closer together: the highest three are held throughout."""
    level, standings = Level(Plain()), list[Fraction]()
    level.restart([3])
    value = Fraction(1)
    for j in range(120):
        standings.append(value)
        level.enter(j, (value,))
        level.settle()
        level.close()
        value = (
            (value + sorted(standings)[-2]) / 2
            if j % 2 and len(standings) > 2
            else value * (1 + Fraction(1, 2 ** (j % 40)))
        )
        best = sorted(standings, reverse=True)[:3]
        assert sorted((standings[j] for j in range(len(standings)) if level.at[j] == 0), reverse=True) == best


def test_prices_are_those_of_the_optimum() -> None:
    """At dual prices each node is best off where the optimum has it, and a place that is not full costs nothing."""
    random = np.random.default_rng(0)
    for seats in (40, 30):  # 40 places: all taken, or as many as tasks; two places each: half is free
        costs = random.lognormal(0, 1, (30, seats))
        room = np.ones(seats)
        prices, paid, entropy = congestion_prices(costs, np.ones(30), room)
        assert (prices >= 0).all()
        rows, columns = linear_sum_assignment(costs)
        chosen = (costs + prices)[rows, columns]
        assert (chosen - (costs + prices).min(axis=1)).mean() < 0.05 * costs[rows, columns].mean()
        free = np.setdiff1d(np.arange(seats), columns)
        assert free.size == 0 or prices[free].mean() < 0.1 * prices.mean()
        again = fill_prices(costs.T, paid, room, entropy)
        assert again.tolist() == pytest.approx(prices.tolist(), abs=1e-6)
        nobodys = np.where(np.arange(seats)[:, None] == 3, np.inf, costs.T)
        assert fill_prices(nobodys, paid, room, entropy).tolist() == [*again[:3], 0.0, *again[4:]]


def test_the_bound_is_below_every_assignment_and_met_by_one_of_pieces() -> None:
    random = np.random.default_rng(1)
    costs, sizes = random.lognormal(0, 1, (12, 5)), random.integers(1, 5, 12)
    capacity = np.full(5, 9.0)
    bound, shares = matching.relaxed_optimum(costs, sizes, capacity)
    assert shares.sum(axis=1) == pytest.approx(np.ones(12))
    assert (sizes @ shares <= capacity + 1e-9).all()
    assert (costs * shares).sum() == pytest.approx(bound)
    assert bound >= costs.min(axis=1).sum() - 1e-9
    tasks = [TaskView(j, float(size)) for j, size in enumerate(sizes)]
    nodes = [NodeView(str(i), 1.0, capacity=99, work_capacity=9.0) for i in range(5)]
    for name in matching.CATALOG.names():
        pairs = matching.create(name).assign(tasks, nodes)
        if len(pairs) == 12:
            assert sum(costs[j, int(i)] for j, i in pairs) >= bound - 1e-9
    assert matching.relaxed_optimum(costs, sizes, np.ones(5))[0] == np.inf
    assert matching.assignment_optimum(costs, [1] * 5) == np.inf
    refused = np.where(np.arange(5) == 2, costs, np.inf)
    assert matching.assignment_optimum(refused, [12] * 5) == pytest.approx(costs[:, 2].sum())


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0.1, 5), st.floats(0, 1)), min_size=1, max_size=20))
def test_a_mean_over_time_is_that_of_the_steps(steps: list[tuple[float, float]]) -> None:
    average, now = TimeAverage(), 3.0
    for length, value in steps:
        average.note(now, value)
        now += length
    expected = sum(length * value for length, value in steps) / sum(length for length, _ in steps)
    assert average.mean(now) == pytest.approx(expected)


def test_a_tally_derives_its_rates_from_its_counts() -> None:
    tally = MatchingTally(events=4, moves=6, offers=20, refused=1, busy=90.0, available=100.0)
    assert (tally.moves_an_event, tally.conflicts, tally.idle) == (1.5, 0.05, pytest.approx(0.1))
    assert (MatchingTally().moves_an_event, MatchingTally().conflicts, MatchingTally().idle) == (0, 0, 0)
    assert matching.regret(110.0, 100.0) == pytest.approx(0.1)
    with pytest.raises(InputError, match="bound is 0"):
        matching.regret(1.0, 0.0)
    average = TimeAverage()
    average.note(2.0, 1.0)
    with pytest.raises(InputError, match="must not be before 2"):
        average.note(1.0, 1.0)


def test_sized_blocking_pairs_by_hand() -> None:
    """A node with 4 units holds tasks of 2 and 1; one of 3 that it ranks higher than the smaller blocks, of 4 not."""
    likes, capacity, at = np.ones((3, 1)), [4.0], [0, 0, -1]
    ranks = np.array([[5.0], [1.0], [3.0]])
    assert matching.blocking_pairs(likes, ranks, capacity, at, sizes=[2, 1, 2]) == [(2, 0)]
    assert matching.blocking_pairs(likes, ranks, capacity, at, sizes=[2, 1, 2.5]) == []
    assert matching.stability_index(likes, ranks, capacity, at, sizes=[2, 1, 2]) == 0.0
    assert matching.blocking_density(likes, ranks, capacity, at, sizes=[2, 1, 2]) == pytest.approx(1 / 3)
    with pytest.raises(InputError, match="puts 5 on node 0, whose capacity is 4"):
        matching.blocking_pairs(likes, ranks, capacity, [0, 0, 0], sizes=[2, 1, 2])
    with pytest.raises(InputError, match="sizes is"):
        matching.blocking_pairs(likes, ranks, capacity, at, sizes=[1, 2])
    with pytest.raises(InputError, match="capacity holds"):
        matching.blocking_pairs(likes, ranks, [-1.0], at, sizes=[1, 1, 1])
