"""How many held-out formulas a model is let solve."""

from __future__ import annotations

import pytest

from barnraise.assembly import solving


@pytest.mark.parametrize("context", [8, 62, 400])
@pytest.mark.parametrize("model_size", [10_000, 400_000, 10**9])
def test_number_of_formulas_is_bounded_and_falls_with_the_cost(model_size: int, context: int) -> None:
    number = solving.num_formulas(model_size, context)
    assert solving.FEWEST <= number <= solving.MOST
    assert number >= solving.num_formulas(2 * model_size, context)
