"""The private trainer: the clip of each row, the size of the noise, and that rows decide nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.private_models import batch_of_tokens, gpt

from barnraise.data.batches import Batch
from barnraise.privacy.examples.trainer import PrivateTrainer, clipped_sum
from barnraise.training.local import LocalTrainer
from barnraise.wire.private import Private

OPTIONS = {"optimizer": "sgd", "options": {"momentum": 0.0, "weight_decay": 0.0}, "gradient_clip": None}


def trainer(noise: float, clip: float = 0.5, batch_size: int = 4) -> PrivateTrainer:
    private = Private(clip, noise, 0.1)
    return PrivateTrainer(gpt(adapters=True), private=private, batch_size=batch_size, **OPTIONS)  # type: ignore[arg-type]


def rows(number: int) -> Batch:
    return {name: values.numpy() for name, values in batch_of_tokens(number).items()}


def test_a_row_moves_the_sum_by_its_clip_at_most() -> None:
    gradients = torch.randn(6, 1000) * torch.logspace(-4, 4, 6)[:, None]
    for row in range(6):
        others = torch.cat([gradients[:row], gradients[row + 1 :]])
        moved = clipped_sum(gradients, 0.7).double() - clipped_sum(others, 0.7).double()
        assert float(moved.norm()) <= 0.7 * (1 + 1e-5)


def test_a_row_that_is_not_finite_counts_as_nothing() -> None:
    gradients = torch.ones(3, 4)
    gradients[1, 2] = np.nan
    gradients[2, 0] = np.inf
    torch.testing.assert_close(clipped_sum(gradients, 1.0), torch.full((4,), 0.5), rtol=1e-5, atol=0)


def test_a_step_of_small_gradients_without_noise_is_the_usual_step() -> None:
    """A clip above all norms, and rows of equal weight: the sum of the rows' means over B is the batch's mean."""
    private, usual = trainer(1e-30, clip=1e6), LocalTrainer(gpt(adapters=True), **OPTIONS)  # type: ignore[arg-type]
    for one in (private, usual):
        assert one.step(rows(4), 0.1) is not None
    torch.testing.assert_close(private.flat.vector, usual.flat.vector, rtol=1e-4, atol=1e-6)


def test_an_empty_batch_is_a_step_of_noise_alone() -> None:
    private = trainer(2.0)
    before = private.flat.vector.clone()
    assert private.step(rows(0), 1.0) == 0.0
    moved = private.flat.vector - before
    assert float(moved.std()) == pytest.approx(2.0 * 0.5 / 4, rel=0.15)


def test_a_loss_of_rows_is_withheld() -> None:
    steps, loss = trainer(1.0).run(iter([rows(4), rows(2)]), 0.01)
    assert (steps, loss) == (2, 0.0)


def test_two_trainers_draw_other_noise() -> None:
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        private = trainer(1.0)
        private.step(rows(4), 1.0)
        found.append(private.flat.vector.clone())
    assert not torch.equal(*found)


def test_the_time_of_private_gradients_is_measured_and_leaves_none() -> None:
    private, usual = trainer(1.0), LocalTrainer(gpt(adapters=True), **OPTIONS)  # type: ignore[arg-type]
    before = private.flat.vector.clone()
    assert private.row_overhead(rows(4)) >= 1.0
    assert torch.equal(private.flat.vector, before)
    assert not private.flat.gradient.any()
    assert usual.row_overhead(rows(4)) == 1.0
