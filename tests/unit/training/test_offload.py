"""An offloaded optimizer takes the same steps, whatever moves the parameters between two of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.batches import labelled
from torch import Tensor, nn

from barnraise.data.batches import Batch
from barnraise.models.build import build, build_exchanged
from barnraise.models.config import describe
from barnraise.models.exchange.record import Exchange
from barnraise.training.catalog import INNER
from barnraise.training.local import LocalTrainer
from barnraise.training.offload import MainMemory
from barnraise.training.repeatable import Repeatable, initial

from ...exchanges import frozen

SHAPE = {"hidden_size": 16, "num_layers": 2, "num_heads": 2}
VOCABULARY, LENGTH, ROWS = 40, 16, 4
NAMES = INNER.names()
MODEL = describe({"architecture": "gpt2", "config": SHAPE}, VOCABULARY, LENGTH)


def make(optimizer: str, module: nn.Module | None = None, **changes: Any) -> LocalTrainer:
    given: dict[str, Any] = {"gradient_clip": 1.0, "options": INNER.resolve(optimizer, {}), "proximal": 0.1} | changes
    return LocalTrainer(module or build(MODEL, 0), optimizer=optimizer, **given)


def two(optimizer: str, **changes: Any) -> tuple[LocalTrainer, LocalTrainer]:
    """Return a trainer, and one whose optimizer is offloaded."""
    plain, other = make(optimizer, **changes), make(optimizer, **changes)
    other.offload()
    return plain, other


def batches(seed: int, count: int = 3) -> Iterator[Batch]:
    rng = np.random.default_rng(seed)
    return iter([labelled(rng.integers(0, VOCABULARY, (ROWS, LENGTH))) for _ in range(count)])


def noise(trainer: LocalTrainer, seed: int, scale: float = 1e-3) -> Tensor:
    return torch.randn(trainer.flat.layout.size, generator=torch.Generator().manual_seed(seed)) * scale


def equal(plain: LocalTrainer, other: LocalTrainer) -> None:
    assert other.offloaded is not None
    assert torch.equal(plain.flat.vector, other.flat.vector)
    assert torch.equal(other.offloaded.vector, other.flat.vector), "the device has a copy of the master weights"
    ours, theirs = plain.moments(), other.moments()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("optimizer", NAMES)
def test_steps_loads_and_offsets_have_the_same_bits(optimizer: str, late: bool) -> None:
    pair = two(optimizer)
    for trainer in pair:
        trainer.reads_late = late
        trainer.load(trainer.flat.vector + noise(trainer, 1))
        trainer.run(batches(1), 0.01, lambda step, trainer=trainer: bool(trainer.shift(noise(trainer, step))))  # type: ignore[misc]
        trainer.follow(noise(trainer, 2), 3, 0.01, 0.5)
        trainer.anchor()
        trainer.ramp()
        trainer.run(batches(2), 0.01)
    equal(*pair)


@pytest.mark.parametrize(("name", "option"), [("adamw", "AT_ONCE"), ("lion", "SPAN"), ("adamw_8bit", "SPAN")])
def test_steps_in_pieces_move_all_parameters(monkeypatch: pytest.MonkeyPatch, name: str, option: str) -> None:
    """Each piece returns to the device by itself; the fused kernel rounds the last values of a piece otherwise."""
    plain, other = make(name), make(name)
    plain.run(batches(1), 0.01)
    size = {"cpu": 512} if name == "adamw_8bit" else 512
    monkeypatch.setattr(f"barnraise.training.inner.{name}.{option}", size)
    monkeypatch.setattr("barnraise.training.offload.AT_ONCE", 768)
    other.offload()
    other.run(batches(1), 0.01)
    assert other.offloaded is not None
    assert len(list(other.optimizer.step_by_piece(0.0))) == -(-len(other.flat.vector) // 512)
    assert torch.equal(other.offloaded.vector, other.flat.vector)
    torch.testing.assert_close(other.flat.vector, plain.flat.vector, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_bfloat16_changes_nothing_about_it(optimizer: str) -> None:
    pair = two(optimizer, precision="bfloat16")
    for trainer in pair:
        trainer.run(batches(1), 0.01)
    equal(*pair)


def test_adapters_alone_are_offloaded(tmp_path: Path) -> None:
    lora = Exchange.of(MODEL, frozen(build(MODEL, 3), tmp_path, "lora", rank=2))
    pair = [make("adamw", build_exchanged(MODEL, lora, tmp_path)) for _ in range(2)]
    pair[1].offload()
    for trainer in pair:
        trainer.run(batches(1), 0.01)
    equal(pair[0], pair[1])
    assert pair[1].offloaded is not None
    assert len(pair[1].offloaded.vector) == lora.trained


@pytest.mark.parametrize("optimizer", NAMES)
def test_a_stateless_task_is_repeated_by_another_machine(optimizer: str) -> None:
    """The worker has a device whose optimizer is offloaded, and the auditor has none."""
    exchange = Exchange.of(MODEL, moments=INNER.entry(optimizer).declares.seconds)
    ends = []
    for trainer in two(optimizer):
        once, published = Repeatable(trainer, exchange), initial(build_vector(), exchange)
        movement = torch.zeros(exchange.exchanged)
        movement[: exchange.trained] = noise(trainer, 5)
        once.begin(3, published, movement, 1.0)
        trainer.run(batches(1), 0.01)
        once.take_in(published + movement)
        trainer.run(batches(2), 0.01)
        ends.append(once.end())
    assert all(torch.equal(one, other) for one, other in zip(*ends, strict=True))


def build_vector() -> Tensor:
    return make("sgd").flat.vector.clone()


def test_moments_of_another_process_are_used() -> None:
    plain, other = two("adamw")
    plain.run(batches(1), 0.01)
    other.load(plain.flat.vector)
    assert other.remember({name: tensor.clone() for name, tensor in plain.moments().items()})
    for trainer in (plain, other):
        trainer.anchor()
        trainer.run(batches(2), 0.01)
    equal(plain, other)


def test_a_copy_of_the_parameters_is_made_of_the_master_weights() -> None:
    _, trainer = two("adamw")
    trainer.run(batches(1), 0.01)
    before, found = trainer.flat.vector.clone(), torch.empty(trainer.flat.layout.size)
    with ThreadPoolExecutor(1) as pool:
        copied = trainer.copy_out(found, pool)
        trainer.run(batches(2), 0.01)  # waits before the master weights change
        copied.wait()
    assert torch.equal(found, before)


def test_another_trainer_of_the_module_shares_the_master_weights() -> None:
    pair = two("adamw")
    for trainer in pair:
        trainer.run(batches(1), 0.01)
        other = trainer.anew()
        assert other.fresh
        other.load(build_vector())
        other.run(batches(2), 0.01)
    equal(*pair)


def test_a_cpu_needs_no_offloading() -> None:
    assert make("adamw", offload=True).offloaded is None


@pytest.mark.parametrize("late", [False, True])
def test_a_gradient_that_is_not_finite_destroys_nothing(late: bool) -> None:
    _, trainer = two("adamw")
    trainer.reads_late = late
    trainer.run(batches(1), 0.01)
    loss = trainer.problem.loss
    trainer.problem.loss = lambda module, batch: (loss(module, batch)[0] * math.nan, loss(module, batch)[1])  # type: ignore[method-assign]
    assert trainer.run(batches(2, 1), 0.01)[0] == 0
    assert bool(trainer.flat.vector.isfinite().all())
    assert all(bool(moment.isfinite().all()) for moment in trainer.moments().values())


def test_the_master_weights_begin_as_the_parameters() -> None:
    trainer = make("adamw")
    memory = MainMemory(trainer.flat)
    assert torch.equal(memory.vector, trainer.flat.vector)
    assert memory.vector.data_ptr() != trainer.flat.vector.data_ptr()
