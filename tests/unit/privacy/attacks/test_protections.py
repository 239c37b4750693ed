"""Protections: what an adversary sees is what they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from torch import Tensor

from barnraise.privacy.attacks.protections import MOST_MEMBERS, VALUE_BITS, clipped
from barnraise.privacy.attacks.runner import make_protection
from barnraise.privacy.masking.ring import Ring

SIZE = 4096


@pytest.fixture
def updates() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(SIZE, generator=generator) / 64 for _ in range(4)]


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_no_protection_shows_the_update(updates: list[Tensor]) -> None:
    assert torch.equal(make_protection("none").seen(updates, rng()), updates[0])


def test_a_codec_shows_its_own_rounding(updates: list[Tensor]) -> None:
    seen = make_protection("codec:topk").seen(updates, rng())
    assert int((seen != 0).sum()) == round(0.01 * SIZE)
    kept = seen != 0
    assert torch.equal(seen[kept], updates[0][kept])


def test_noise_has_the_stated_deviation_and_the_update_the_bound(updates: list[Tensor]) -> None:
    protection = make_protection("noise:0.5")
    protection.bound = 0.25
    noise = protection.seen(updates, rng()) - clipped(updates[0], 0.25)
    assert float(noise.std()) == pytest.approx(0.125, rel=0.05)
    assert float(clipped(updates[0], 0.25).norm()) == pytest.approx(0.25, rel=1e-5)
    assert torch.equal(clipped(updates[0], 1e6), updates[0])


def test_a_sum_is_opened_for_one_list(updates: list[Tensor]) -> None:
    first, second, same = make_protection("sum:4").sums(updates, [(0, 1, 2), (1, 2), (2, 1, 0)], rng())
    assert first is not None
    torch.testing.assert_close(first, updates[0] + updates[1] + updates[2])
    assert second is None
    assert same is not None


def test_sums_of_any_list_reveal_a_difference(updates: list[Tensor]) -> None:
    first, second = make_protection("any_sum:3").sums(updates, [(0, 1, 2), (1, 2)], rng())
    assert first is not None
    assert second is not None
    torch.testing.assert_close(first - second, updates[0])


def test_noise_of_a_sum_is_added_once(updates: list[Tensor]) -> None:
    protection = make_protection("noisy_sum:4:0.1")
    noise = protection.seen(updates, rng()) - torch.stack([clipped(update, 1.0) for update in updates]).sum(0)
    assert float(noise.std()) == pytest.approx(0.1, rel=0.05)


def test_a_masked_message_is_uniform_and_fresh(updates: list[Tensor]) -> None:
    """A message of a mask that repeats, or that is not uniform over the ring, would say something of the update."""
    protection = make_protection("masked")
    one, other = protection.seen(updates, rng()), protection.seen(updates, rng())
    ring = Ring(VALUE_BITS, MOST_MEMBERS, float(clipped(updates[0], 1.0).abs().max()))
    width = ring.clip / ring.limit * 2**ring.bits
    assert kstest(one.numpy() / width + 0.5, "uniform").pvalue > 1e-4
    assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 0.1
    assert abs(float(torch.corrcoef(torch.stack([one, updates[0]]))[0, 1])) < 0.1


def test_a_message_without_its_masks_is_the_update(updates: list[Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    """The ring holds the update: without streams the message decodes to it within a step of the ring."""
    monkeypatch.setattr("barnraise.privacy.attacks.protections.add_streams", lambda *_: None)
    wanted = clipped(updates[0], 1.0)
    step = float(wanted.abs().max()) / (2 ** (VALUE_BITS - 1) - 1)
    torch.testing.assert_close(make_protection("masked").seen(updates, rng()), wanted, atol=1.01 * step, rtol=0.0)


def test_noise_of_a_sum_is_in_the_opened_list(updates: list[Tensor]) -> None:
    protection = make_protection("noisy_sum:4:0.1")
    opened, _ = protection.sums(updates, [(0, 1), (1,)], rng())
    assert opened is not None
    assert float((opened - clipped(updates[0], 1.0) - clipped(updates[1], 1.0)).std()) == pytest.approx(0.1, rel=0.05)
