"""Properties of inner optimizers that take their steps piece by piece."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
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


@given(
    st.lists(st.integers(1, 6 * BLOCK), min_size=1, max_size=4),
    st.sampled_from(["all", "matrices"]),
    st.integers(1, 8),
)
def test_8_bit_adamw_has_the_same_codes_and_parameters_in_pieces_of_any_size(
    sizes: list[int], decays: str, blocks: int
) -> None:
    whole, pieces = stepped(sizes, decays, 1 << 20), stepped(sizes, decays, blocks * BLOCK)
    assert all(torch.equal(one, other) for one, other in zip(whole, pieces, strict=True))
