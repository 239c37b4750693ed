"""Gradients of single rows: those of each row alone, for adapters and whole models."""

from __future__ import annotations

import pytest
import torch
from tests.private_models import batch_of_tokens, gpt

from barnraise.privacy.examples.row_gradients import RowGradients
from barnraise.training.causal_lm import CausalLM


@pytest.mark.parametrize("adapters", [True, False])
def test_rows_have_the_gradients_that_each_has_alone(adapters: bool) -> None:
    module, problem = gpt(adapters=adapters), CausalLM()
    batch = batch_of_tokens(5)
    trained = [value for value in module.parameters() if value.requires_grad]
    gradients = RowGradients(module, problem)
    found = gradients.of(batch)
    assert gradients.remark == ""
    for row in range(5):
        total, weight = problem.loss(module, {name: values[row : row + 1] for name, values in batch.items()})
        alone = torch.autograd.grad(total / weight, trained)
        torch.testing.assert_close(found[row], torch.cat([value.flatten() for value in alone]), rtol=1e-4, atol=1e-6)


def test_rows_pass_one_by_one_where_a_layer_cannot_be_vectorised() -> None:
    class Picky(torch.nn.Module):
        """A layer that reads a number of its input, which no vectorised row has."""

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return values * 2.0 if float(values.sum()) > 1e9 else values

    module, batch = gpt(adapters=False), batch_of_tokens(3)
    plain = RowGradients(module, CausalLM()).of(batch)
    module.transformer.drop = Picky()
    gradients = RowGradients(module, CausalLM())
    torch.testing.assert_close(gradients.of(batch), plain, rtol=1e-4, atol=1e-6)
    assert "one by one" in gradients.remark
