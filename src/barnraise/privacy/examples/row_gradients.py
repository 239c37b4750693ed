"""Gradients of single rows, by `torch.func`: the gradient of one row's loss, vectorised over the rows of a batch.

Chosen after measuring (benchmarks/differential_privacy.py): opacus' hooks take about as long on adapters, but they
need a rule for each kind of layer, and on a whole GPT-2 they give position embeddings one gradient for all rows. Where
a layer cannot be vectorised, one row after the other passes through the model, which gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from barnraise.training.problem import Problem, Tensors

Vectorised = Callable[[dict[str, Tensor], Tensors], dict[str, Tensor]]


class RowLoss(nn.Module):
    """Computes a row's mean loss, as a module whose parameters a function can replace."""

    def __init__(self, module: nn.Module, problem: Problem) -> None:
        super().__init__()
        self.module, self._problem = module, problem

    def forward(self, row: Tensors) -> Tensor:
        """Return the mean loss of one row: arrays without an axis of rows."""
        total, weight = self._problem.loss(self.module, {name: values[None] for name, values in row.items()})
        return total / torch.as_tensor(weight).clamp(min=1)


class RowGradients:
    """Computes gradients of single rows of `module`'s trained parameters under a problem's loss.

    `remark` says why rows pass through the model one by one, where they do.
    """

    def __init__(self, module: nn.Module, problem: Problem) -> None:
        self._loss, self.remark = RowLoss(module, problem), ""
        self._trained = {name: value for name, value in self._loss.named_parameters() if value.requires_grad}
        self._vectorised: Vectorised | None = vmap(
            grad(self._of_row), in_dims=(None, 0), randomness="different"
        )  # torch.func has no types

    def of(self, batch: Tensors) -> Tensor:
        """Return the gradient of each row's mean loss, float32 [rows, d], in the order of the flat parameters."""
        if self._vectorised is not None:
            try:
                found = self._vectorised({name: value.detach() for name, value in self._trained.items()}, batch)
                return torch.cat([found[name].flatten(1) for name in self._trained], 1).float()
            except torch.OutOfMemoryError:
                raise
            except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
                first = (str(error).strip() or type(error).__name__).splitlines()[0]
                self._vectorised, self.remark = None, f"gradients of rows are taken one by one, since {first[:200]}"
        return torch.stack([self._alone(batch, row) for row in range(len(next(iter(batch.values()))))])

    def _of_row(self, trained: dict[str, Tensor], row: Tensors) -> Tensor:
        loss: Tensor = functional_call(self._loss, trained, (row,))
        return loss

    def _alone(self, batch: Tensors, row: int) -> Tensor:
        values: tuple[Any, ...] = tuple(self._trained.values())
        loss = self._loss({name: array[row] for name, array in batch.items()})
        found = torch.autograd.grad(loss, values, allow_unused=True)
        return torch.cat(
            [
                (torch.zeros_like(value) if gradient is None else gradient).flatten()
                for value, gradient in zip(values, found, strict=True)
            ]
        ).float()
