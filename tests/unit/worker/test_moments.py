"""The moments of a worker's optimizer on disk: as good as never interrupted, or not used at all."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.batches import labelled
from torch import Tensor, nn

from barnraise.training.local import LONGEST_RAMP, LocalTrainer
from barnraise.worker import moments
from barnraise.worker.moments import Moments

OWNER = {"run": "barn", "node": "a", "manifest": "f" * 64}
OPTIMIZERS: dict[str, dict[str, float]] = {
    "adamw": {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.01},
    "sgd": {"momentum": 0.9, "weight_decay": 0.01},
}
ROWS = np.array([[0, 1, 2, 3, 0, 1, 2, 3]])


class Bigram(nn.Module):
    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(vocabulary, vocabulary))

    def forward(self, input_ids: Tensor, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(logits=self.table[input_ids])


def make(optimizer: str = "adamw", vocabulary: int = 4) -> LocalTrainer:
    return LocalTrainer(Bigram(vocabulary), optimizer=optimizer, options=OPTIMIZERS[optimizer], gradient_clip=None)


def train(trainer: LocalTrainer, steps: int, rate: float = 0.1) -> Tensor:
    for _ in range(steps):
        assert trainer.step(labelled(ROWS), rate) is not None
    return trainer.flat.vector.clone()


class Kept:
    """A file of moments, and what is said of it."""

    def __init__(self, folder: Path) -> None:
        self.path, self.said = folder / "deep" / "a.safetensors", list[str]()

    def open(self, **owner: str) -> Moments:
        return Moments(self.path, OWNER | owner, self.said.append)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_worker_that_restores_its_moments_trains_as_if_never_stopped(kept: Kept, optimizer: str) -> None:
    steady = make(optimizer)
    start = train(steady, 5)
    kept.open().keep(steady)
    again = make(optimizer)
    again.load(start)
    assert again.fresh
    assert kept.open().restore(again)
    assert not again.fresh
    torch.testing.assert_close(train(again, 3), train(steady, 3), rtol=0, atol=0)
    assert kept.said == []
    assert list(kept.path.parent.iterdir()) == [kept.path]


def test_a_worker_without_a_file_of_moments_starts_from_zero(kept: Kept) -> None:
    trainer = make()
    assert not kept.open().restore(trainer)
    assert trainer.fresh
    kept.open().keep(trainer)  # there is nothing to keep
    assert not kept.path.exists()
    assert kept.said == []


@pytest.mark.parametrize("key", OWNER)
def test_moments_of_another_run_node_or_model_are_not_used(kept: Kept, key: str) -> None:
    trainer = make()
    train(trainer, 2)
    kept.open().keep(trainer)
    other = make()
    assert not kept.open(**{key: "other"}).restore(other)
    assert other.fresh
    assert kept.said == [f"optimizer moments in {kept.path} are not used: they are of another run, node or model"]


@pytest.mark.parametrize(("optimizer", "vocabulary"), [("sgd", 4), ("adamw", 5), ("adamw", 3)])
def test_moments_of_another_optimizer_or_size_are_not_used(kept: Kept, optimizer: str, vocabulary: int) -> None:
    trainer = make()
    train(trainer, 2)
    kept.open().keep(trainer)
    other = make(optimizer, vocabulary)
    assert not kept.open().restore(other)
    assert other.fresh
    assert len(kept.said) == 1


def test_no_damage_is_taken_for_moments(kept: Kept) -> None:
    trainer = make()
    train(trainer, 2)
    kept.open().keep(trainer)
    sound = kept.path.read_bytes()
    for place in range(0, len(sound), 7):
        spoiled = bytearray(sound)
        spoiled[place] ^= 0x10
        kept.path.write_bytes(spoiled)
        assert not kept.open().restore(make()), place
    for length in (0, 7, 100, len(sound) - 1):
        kept.path.write_bytes(sound[:length])
        assert not kept.open().restore(make()), length
    kept.path.write_bytes(sound + bytes(1 << 20))
    assert not kept.open().restore(make())
    kept.path.write_bytes(sound)
    assert kept.open().restore(make())


def test_a_state_that_is_not_finite_is_not_used(kept: Kept) -> None:
    trainer = make()
    train(trainer, 2)
    spoiled = trainer.moments()
    spoiled["exp_avg"][3] = torch.nan  # shared with the optimizer
    kept.open().keep(trainer)
    assert not kept.open().restore(make())
    assert kept.said == [f"optimizer moments in {kept.path} are not used: they do not fit"]


def test_a_disk_that_cannot_be_written_is_said_once(kept: Kept) -> None:
    kept.path.parent.write_text("a file where a folder should be")
    trainer = make()
    train(trainer, 1)
    store = kept.open()
    for _ in range(3):
        store.keep_if_due(trainer)
    assert len(kept.said) == 1
    assert kept.said[0].startswith(f"optimizer moments cannot be kept in {kept.path}: ")


def test_they_are_written_at_once_and_then_seldom(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, store = make(), kept.open()
    train(trainer, 1)
    store.keep_if_due(trainer)
    assert kept.path.exists()
    shutil.rmtree(kept.path.parent)
    store.keep_if_due(trainer)
    assert not kept.path.exists()
    monkeypatch.setattr(moments, "INTERVAL", 0.0)
    monkeypatch.setattr(moments, "COST", 1e9)
    store.keep(trainer)
    shutil.rmtree(kept.path.parent)
    store.keep_if_due(trainer)
    assert kept.path.exists()


@pytest.mark.parametrize(("beta2", "steps"), [(0.95, 20), (0.999, LONGEST_RAMP)])
def test_a_newcomers_rate_rises(beta2: float, steps: int) -> None:
    options = {"beta1": 0.9, "beta2": beta2, "weight_decay": 0.0}
    trainer = LocalTrainer(Bigram(4), optimizer="adamw", options=options, gradient_clip=None)
    trainer.ramp()
    rates = []
    for _ in range(steps + 2):
        rates.append(trainer.ramped(0.5))
        trainer.step(labelled(ROWS), 0.5)
    assert rates == pytest.approx([0.5 * (step + 1) / steps for step in range(steps)] + [0.5, 0.5])


def test_without_moments_to_gather_there_is_no_ramp() -> None:
    trainer = make("sgd")
    trainer.ramp()
    assert trainer.ramped(0.5) == 0.5
