"""The stage of noise: the bound of the part that depends on rows, and a residual of noised vectors alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from barnraise import compression
from barnraise.core.errors import PayloadError
from barnraise.core.threads import Crew
from barnraise.worker.noise_stage import ClippedNoise
from barnraise.worker.update_path import UpdatePath

SIZE = 5000


def path(clip: float, noise: float, codec: str = "none", **options: object) -> UpdatePath:
    made = UpdatePath(compression.create(codec, **options), error_feedback=True, decay=1.0, update_clip=None)
    made.insert(ClippedNoise(clip, noise, Crew()))
    return made


def sent(sender: UpdatePath, update: torch.Tensor, **options: object) -> torch.Tensor:
    found = sender.send(update.clone(), torch.zeros(SIZE), **options)  # type: ignore[arg-type]
    return torch.from_numpy(found.decoded())


@pytest.mark.parametrize("length", [1e-3, 1.0, 1e6])
def test_an_update_without_noise_is_no_longer_than_its_clip(length: float) -> None:
    update = torch.randn(SIZE)
    update *= length / update.norm()
    found = sent(path(0.5, 1e-30), update)
    assert found.norm() <= 0.5
    torch.testing.assert_close(found, update * min(1.0, 0.5 / length), rtol=1e-5, atol=1e-9)


def test_an_update_has_noise_of_its_multiple_of_the_clip() -> None:
    found = sent(path(0.5, 2.0), torch.zeros(SIZE))
    assert float(found.std()) == pytest.approx(1.0, rel=0.1)


def test_an_update_keeps_what_it_leaves_out_with_its_noise() -> None:
    """Sent and kept together are the noised vector: no value of the residual is a plain one."""
    sender, update = path(1.0, 0.5, "topk", ratio=0.1), torch.zeros(SIZE)
    found = sent(sender, update)
    assert sender.feedback is not None
    assert sender.feedback.residual is not None
    together = found + sender.feedback.residual
    assert int((together == 0.0).sum()) == 0
    assert float(together.std()) == pytest.approx(0.5, rel=0.1)


def test_a_range_that_is_not_sent_is_noised_too() -> None:
    sender = path(1.0, 0.5, "topk", ratio=0.1)
    sender.send(torch.zeros(SIZE), torch.zeros(SIZE), covered=(0, 1000))
    assert sender.feedback is not None
    assert sender.feedback.residual is not None
    assert int((sender.feedback.residual[1000:] == 0.0).sum()) == 0


def test_a_residual_is_added_behind_the_clip() -> None:
    sender = path(1.0, 1e-30, "topk", ratio=0.1)
    update = torch.randn(SIZE)
    for _ in range(3):
        sent(sender, update)
    assert sender.feedback is not None
    assert 1.0 < sender.feedback.residual_norm < 3.0


def test_an_update_that_is_not_finite_is_refused() -> None:
    update = torch.full((SIZE,), np.inf)
    with pytest.raises(PayloadError, match="not finite"):
        sent(path(1.0, 1.0), update)
