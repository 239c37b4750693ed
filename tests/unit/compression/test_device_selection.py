"""Selection, error feedback and the path of updates by torch: the bits of those by numpy, on tensors of any device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from barnraise import compression
from barnraise.compression.chunked_topk import ChunkedCodec
from barnraise.compression.device_selection import DeviceFeedback, select
from barnraise.compression.feedback import ErrorFeedback
from barnraise.core.errors import InputError, PayloadError
from barnraise.worker.device_session import DevicePath
from barnraise.worker.update_path import UpdatePath

CODECS = [("sparse_loco", {"ratio": 0.125, "chunk": 64}), ("chunked_topk", {"ratio": 1 / 64, "chunk": 4096})]


def codec_of(name: str, options: dict[str, Any]) -> ChunkedCodec:
    codec = compression.create(name, **options)
    assert isinstance(codec, ChunkedCodec)
    return codec


def vectors(size: int) -> dict[str, Tensor]:
    chance = torch.Generator().manual_seed(size)
    noise = torch.randn(size, generator=chance)
    return {
        "noise": noise,
        "ties": torch.randint(-2, 3, (size,), generator=chance).float(),
        "zeros of both signs": torch.where(noise < 0, -0.0, 0.0),
        "one magnitude": torch.where(noise < 0, -1.5, 1.5),
        "denormal": noise * 1e-40,
        "huge": noise.clamp(-3, 3) * 1e38,
    }


@pytest.mark.parametrize("size", [1, 63, 64, 4096, 5000, 12_288])
@pytest.mark.parametrize(("name", "options"), CODECS)
def test_the_payload_has_the_same_bytes(name: str, options: dict[str, Any], size: int) -> None:
    codec = codec_of(name, options)
    for what, vector in vectors(size).items():
        assert bytes(codec.encode_there(vector).payload) == bytes(codec.encode(vector).payload), what


def test_rows_are_selected_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    vector = vectors(10_000)["ties"]
    whole = select(vector, 64, 8)
    monkeypatch.setattr("barnraise.compression.device_selection._AT_ONCE", 200)
    for one, other in zip(whole, select(vector, 64, 8), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", [0, 70, 149])
def test_a_vector_that_is_not_finite_is_refused(value: float, place: int) -> None:
    vector = torch.ones(150)
    vector[place] = value
    with pytest.raises(PayloadError, match="elements that are not finite"):
        select(vector, 64, 1)


@pytest.mark.parametrize("decay", [1.0, 0.95])
@pytest.mark.parametrize("covered", [None, (0, 300), (10, 100, 200, 333)])
@pytest.mark.parametrize("last", ["int8", "none"])
def test_feedback_and_clipped_updates_have_the_same_bits(
    decay: float, covered: tuple[int, ...] | None, last: str
) -> None:
    chance, size = torch.Generator().manual_seed(1), 333
    given = {"error_feedback": True, "decay": decay, "update_clip": 3.0, "fragments": True}
    paths = [kind(codec_of(*CODECS[0]), last=compression.create(last), **given) for kind in (UpdatePath, DevicePath)]  # type: ignore[arg-type]
    for number in range(6):
        start, end = (torch.randn(size, generator=chance) for _ in range(2))
        sent = [path.send(start.clone(), end, covered=covered, scale=0.3, leaving=number == 4) for path in paths]
        assert sent[0].blob == sent[1].blob
        for path, update in zip(paths, sent, strict=True):
            path.settle(update, accepted=number % 2 == 0)
        same_residual(*(path.feedback for path in paths))
    flushed = [path.flush(size) for path in paths]
    assert flushed[0].blob == flushed[1].blob
    same_residual(*(path.feedback for path in paths))


def same_residual(one: ErrorFeedback | None, other: ErrorFeedback | None) -> None:
    assert one is not None
    assert other is not None
    assert isinstance(other, DeviceFeedback)
    assert one.residual is not None
    assert other.residual is not None
    assert torch.equal(one.residual, other.residual)


def test_a_residual_of_another_size_is_refused() -> None:
    feedback = DeviceFeedback(codec_of(*CODECS[0]))
    feedback.compress(torch.ones(64))
    with pytest.raises(InputError, match=r"a vector of 65 elements after one of 64; call reset\(\) first"):
        feedback.compress(torch.ones(65))


def test_a_refused_first_update_is_the_residual() -> None:
    feedback = DeviceFeedback(codec_of(*CODECS[0]))
    encoded = feedback.codec.encode(torch.ones(64))
    feedback.give_back(encoded)
    assert feedback.flush() is not None
    assert float(feedback.residual_norm) == 0.0
    assert DeviceFeedback(codec_of(*CODECS[0])).flush() is None
