"""Outer optimizers against references, and what their checkpoints hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from barnraise import training
from barnraise.core.errors import CorruptionError, OptionError, UnknownNameError
from barnraise.training.base import OuterOptimizer
from barnraise.training.catalog import ASYNCHRONOUS, SYNCHRONOUS

torch.set_num_threads(1)
EVERY = pytest.mark.parametrize("name", training.names())


def step(outer: OuterOptimizer, gradient: Tensor, rate: float = 1.0) -> Tensor:
    """Make the update of one version."""
    update = gradient.clone()
    outer.begin(len(update))
    with np.errstate(over="ignore", invalid="ignore"):
        outer.step(update.numpy(), rate=rate)
    return update


def gradients(steps: int = 12, size: int = 50) -> list[Tensor]:
    return list(torch.randn(steps, size, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(
    ("name", "options", "reference"),
    [
        ("sgd", {"learning_rate": 0.5}, lambda p: torch.optim.SGD(p, lr=0.5)),
        (
            "nesterov",
            {"learning_rate": 0.7, "momentum": 0.9},
            lambda p: torch.optim.SGD(p, lr=0.7, momentum=0.9, nesterov=True),
        ),
        (
            "adam",
            {"learning_rate": 0.01, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-6},
            lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-6),
        ),
    ],
)
def test_matches_torch(name: str, options: dict[str, float], reference: Callable[[Any], Any]) -> None:
    expected = torch.nn.Parameter(torch.ones(50))
    theirs, ours, theta = reference([expected]), training.create(name, **options), torch.ones(50)
    for gradient in gradients():
        theta = theta - step(ours, gradient)
        expected.grad = gradient.clone()
        theirs.step()
        torch.testing.assert_close(theta, expected.detach(), rtol=1e-5, atol=1e-6)


def test_delayed_nesterov_by_its_formula() -> None:
    rate, beta, delay = 0.7, 0.9, 3
    outer = training.create("delayed_nesterov", learning_rate=rate, momentum=beta, delay=delay)
    moment, buffer = torch.zeros(50), torch.zeros(50)
    for n, g in enumerate(gradients(), start=1):
        buffer = buffer + g
        expected = rate * g / delay
        if n % delay == 0:
            moment = beta * moment + buffer / delay
            expected, buffer = rate * (g / delay + beta * moment), torch.zeros(50)
        torch.testing.assert_close(step(outer, g), expected)


def test_delay_of_one_is_nesterov() -> None:
    delayed, plain = training.create("delayed_nesterov", delay=1), training.create("nesterov")
    for gradient in gradients():
        torch.testing.assert_close(step(delayed, gradient), step(plain, gradient))


@EVERY
def test_resumes_bit_for_bit(name: str) -> None:
    whole, first, second = (training.create(name) for _ in range(3))
    expected = [step(whole, gradient) for gradient in gradients()]
    for gradient in gradients()[:5]:
        step(first, gradient)
    saved = {key: tensor.clone() for key, tensor in first.state().items()}
    second.load(saved)
    step(first, gradients()[5])  # must not reach the copy
    for gradient, update in zip(gradients()[5:], expected[5:], strict=True):
        assert torch.equal(step(second, gradient), update)


@EVERY
def test_resumes_before_the_first_step(name: str) -> None:
    fresh, loaded = training.create(name), training.create(name)
    loaded.load(fresh.state())
    gradient = gradients()[0]
    assert torch.equal(step(loaded, gradient), step(fresh, gradient))


@EVERY
def test_bits_do_not_depend_on_threads(name: str) -> None:
    size, results = 300_001, []
    for threads in (1, 2, 4):
        torch.set_num_threads(threads)
        outer = training.create(name)
        results.append([step(outer, g) for g in gradients(5, size)])
    torch.set_num_threads(1)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@EVERY
def test_arguments_are_left_alone(name: str) -> None:
    outer, theta, gradient = training.create(name), torch.ones(50), gradients()[0]
    kept = gradient.clone()
    for _ in range(5):
        update = step(outer, gradient)
        update += 1  # the caller's own
    assert torch.equal(gradient, kept)
    assert torch.equal(theta, torch.ones(50))


@EVERY
def test_rate_scales_the_update(name: str) -> None:
    whole, half, none = (training.create(name) for _ in range(3))
    for gradient in gradients():
        update = step(whole, gradient)
        torch.testing.assert_close(step(half, gradient, rate=0.5), update / 2)
        assert not step(none, gradient, rate=0.0).any()


@pytest.mark.parametrize(("name", "options"), [("sgd", {}), ("nesterov", {}), ("adam", {"learning_rate": 0.05})])
def test_converges(name: str, options: dict[str, float]) -> None:
    outer, target, theta = training.create(name, **options), torch.linspace(-1, 1, 50), torch.zeros(50)
    for _ in range(300):
        theta = theta - step(outer, 0.1 * (theta - target))
    assert float((theta - target).norm()) < 0.05


def test_delayed_nesterov_stays_on_stale_pushes_where_nesterov_diverges() -> None:
    """Eight workers in turn on a quadratic: each pseudo-gradient was made seven versions ago."""

    def distance(name: str, **options: float) -> float:
        outer, target, theta = training.create(name, **options), torch.linspace(-1, 1, 50), torch.zeros(50)
        history = [theta] * 8
        for _ in range(1000):
            theta = theta - step(outer, 0.5 * (history[-8] - target))
            history.append(theta)
        return float((theta - target).norm() / target.norm())

    assert not distance("nesterov") < 1e3
    assert distance("delayed_nesterov", delay=8) < 0.1


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"steps": torch.tensor([1]), "velocity": torch.zeros(3), "buffer": torch.zeros(3)},
        {"steps": torch.tensor([1]), "momentum": torch.zeros(3)},
        {"steps": torch.tensor([1]), "momentum": torch.zeros(3), "buffer": torch.zeros(4)},
        {"steps": torch.tensor([1, 2]), "momentum": torch.zeros(3), "buffer": torch.zeros(3)},
    ],
)
def test_foreign_state_is_refused(state: dict[str, Tensor]) -> None:
    with pytest.raises(CorruptionError, match="must hold vectors"):
        training.create("delayed_nesterov").load(state)


def test_modes_and_names() -> None:
    assert training.names() == ["adam", "delayed_nesterov", "nesterov", "sgd"]
    modes = {name: training.CATALOG.entry(name).declares.modes for name in training.names()}
    assert modes == {
        "adam": {SYNCHRONOUS, ASYNCHRONOUS},
        "delayed_nesterov": {ASYNCHRONOUS},
        "nesterov": {SYNCHRONOUS},
        "sgd": {SYNCHRONOUS, ASYNCHRONOUS},
    }
    assert all(training.CATALOG.entry(name).declares.reason for name in ("nesterov", "delayed_nesterov"))
    with pytest.raises(UnknownNameError, match="did you mean 'nesterov'"):
        training.create("nestrov")
    with pytest.raises(OptionError, match="below 1"):
        training.create("adam", beta1=1.0)


@pytest.mark.parametrize("name", training.CATALOG.names())
def test_it_keeps_as_many_vectors_as_it_declares(name: str) -> None:
    assert len(training.create(name).moment_names) == training.CATALOG.entry(name).declares.moments
