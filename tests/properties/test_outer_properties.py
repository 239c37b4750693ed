"""Properties of the outer optimizers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from barnraise import training

from ..unit.training.test_training_outer import step

torch.set_num_threads(1)
values = st.integers(-8000, 8000).map(lambda i: i / 8)
sequences = hnp.arrays(np.float32, st.tuples(st.integers(1, 10), st.integers(1, 5)), elements=values).map(
    torch.from_numpy
)


@given(st.sampled_from(training.names()), sequences, st.integers(0, 10))
def test_resuming_anywhere_changes_nothing(name: str, gradients: Tensor, at: int) -> None:
    whole, resumed = training.create(name), training.create(name)
    for number, gradient in enumerate(gradients):
        if number == at:
            state, resumed = resumed.state(), training.create(name)
            resumed.load(state)
        assert torch.equal(step(whole, gradient), step(resumed, gradient))


@given(st.sampled_from(["sgd", "nesterov", "delayed_nesterov"]), sequences)
def test_linear_in_the_gradients(name: str, gradients: Tensor) -> None:
    once, doubled = training.create(name), training.create(name)
    for gradient in gradients:
        assert torch.equal(2 * step(once, gradient), step(doubled, 2 * gradient))


@given(sequences, st.integers(1, 5))
def test_delayed_nesterov_forgets_no_gradient(gradients: Tensor, delay: int) -> None:
    """With beta 1 the momentum is the sum of all gradients of whole periods over N."""
    outer = training.create("delayed_nesterov", momentum=1.0, delay=delay)
    for gradient in gradients:
        step(outer, gradient)
    whole = len(gradients) // delay * delay
    momentum, buffer = outer.moments["momentum"], outer.moments["buffer"]
    torch.testing.assert_close(momentum, gradients[:whole].sum(0) / delay, rtol=1e-4, atol=1e-2)
    torch.testing.assert_close(buffer, gradients[whole:].sum(0), rtol=1e-4, atol=1e-2)


@given(st.floats(1e-3, 1e3), st.sampled_from([-1.0, 1.0]))
def test_adam_moves_by_its_rate_whatever_the_size(size: float, sign: float) -> None:
    outer = training.create("adam", learning_rate=0.01)
    for _ in range(5):
        update = step(outer, torch.tensor([sign * size]))
        assert float(update) == pytest.approx(sign * 0.01, rel=1e-3)


@given(st.sampled_from(training.names()), sequences, st.floats(0, 10))
def test_nothing_grows_beyond_what_the_optimizer_says(name: str, gradients: Tensor, rate: float) -> None:
    outer = training.create(name)
    for gradient in gradients:
        before = {moment: float(values.abs().max()) for moment, values in outer.moments.items()}
        largest = {moment: before.get(moment, 0.0) for moment in outer.moment_names}
        update, moments = outer.growth(float(gradient.abs().max()), largest, rate)
        assert float(step(outer, gradient, rate).abs().max()) <= update * (1 + 1e-5)
        for moment, values in outer.moments.items():
            assert float(values.abs().max()) <= moments[moment] * (1 + 1e-5)
