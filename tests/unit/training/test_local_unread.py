"""Steps on a device: nothing waits for their results before the task ends, and logits are held once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.batches import labelled
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from barnraise.data.batches import Batch
from barnraise.models.build import build, build_exchanged
from barnraise.models.config import describe
from barnraise.models.exchange.record import Exchange
from barnraise.training.catalog import INNER
from barnraise.training.causal_lm import CausalLM
from barnraise.training.device import recompute_activations
from barnraise.training.local import LocalTrainer

from ...exchanges import frozen

SHAPE = {"hidden_size": 16, "num_layers": 2, "num_heads": 2}
VOCABULARY, LENGTH, ROWS = 40, 16, 4
WAITS = "aten._local_scalar_dense", "aten.nonzero", "aten.is_nonzero", "aten.equal"


class Watch(TorchDispatchMode):
    """Counts the operations for whose result a host waits, and the copies of logits."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []
        self.logits = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        self.waits += [name] if name.startswith(WAITS) else []
        made = func(*args, **(kwargs or {}))
        copies = name.startswith(("aten._to_copy", "aten.clone", "aten.copy_"))
        if copies and isinstance(made, Tensor) and made.numel() >= ROWS * (LENGTH - 1) * VOCABULARY:
            self.logits += made.shape[-1] == VOCABULARY
        return made


def make(
    optimizer: str = "adamw", rows_at_once: int | None = None, module: nn.Module | None = None, **changes: Any
) -> LocalTrainer:
    """Return a trainer that reads late, as one on a device, on the CPU."""
    module = module or build(describe({"architecture": "gpt2", "config": SHAPE}, VOCABULARY, LENGTH), 0)
    at_once = rows_at_once * LENGTH if rows_at_once else None
    given: dict[str, Any] = {"gradient_clip": 1.0, "options": INNER.resolve(optimizer, {})} | changes
    trainer = LocalTrainer(module, optimizer=optimizer, tokens_at_once=at_once, **given)
    trainer.reads_late = True
    return trainer


def batches(count: int = 4) -> Iterator[Batch]:
    rng = np.random.default_rng(1)
    return iter([labelled(rng.integers(0, VOCABULARY, (ROWS, LENGTH))) for _ in range(count)])


@contextmanager
def spoilt(trainer: LocalTrainer, step: int) -> Iterator[None]:
    """Let the loss of that step, from 1 on, be NaN."""
    loss, calls = trainer.problem.loss, 0

    def wrong(module: Any, batch: Any) -> Any:
        nonlocal calls
        calls += 1
        total, weight = loss(module, batch)
        return total * (math.nan if calls == step else 1.0), weight

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer.problem, "loss", wrong)
        yield


@pytest.mark.parametrize("rows_at_once", [None, 1])
@pytest.mark.parametrize("optimizer", INNER.names())
def test_the_host_waits_for_the_device_once_a_task(optimizer: str, rows_at_once: int | None) -> None:
    trainer = make(optimizer, rows_at_once, proximal=0.1)
    trainer.load(trainer.flat.vector.clone())
    with Watch() as watch:
        steps, _ = trainer.run(batches(), 0.01)
    assert steps == 4
    assert watch.waits == []  # the two sums are copied at once, which is no wait for a scalar


def test_an_offloaded_optimizer_waits_for_gradients_alone() -> None:
    trainer = make(proximal=0.1)
    trainer.offload()
    trainer.load(trainer.flat.vector.clone())
    with Watch() as watch:
        trainer.run(batches(), 0.01)
    assert watch.waits == []


def test_adapters_wait_for_nothing(tmp_path: Path) -> None:
    model = describe({"architecture": "gpt2", "config": SHAPE}, VOCABULARY, LENGTH)
    exchange = Exchange.of(model, frozen(build(model, 3), tmp_path, "lora", rank=2, base="nf4"))
    trainer = make(module=build_exchanged(model, exchange, tmp_path))
    with Watch() as watch:
        assert trainer.run(batches(), 0.01)[0] == 4
    assert watch.waits == []


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("architecture", ["gpt2", "gpt_neo", "llama", "qwen2", "opt"])
def test_no_architecture_waits_for_masks(architecture: str, packed: bool) -> None:
    module = build(describe({"architecture": architecture, "config": SHAPE}, VOCABULARY, LENGTH), 0)
    trainer, several = make(module=module, precision="bfloat16"), list(batches(2))
    if packed:
        positions = np.tile(np.arange(LENGTH) % (LENGTH // 2), (ROWS, 1))
        several = [batch | {"position_ids": positions} for batch in several]
    with Watch() as watch:
        assert trainer.run(iter(several), 0.01)[0] == 2
    assert watch.waits == []


def test_activations_that_are_computed_again_wait_for_nothing() -> None:
    module = build(describe({"architecture": "gpt2", "config": SHAPE}, VOCABULARY, LENGTH), 0)
    recompute_activations(module)
    trainer = make(module=module, optimizer="muon")
    with Watch() as watch:
        assert trainer.run(batches(), 0.01)[0] == 4
    assert watch.waits == []


@pytest.mark.parametrize("offloaded", [False, True])
@pytest.mark.parametrize("optimizer", INNER.names())
def test_a_version_between_two_steps_waits_for_nothing(optimizer: str, offloaded: bool) -> None:
    """The offset and the fleet's momentum, the start of the next task, and a copy of the end of this one."""
    trainer = make(optimizer, proximal=0.1)
    if offloaded:
        trainer.offload()
    size = trainer.flat.layout.size
    trainer.run(batches(), 0.01)
    with Watch() as watch:
        trainer.follow(torch.full((size,), 1e-3), 4, 0.01, 0.5)
        trainer.shift(torch.full((size,), 1e-3))
        trainer.copy_out(torch.empty(size))
        trainer.anchor()
        trainer.ramp()
        assert trainer.run(batches(), 0.01)[0] == 4
    assert watch.waits == []


def test_the_watch_finds_a_wait() -> None:
    trainer = make()
    trainer.reads_late = False
    with Watch() as watch:
        trainer.run(batches(1), 0.01)
    assert watch.waits, "the CPU's steps read the loss and the norm"


@pytest.mark.parametrize("rows_at_once", [None, 1])
def test_steps_that_are_read_late_are_the_same_steps(rows_at_once: int | None) -> None:
    late, at_once = make(rows_at_once=rows_at_once), make(rows_at_once=rows_at_once)
    at_once.reads_late = False
    found, wanted = late.run(batches(), 0.01), at_once.run(batches(), 0.01)
    assert torch.equal(late.flat.vector, at_once.flat.vector)
    assert (found[0], found[1]) == (wanted[0], pytest.approx(wanted[1], rel=1e-6))


@pytest.mark.parametrize("optimizer", INNER.names())
def test_a_gradient_that_is_not_finite_destroys_nothing(optimizer: str) -> None:
    trainer = make(optimizer)
    with spoilt(trainer, 3):
        steps, loss = trainer.run(batches(), 0.01)
    assert (steps, trainer.skipped) == (3, 1)
    assert math.isfinite(loss)
    assert bool(trainer.flat.vector.isfinite().all())
    assert all(bool(moment.isfinite().all()) for moment in trainer.moments().values() if moment.is_floating_point())
    before = trainer.flat.vector.clone()
    assert trainer.run(batches(), 0.01)[0] == 4
    assert not torch.equal(trainer.flat.vector, before), "it trains on"


def test_a_task_without_a_finite_gradient_has_no_steps() -> None:
    trainer = make("sgd", options={"momentum": 0.9, "weight_decay": 0.0})
    before = trainer.flat.vector.clone()
    with spoilt(trainer, 1):
        steps, loss = trainer.run(batches(1), 0.01)
    assert (steps, trainer.skipped, math.isnan(loss)) == (0, 1, True)
    assert torch.equal(trainer.flat.vector, before)


def test_a_device_holds_one_copy_of_the_logits_in_float32() -> None:
    """The fake device computes nothing; what it would copy is counted."""
    module = build(describe({"architecture": "gpt2", "config": SHAPE}, VOCABULARY, LENGTH), 0)
    module = module.to("meta", torch.bfloat16)
    tokens = torch.zeros(ROWS, LENGTH, dtype=torch.int64, device="meta")
    with Watch() as watch:
        total, weight = CausalLM().loss(module, {"input_ids": tokens, "labels": tokens})
        (total / weight).backward()
    assert watch.waits == []
    assert watch.logits <= 2, "one in float32, and its gradient's way back to bfloat16"


def test_the_loss_of_uncut_logits_is_that_of_cut_ones() -> None:
    module = build(describe({"architecture": "gpt2", "config": SHAPE}, VOCABULARY, LENGTH), 0)
    tokens = torch.randint(0, VOCABULARY, (ROWS, LENGTH), generator=torch.Generator().manual_seed(0))
    total, weight = CausalLM().loss(module, {"input_ids": tokens, "labels": tokens})
    logits = module(input_ids=tokens).logits.float()
    wanted = torch.nn.functional.pad(tokens[:, 1:], (0, 1), value=-100)
    uncut = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum")
    assert int(weight) == ROWS * (LENGTH - 1)
    torch.testing.assert_close(total, uncut)
