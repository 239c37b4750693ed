"""Aggregation rules against naive references, under the numerical traps, and under attack."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from barnraise import aggregation
from barnraise.aggregation import network
from barnraise.aggregation.base import Rule
from barnraise.aggregation.gram import one_thread
from barnraise.core.errors import InputError, OptionError, UnknownNameError

torch.set_num_threads(1)
Array = NDArray[np.float64]
ROBUST: list[tuple[Any, dict[str, Any]]] = [
    ("median", {}),
    ("trimmed_mean", {"f": 2}),
    ("trimmed_mean", {"trim_ratio": 0.2}),
    ("krum", {"f": 2}),
    ("multi_krum", {"f": 2}),
    ("bulyan", {"f": 2}),
    (["nnm", "trimmed_mean"], {"f": 2}),
    (["nnm", "median"], {"f": 2}),
    (["nnm", "krum"], {"f": 2}),
    (["nnm", "bulyan"], {"f": 2}),
    ("multi_krum", {"f": 0.2}),
    (["nnm", "bulyan"], {"f": 0.2}),
]
EVERY_ROBUST = pytest.mark.parametrize(("name", "options"), ROBUST, ids=str)
EVERY_RULE: list[tuple[Any, dict[str, Any]]] = [("mean", {}), (["nnm", "mean"], {"f": 2}), *ROBUST]
EVERY = pytest.mark.parametrize(("name", "options"), EVERY_RULE, ids=str)


def updates(n: int = 12, size: int = 100, seed: int = 0) -> Tensor:
    return torch.randn(n, size, generator=torch.Generator().manual_seed(seed))


# Naive references, from the papers' definitions, in float64.


def scores(x: Array, f: int) -> list[float]:
    result = []
    for i in range(len(x)):
        distances = sorted(float(((x[i] - x[j]) ** 2).sum()) for j in range(len(x)) if j != i)
        result.append(sum(distances[: max(len(x) - f - 2, 1)]))
    return result


def krum(x: Array, f: int) -> Array:
    row: Array = x[int(np.argmin(scores(x, f)))]
    return row


def multi_krum(x: Array, f: int) -> Array:
    return np.asarray(x[np.argsort(scores(x, f), kind="stable")[: len(x) - f]].mean(0))


def trimmed_mean(x: Array, t: int) -> Array:
    return np.asarray(np.sort(x, axis=0)[t : len(x) - t].mean(0))


def bulyan(x: Array, f: int) -> Array:
    left, selected = list(range(len(x))), []
    while len(selected) < len(x) - 2 * f:
        selected.append(left.pop(int(np.argmin(scores(x[left], f)))))
    chosen, beta = np.sort(x[selected], axis=0), len(selected) - 2 * f
    nearest = np.argsort(np.abs(chosen - np.median(chosen, axis=0)), axis=0, kind="stable")[:beta]
    return np.asarray(np.take_along_axis(chosen, nearest, axis=0).mean(0))


def nnm(x: Array, f: int) -> Array:
    distances = ((x[:, None] - x[None]) ** 2).sum(-1)
    return np.stack([x[np.argsort(row, kind="stable")[: len(x) - f]].mean(0) for row in distances])


REFERENCES: list[tuple[Any, dict[str, Any], Callable[[Array], Array]]] = [
    ("mean", {}, lambda x: np.asarray(x.mean(0))),
    ("median", {}, lambda x: np.asarray(np.median(x, axis=0))),
    ("trimmed_mean", {"f": 2}, lambda x: trimmed_mean(x, 2)),
    ("trimmed_mean", {"trim_ratio": 0.3}, lambda x: trimmed_mean(x, int(0.3 * len(x)))),
    ("krum", {"f": 2}, lambda x: krum(x, 2)),
    ("multi_krum", {"f": 2}, lambda x: multi_krum(x, 2)),
    ("bulyan", {"f": 2}, lambda x: bulyan(x, 2)),
    ("bulyan", {"f": 1}, lambda x: bulyan(x, 1)),
    (["nnm", "trimmed_mean"], {"f": 2}, lambda x: trimmed_mean(nnm(x, 2), 2)),
    (["nnm", "krum"], {"f": 2}, lambda x: krum(nnm(x, 2), 2)),
    (["nnm", "multi_krum"], {"f": 2}, lambda x: multi_krum(nnm(x, 2), 2)),
    (["nnm", "mean"], {"f": 2}, lambda x: np.asarray(nnm(x, 2).mean(0))),
]


@pytest.mark.parametrize(
    ("name", "options", "reference"), REFERENCES, ids=[f"{name}-{options}" for name, options, _ in REFERENCES]
)
@pytest.mark.parametrize("n", [11, 16])
@pytest.mark.parametrize("size", [1, 50, 40_000])
def test_matches_the_reference(
    name: Any, options: dict[str, Any], reference: Callable[[Array], Array], n: int, size: int
) -> None:
    x = updates(n, size, seed=n)
    expected = torch.from_numpy(reference(x.double().numpy()))
    rule = aggregation.create(name, **options)
    torch.testing.assert_close(rule(x), expected.float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(rule(x.double()), expected, rtol=1e-12, atol=1e-12)


def test_mean_is_weighted() -> None:
    x = updates(3)
    mean = aggregation.create("mean")
    torch.testing.assert_close(mean(x, [1, 2, 5]), (x[0] + 2 * x[1] + 5 * x[2]) / 8)
    assert torch.equal(mean(x, [0, 3, 0]), x[1])
    krum = aggregation.create("multi_krum", f=0)
    assert torch.equal(krum(x, [1, 2, 5]), krum(x))
    for weights in ([1, 2], [1, 2, -1], [0, 0, 0], [1, float("nan"), 1]):
        with pytest.raises(InputError, match="weights must be"):
            mean(x, weights)


# Numerical traps.


@EVERY
def test_common_part_a_thousand_times_the_differences(name: Any, options: dict[str, Any]) -> None:
    x = updates(size=20_000)
    common = 1000 * updates(1, 20_000, seed=1)
    x = (x + common) - common  # the part of the differences that float32 can hold
    shifted = aggregation.create(name, **options)(x + common)
    expected = aggregation.create(name, **options)(x.double()) + common[0].double()
    close = (shifted - expected).abs() <= 3e-4 + 3e-7 * expected.abs()
    assert close.double().mean() > 0.999  # rounding may settle otherwise which value Bulyan finds nearer the median


@EVERY_ROBUST
@pytest.mark.parametrize("bad", [1e8, -1e30, 3e38, float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["rows", "one element", "mixed"])
def test_bad_rows_do_not_reach_the_result(name: Any, options: dict[str, Any], bad: float, where: str) -> None:
    honest = updates(10, 40_000)
    liars = updates(2, 40_000, seed=1)
    if where == "rows":
        liars[:] = bad
    else:
        liars[:, 39_999] = bad
        liars[1, 0] = float("nan") if where == "mixed" else bad
    x = torch.cat([honest[:4], liars[:1], honest[4:], liars[1:]])
    before = x.clone()
    result = aggregation.create(name, **options)(x)
    assert bool(result.isfinite().all())
    assert bool((result <= honest.amax(0) + 1e-6).all())
    assert bool((result >= honest.amin(0) - 1e-6).all()) or name == "median"
    assert np.array_equal(x.numpy(), before.numpy(), equal_nan=True)


@EVERY_ROBUST
def test_a_huge_row_leaves_honest_distances_alone(name: Any, options: dict[str, Any]) -> None:
    """Centring on the mean would lose them: the choice among the honest must be that without the row."""
    x = updates(12, 5000)
    far, farther = x.clone(), x.clone()
    far[3], farther[3] = 1e4, 1e8
    rule = aggregation.create(name, **options)
    torch.testing.assert_close(rule(far), rule(farther), rtol=0, atol=1e-6)


def test_trimming_sums_what_is_left() -> None:
    x = torch.tensor([[1e8], [1e8], [1.0], [2.0], [3.0], [-1e8], [-1e8]])
    assert aggregation.create("trimmed_mean", f=2)(x).item() == 2.0


def test_krum_takes_the_first_of_equals() -> None:
    x = torch.tensor([[0.0, 1], [1, 0], [0, -1], [-1, 0], [9, 9]])
    assert aggregation.create("krum", f=1)(x).tolist() == [0, 1]


THREADS = """
import torch
from barnraise import aggregation
from tests.unit.aggregation.test_aggregation import EVERY_RULE, updates

for name, options in EVERY_RULE:
    options = {**options, "f": 1} if "f" in options else options
    rule = aggregation.create(name, **options)
    for n, size in [(n, 33_280) for n in range(rule.minimum, 17)] + [(15, 70_000), (30, 70_000), (16, 250_001)]:
        x, results = updates(n, size), []
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            results.append(rule(x))
        if not all(torch.equal(results[0], result) for result in results):
            print(name, n, size)
"""


@pytest.mark.campaign
def test_bits_do_not_depend_on_threads() -> None:
    # AVX2, since which sums the matrix library splits among threads hangs on the processor
    env = {**os.environ, "MKL_ENABLE_INSTRUCTIONS": "AVX2", "MKL_DYNAMIC": "FALSE"}
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, cwd=root, env=env)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_the_last_thread_to_leave_restores_the_thread_count_of_torch() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        first, second = one_thread(), one_thread()  # as two threads of a crew do
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert torch.get_num_threads() == 1, "the second is within"
        second.__exit__(None, None, None)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


# Limits.


@pytest.mark.parametrize(
    ("name", "options", "limit"),
    [
        ("mean", {}, 1),
        ("median", {}, 1),
        ("trimmed_mean", {}, 4),
        ("trimmed_mean", {"f": 2}, 5),
        ("trimmed_mean", {"trim_ratio": 0.3}, 4),
        ("trimmed_mean", {"trim_ratio": 0.1}, 10),
        ("trimmed_mean", {"trim_ratio": 0.49}, 3),
        ("krum", {"f": 2}, 7),
        ("multi_krum", {"f": 2}, 7),
        ("bulyan", {"f": 2}, 11),
        (["nnm", "mean"], {"f": 2}, 5),
        (["nnm", "bulyan"], {"f": 2}, 11),
        ("trimmed_mean", {"f": 0.2}, 5),
        ("trimmed_mean", {"f": 0.49}, 3),
        ("krum", {"f": 0.1}, 10),
        ("krum", {"f": 0.4}, 5),
        ("multi_krum", {"f": 0.0}, 3),
        ("bulyan", {"f": 0.2}, 7),
        (["nnm", "median"], {"f": 0.3}, 4),
        (["nnm", "bulyan"], {"f": 0.1}, 10),
    ],
)
def test_too_few_updates(name: Any, options: dict[str, Any], limit: int) -> None:
    rule = aggregation.create(name, **options)
    assert rule.minimum == aggregation.minimum(name, options) == limit
    assert rule(updates(limit)).shape == (100,)
    aggregation.require(name, options, limit)
    if limit > 1:
        with pytest.raises(OptionError, match=rf"needs n >= .* = {limit} updates, got {limit - 1}; "):
            rule(updates(limit - 1))
        with pytest.raises(OptionError, match=f"= {limit} updates"):
            aggregation.require(name, options, limit - 1)


def test_message_names_rule_limit_and_remedy() -> None:
    with pytest.raises(OptionError) as caught:
        aggregation.create("bulyan", f=2)(updates(9))
    assert str(caught.value) == (
        "aggregation rule 'bulyan' with f=2 needs n >= 4f+3 = 11 updates, got 9; "
        "gather more updates, defend against fewer attackers, or choose a rule that needs fewer"
    )


def test_with_a_share_the_message_says_what_helps() -> None:
    with pytest.raises(OptionError) as caught:
        aggregation.create("krum", f=0.1)(updates(8))
    assert str(caught.value) == (
        "aggregation rule 'krum' with f=0.1 needs n >= 1/f and n >= 5 = 10 updates, got 8; "
        "gather more updates, give f as a whole number, or choose a rule that needs fewer"
    )


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("krum", {"F": 2}, "no option 'F'; did you mean 'f'"),
        (["nnm", "trimmed_mean"], {"trim_ration": 0.2}, "did you mean 'trim_ratio'"),
        ("mean", {"f": 2}, "no option 'f'"),
        ("krum", {"f": -1}, "at least 0"),
        ("krum", {"f": 1.0}, "is 1.0, but must be a whole number, or a share from 0 to below 0.5"),
        ("krum", {"f": 0.5}, "a share from 0 to below 0.5"),
        ("krum", {"f": -0.1}, "a share from 0 to below 0.5"),
        ("krum", {"f": float("nan")}, "a share from 0 to below 0.5"),
        ("trimmed_mean", {"f": 0.0}, "is 0, but must be at least 1"),
        ("trimmed_mean", {"f": 0.2, "trim_ratio": 0.2}, "takes one of them"),
        ("trimmed_mean", {"trim_ratio": 0.5}, "below 0.5"),
        ("trimmed_mean", {"trim_ratio": 0.0}, "above 0"),
        ("trimmed_mean", {"f": 0}, "at least 1"),
        ("trimmed_mean", {"f": 1, "trim_ratio": 0.2}, "takes one of them"),
        ("nnm", {}, "only prepares"),
        (["nnm"], {}, "only prepares"),
        (["krum", "mean"], {}, "'krum' ends a chain"),
        ([], {}, "empty"),
    ],
)
def test_invalid_options_are_refused(name: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        aggregation.create(name, **options)
    with pytest.raises(OptionError, match=message):
        aggregation.minimum(name, options)


def test_names_and_traits() -> None:
    others = ["krum", "mean", "median", "monna", "multi_krum", "nnm", "trimmed_mean", "worker_momentum"]
    first = ["arc", "bucketing", "bulyan", "centered_clipping", "clip_median", "dnc", "geometric_median"]
    assert aggregation.names() == [*first, *others]
    with pytest.raises(UnknownNameError, match="did you mean 'krum'"):
        aggregation.create("krun")
    traits = {name: aggregation.CATALOG.entry(name).declares for name in aggregation.names()}
    assert [name for name in traits if traits[name].needs == "sum"] == ["mean"]
    assert [name for name in traits if traits[name].linear and traits[name].weighted] == ["mean"]
    assert [name for name in traits if traits[name].prepares] == [
        "arc",
        "bucketing",
        "clip_median",
        "nnm",
        "worker_momentum",
    ]
    assert [name for name in traits if traits[name].mixes] == ["nnm"]
    assert [name for name in traits if traits[name].merges] == ["bucketing"]


@pytest.mark.parametrize(
    "bad", [torch.zeros(3), torch.zeros(3, 2, dtype=torch.int64), [], [torch.zeros(2), torch.zeros(3)]]
)
def test_input_that_is_no_matrix_of_updates_is_refused(bad: Any) -> None:
    with pytest.raises(InputError):
        aggregation.create("mean")(bad)


# Sorting networks, by the 0-1 principle: a network that handles all zeros and ones handles all values.


@pytest.mark.parametrize("n", range(1, 13))
def test_networks_sort_and_trim(n: int) -> None:
    columns = np.array(list(product([0.0, 1.0], repeat=n))).T
    ordered = np.sort(columns, axis=0)
    assert np.array_equal(np.stack(network.apply(network.sorting(n), columns.copy())), ordered)
    for trimmed in range((n - 1) // 2 + 1):
        middle = network.apply(network.trimming(n, trimmed), columns.copy())[trimmed : n - trimmed]
        assert np.array_equal(np.sort(middle, axis=0), ordered[trimmed : n - trimmed])
        assert len(network.trimming(n, trimmed)) <= len(network.sorting(n))


# Learning under attack.


MEAN = aggregation.create("mean")


def sign_flip(honest: Tensor) -> Tensor:
    return -5 * honest.mean(0)


def scale(honest: Tensor) -> Tensor:
    return -100 * honest.mean(0)


def noise(honest: Tensor) -> Tensor:
    return 30 * torch.randn(2, honest.shape[1], generator=torch.Generator().manual_seed(1))


@cache
def logistic_loss(rule: Rule, attack: Callable[[Tensor], Tensor] | None) -> float:
    """Return the loss after 100 steps of 11 workers, two of which lie, on a separable problem with noise by worker."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.randn(20, generator=generator)
    inputs = torch.randn(11, 64, 20, generator=generator)
    labels = (inputs @ truth > 0).float()
    weights = torch.zeros(20)
    for _ in range(100):
        errors = torch.sigmoid(inputs @ weights) - labels
        gradients = (errors[..., None] * inputs).mean(1)
        if attack is not None:
            gradients[9:] = attack(gradients[:9])
        weights = weights - rule(gradients)
    return float(torch.nn.functional.binary_cross_entropy_with_logits(inputs[:9] @ weights, labels[:9]))


@EVERY_ROBUST
@pytest.mark.parametrize("attack", [sign_flip, scale, noise])
def test_learns_under_attack(name: Any, options: dict[str, Any], attack: Callable[[Tensor], Tensor]) -> None:
    honest, attacked = logistic_loss(MEAN, None), logistic_loss(MEAN, attack)
    defended = logistic_loss(aggregation.create(name, **options), attack)
    assert attacked > honest + 0.15
    assert defended < honest + 0.1


# Memory.


@pytest.mark.parametrize(
    ("name", "options"), [("krum", {"f": 2}), ("trimmed_mean", {"f": 2}), (["nnm", "median"], {"f": 2})], ids=str
)
def test_many_updates_take_no_more_memory_than_a_few_and_the_result(name: Any, options: dict[str, Any]) -> None:
    x = torch.zeros(400, 1 << 16)
    x += torch.arange(400)[:, None]
    rule = aggregation.create(name, **options)
    tracemalloc.start()
    rule(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6  # the updates have 105 MB
