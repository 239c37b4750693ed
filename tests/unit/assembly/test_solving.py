"""How many held-out formulas a model is let solve."""

from __future__ import annotations

import pytest

from barnraise.assembly import solving


@pytest.mark.parametrize("context", [8, 62, 400])
@pytest.mark.parametrize("num_parameters", [10_000, 400_000, 10**9])
def test_number_of_formulas_is_bounded_and_falls_with_the_cost(num_parameters: int, context: int) -> None:
    number = solving.num_formulas(num_parameters, context)
    assert solving.FEWEST <= number <= solving.MOST
    assert number >= solving.num_formulas(2 * num_parameters, context)
