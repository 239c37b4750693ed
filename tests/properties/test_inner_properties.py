"""Properties of inner optimizers that take their steps piece by piece."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

from barnraise.models.flat import FlatParameters
from barnraise.training import inner
from barnraise.training.inner import adamw_8bit
from barnraise.training.inner.adamw_8bit import BLOCK

torch.set_num_threads(1)
OPTIONS = {"beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1}


def stepped(sizes: list[int], decays: str, span: int) -> list[Tensor]:
    """Return parameters, codes and scales after three steps of 8-bit AdamW in pieces of `span` values."""
    chance = torch.Generator().manual_seed(sum(sizes))
    shapes = [(size,) if number % 2 else (1, size) for number, size in enumerate(sizes)]
    module = nn.ParameterList(nn.Parameter(torch.randn(shape, generator=chance)) for shape in shapes)
    flat = FlatParameters(module)
    optimizer = inner.create("adamw_8bit", OPTIONS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(adamw_8bit.SPAN, "cpu", span)
        optimizer.bind(flat, decays)
        for _ in range(3):
            flat.gradient.copy_(torch.randn(len(flat.vector), generator=chance))
            optimizer.step(0.01)
    return [flat.vector, *optimizer.moments.values()]


DECAYS, BLOCKS = st.sampled_from(["all", "matrices"]), st.integers(1, 8)
LARGEST = 6 * BLOCK
LANES = 16
"""A multiple of the values that torch's fused kernel takes at once on any CPU.

It rounds those left at the end of a range otherwise than those before them: it multiplies and adds them in one step.
"""


@given(st.lists(st.integers(1, LARGEST // LANES), max_size=3), st.integers(1, LARGEST), DECAYS, BLOCKS)
def test_8_bit_adamw_has_the_same_codes_and_parameters_in_pieces_of_any_size(
    lanes: list[int], last: int, decays: str, blocks: int
) -> None:
    sizes = [*(LANES * number for number in lanes), last]
    whole, pieces = stepped(sizes, decays, 1 << 20), stepped(sizes, decays, blocks * BLOCK)
    assert all(torch.equal(one, other) for one, other in zip(whole, pieces, strict=True))


@given(st.lists(st.integers(1, LARGEST), min_size=1, max_size=4), DECAYS, BLOCKS)
@example([1, 822], "matrices", 1)
def test_8_bit_adamw_in_pieces_differs_by_the_kernels_rounding_alone(
    sizes: list[int], decays: str, blocks: int
) -> None:
    whole, pieces = stepped(sizes, decays, 1 << 20), stepped(sizes, decays, blocks * BLOCK)
    for one, other in zip(whole, pieces, strict=True):
        apart = (one.double() - other.double()).abs()
        if one.dtype.is_floating_point:
            assert (apart > 1e-6 * (1.0 + one.abs())).sum() <= 2  # those whose code was rounded to the other side
        else:
            assert apart.max() <= 1.0
            assert (apart > 0.0).sum() <= 2
