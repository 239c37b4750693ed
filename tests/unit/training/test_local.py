"""Local training: the pull towards a task's start, and momentum that follows the fleet."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.batches import labelled
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from barnraise.training.catalog import INNER
from barnraise.training.local import LocalTrainer
from barnraise.training.reach import Reach


class Bigram(nn.Module):
    """The smallest language model: logits of the next token by the last."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(4, 4))

    def forward(self, input_ids: Tensor, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(logits=self.table[input_ids])


def distance(proximal: float, steps: int = 50) -> float:
    """Return how far `steps` steps of SGD lead from their start."""
    trainer = LocalTrainer(
        Bigram(), optimizer="sgd", options={"momentum": 0.0, "weight_decay": 0.0}, gradient_clip=None, proximal=proximal
    )
    start = torch.linspace(-1.0, 1.0, 16)
    trainer.load(start)
    rows = np.array([[0, 1, 2, 3, 0, 1, 2, 3]])
    for _ in range(steps):
        trainer.step(labelled(rows), 0.5)
    return float((trainer.flat.vector - start).norm())


def test_the_proximal_term_holds_training_near_its_start() -> None:
    free, pulled, held = distance(0.0), distance(0.1), distance(1.0)
    assert free > 2 * pulled > 4 * held > 0.0


def test_each_task_has_its_own_start() -> None:
    trainer = LocalTrainer(
        Bigram(), optimizer="sgd", options={"momentum": 0.0, "weight_decay": 0.0}, gradient_clip=None, proximal=1.9
    )
    rows = np.array([[0, 0]])
    for value in (5.0, -5.0):
        trainer.load(torch.full((16,), value))
        for _ in range(20):
            trainer.step(labelled(rows), 0.5)
        assert float((trainer.flat.vector - value).abs().max()) < 1.0


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [("adamw", {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0}), ("sgd", {"momentum": 0.9, "weight_decay": 0.0})],
)
def test_a_worker_that_follows_the_fleet_moves_on_as_the_fleet_did(optimizer: str, options: dict[str, float]) -> None:
    trainer = LocalTrainer(Bigram(), optimizer=optimizer, options=options, gradient_clip=None)
    rows = np.array([[0, 1, 2, 3, 0, 1, 2, 3]])
    for _ in range(5):
        trainer.step(labelled(rows), 0.1)
    state = trainer.optimizer.moments
    momentum = state["exp_avg" if optimizer == "adamw" else "momentum"]

    def move() -> Tensor:
        """Return the next step that the momentum alone makes."""
        if optimizer == "sgd":
            return -0.1 * momentum
        taken = trainer.optimizer.steps
        return -0.1 * momentum / (1 - 0.9**taken) / (state["exp_avg_sq"] / (1 - 0.99**taken)).sqrt()

    own, length = move(), momentum.norm()
    trainer.follow(-0.5 * own, 1, 0.1, 1.0)
    torch.testing.assert_close(move(), -0.5 * own)
    trainer.follow(4 * -0.25 * own, 4, 0.1, 0.5)
    torch.testing.assert_close(move(), -0.375 * own)
    trainer.follow(1e6 * own, 1, 0.1, 1.0)
    torch.testing.assert_close(
        momentum.norm(), 0.375 * length
    )  # a fleet that is faster than this worker does not drag it
    torch.testing.assert_close(torch.sign(move()), torch.sign(own))


def test_there_is_nothing_to_follow_with_before_the_first_step_or_without_momentum() -> None:
    for momentum in (0.9, 0.0):
        trainer = LocalTrainer(
            Bigram(), optimizer="sgd", options={"momentum": momentum, "weight_decay": 0.0}, gradient_clip=None
        )
        trainer.follow(torch.ones(16), 1, 0.1, 1.0)
        rows = np.array([[0, 1]])
        trainer.step(labelled(rows), 0.5)
        if not momentum:
            trainer.follow(torch.ones(16), 1, 0.1, 1.0)
        one = trainer.flat.vector.clone()
        other = LocalTrainer(
            Bigram(), optimizer="sgd", options={"momentum": momentum, "weight_decay": 0.0}, gradient_clip=None
        )
        other.step(labelled(rows), 0.5)
        torch.testing.assert_close(one, other.flat.vector)


OPTIMIZERS = [
    ("adamw", {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.01}),
    ("sgd", {"momentum": 0.9, "weight_decay": 0.01}),
]


@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_a_step_that_is_not_finite_touches_nothing(optimizer: str, clip: float | None) -> None:
    trainer = LocalTrainer(
        Bigram(), optimizer=optimizer, options=dict(OPTIMIZERS)[optimizer], gradient_clip=clip, proximal=1.0
    )
    rows = np.array([[0, 1, 2, 3, 0, 1, 2, 3]])
    trainer.load(torch.zeros(16))
    trainer.step(labelled(rows), 0.1)
    good = trainer.flat.vector.clone()
    before = {name: value.clone() for name, value in trainer.moments().items()}
    for value in (math.nan, math.inf, 1e30):  # at 1e30 the loss is finite, but the gradient's norm overflows
        trainer.flat.vector[0] = value
        spoiled = trainer.flat.vector.clone()
        assert trainer.step(labelled(rows), 0.1) is None
        torch.testing.assert_close(trainer.flat.vector, spoiled, equal_nan=True)
        for name, kept in before.items():
            torch.testing.assert_close(trainer.moments()[name], kept)
    trainer.load(good)
    loss = trainer.step(labelled(rows), 0.1)
    assert loss is not None
    assert math.isfinite(loss)


def test_skipped_steps_are_not_counted_as_taken() -> None:
    trainer = LocalTrainer(
        Bigram(), optimizer="sgd", options={"momentum": 0.0, "weight_decay": 0.0}, gradient_clip=None
    )
    rows = np.array([[0, 1, 2, 3]])
    heard: list[int] = []

    def after_step(number: int) -> bool:
        heard.append(number)
        trainer.load(torch.full((16,), math.nan if number == 2 else 0.0))
        return True

    steps, loss = trainer.run(iter([labelled(rows)] * 4), 0.1, after_step)
    assert (steps, trainer.skipped, heard) == (3, 1, [1, 2, 3, 4])
    assert loss == pytest.approx(math.log(4))


@pytest.mark.parametrize("optimizer", INNER.names())
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_fleet_whose_movement_is_not_finite_is_not_followed(optimizer: str, value: float) -> None:
    trainer = LocalTrainer(Bigram(), optimizer=optimizer, options=INNER.resolve(optimizer, {}), gradient_clip=None)
    rows = np.array([[0, 1, 2, 3]])
    trainer.step(labelled(rows), 0.1)
    before = {name: moment.clone() for name, moment in trainer.moments().items()}
    movement = torch.zeros(16)
    movement[3] = value
    trainer.follow(movement, 1, 0.1, 1.0)
    for name, moment in trainer.moments().items():
        rounded = before[name].dtype in (torch.int8, torch.uint8)  # codes are rounded up or down by chance
        torch.testing.assert_close(moment, before[name], rtol=0.0, atol=float(rounded))
    assert trainer.step(labelled(rows), 0.1) is not None
    assert bool(trainer.flat.vector.isfinite().all())


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("alike", [True, False], ids=["the same batch each time", "other batches"])
def test_no_task_leads_further_than_its_optimizer_its_rate_and_its_steps_say(optimizer: str, alike: bool) -> None:
    options, steps, rate, rng = dict(OPTIMIZERS)[optimizer], 20, 0.05, np.random.default_rng(0)
    step = INNER.entry(optimizer).declares.reach
    trainer = LocalTrainer(Bigram(), optimizer=optimizer, options=options, gradient_clip=1.0)
    longest = Reach(step(options, 1.0, 16)).longest(rate * steps)
    rows = rng.integers(0, 4, (2, 8))
    for _ in range(5):  # tasks, with the moments of those before
        start = trainer.flat.vector.clone()
        for _ in range(steps):
            batch = rows if alike else rng.integers(0, 4, (2, 8))
            trainer.step(labelled(batch), rate)
        length = float((trainer.flat.vector - start).norm())
        assert 0.0 < length <= longest
        assert length > 0.01 * longest, "a limit that is far from what happens says little"


def test_nothing_bounds_the_steps_of_sgd_without_a_clipped_gradient() -> None:
    assert math.isinf(INNER.entry("sgd").declares.reach(dict(OPTIMIZERS)["sgd"], None, 16))


def _gpt(tokens_at_once: int | None) -> LocalTrainer:
    torch.manual_seed(0)
    config = GPT2Config(
        n_embd=16, n_layer=1, n_head=2, vocab_size=11, n_positions=8, resid_pdrop=0, attn_pdrop=0, embd_pdrop=0
    )
    name, options = OPTIMIZERS[1]
    return LocalTrainer(
        GPT2LMHeadModel(config), optimizer=name, options=options, gradient_clip=1.0, tokens_at_once=tokens_at_once
    )


@pytest.mark.parametrize("tokens_at_once", [1, 8, 16, 24, 47, 72])
def test_micro_batches_take_the_step_of_the_whole_batch(tokens_at_once: int) -> None:
    rng = np.random.default_rng(1)
    tokens = rng.integers(0, 11, (5, 8))
    labels = np.where(rng.random((5, 8)) < 0.5, tokens, -100)  # each row has its own number of labels
    labels[2] = -100
    labels[0, 1] = tokens[0, 1]
    whole, split = _gpt(None), _gpt(tokens_at_once)
    for _ in range(3):
        expected, loss = whole.step(labelled(tokens, labels), 0.1), split.step(labelled(tokens, labels), 0.1)
        assert loss == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(split.flat.vector, whole.flat.vector, rtol=1e-4, atol=1e-6)


def test_an_accelerator_that_is_too_small_for_a_batch_takes_it_in_halves() -> None:
    trainer, other = _gpt(None), _gpt(None)
    forward, sizes = trainer.module.forward, []

    def small(input_ids: Tensor, **more: Any) -> Any:
        sizes.append(len(input_ids))
        if len(input_ids) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(input_ids=input_ids, **more)

    trainer.module.forward = small  # type: ignore[method-assign]
    tokens = np.random.default_rng(2).integers(0, 11, (6, 8))
    for _ in range(2):
        assert trainer.step(labelled(tokens), 0.1) == pytest.approx(other.step(labelled(tokens), 0.1), rel=1e-5)
    assert sizes == [6, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    torch.testing.assert_close(trainer.flat.vector, other.flat.vector, rtol=1e-4, atol=1e-6)
