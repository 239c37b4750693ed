"""Tasks that anybody can do again: a pure function of what is published, of rows, and of a short transcript.

A stateful worker goes on with its optimizer's moments, with what compression left out, and from where it was. A
stateless task begins at a published version and with what that says of the moments. The second ones are published
behind the parameters, as UNIT * log2. The first ones follow from how the last version moved (Karimireddy et al. 2021,
"Mime", and Xu et al. 2021, "FedCM", send them): m = -movement * pace * sqrt(v), where `pace` is one step's share of
that, as the task says. The first version, which optimizers that knew nothing have led to, moved much further than
later ones: m is never longer than that of gradients which are noise alone. A task from version 0 begins as after one
step, with a guess of the second moments: without any, Adam's first step would be as long as the rate in each parameter,
and in those whose gradient is nearly 0 its direction hangs on how a sum was rounded.

The worker, whoever audits it, and who verifies a run afterwards go through the same operations in the same order. On
one machine, one build and one number of threads they come to the same bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from barnraise.models.published import LARGEST, UNIT, Published
from barnraise.training.local import LocalTrainer

PUBLISHED_STEPS = 30.0
"""That published moments weigh as much as, among a task's own: what they lack of a matrix its first steps make up for.
As many as an optimizer ever counts come to losses 1% higher, and do not bear as high a rate; 10 are as good."""


class Repeatable:
    """One task, on the module of `trainer`, whose own moments it replaces. `published` says how versions lie."""

    def __init__(self, trainer: LocalTrainer, published: Published) -> None:
        self._trainer, self._published = trainer, published
        self._base = torch.empty(0)

    def begin(self, version: int, parameters: Tensor, movement: Tensor | None, pace: float) -> None:
        """Start at `version`, which is `parameters` (float32 [size]); `movement` [size] led to it from the one before,
        or nobody knows it."""
        second = self._second(parameters) if self._published.shares else None
        first = None if movement is None else self._first(movement, second, pace)
        self._trainer.forget()
        self._trainer.expect(first, second, PUBLISHED_STEPS if version > 0 else 1.0)
        self._trainer.load(self._own(parameters))
        self._base = parameters.clone()

    def take_in(self, parameters: Tensor) -> None:
        """A newer version came between two steps: go on from there with what was done since the start."""
        self._trainer.shift(self._own(parameters) - self._own(self._base))
        self._base.copy_(parameters)

    def end(self) -> tuple[Tensor, Tensor]:
        """What the update is the difference of, [size] each: the version that was taken in last, and where it led."""
        reached = self._base.clone()
        self._own(reached).copy_(self._trainer.flat.vector)
        second = self._trainer.second_moments()
        if self._published.shares and second is not None:
            tell(second.cpu(), self._published, reached)
        return self._base, reached

    def _own(self, vector: Tensor) -> Tensor:
        """Its part that is the model's parameters."""
        return vector[: self._published.num_parameters]

    def _second(self, parameters: Tensor) -> Tensor:
        """float32 [d], of what is published: of a matrix r_i c_j / mean(r)."""
        second = torch.empty(self._published.num_parameters)
        for own, (rows, columns), place in self._published.moments():
            means = torch.exp2((parameters[place] / UNIT).clamp_(-LARGEST, LARGEST))
            if not columns:
                second[own] = means
                continue
            row, column = means[:rows], means[rows:]
            torch.outer(row / row.mean(), column, out=second[own].view(rows, columns))
        return second

    def _first(self, movement: Tensor, second: Tensor | None, pace: float) -> Tensor:
        first = self._own(movement) * -pace
        if second is None:
            return first
        root = second.sqrt()
        first.mul_(root)
        longest = self._trainer.noise * torch.linalg.vector_norm(root)
        return first.mul_((longest / (torch.linalg.vector_norm(first) + 1e-30)).clamp_(max=1.0))


def initial(parameters: Tensor, published: Published) -> Tensor:
    """Version 0, float32 [size], of `parameters` [d]. Of the moments it is guessed that gradients have a norm of about
    1, to which they are usually clipped: a mean square of 1 / d."""
    vector = torch.zeros(published.size)
    vector[: published.num_parameters] = parameters
    if published.shares:
        tell(torch.full_like(parameters, 1.0 / published.num_parameters), published, vector)
    return vector


def tell(second: Tensor, published: Published, vector: Tensor) -> None:
    """Write second moments, float32 [d], to where they are published."""
    for own, (rows, columns), place in published.moments():
        means = second[own]
        if columns:
            matrix = means.view(rows, columns)
            means = torch.cat([matrix.mean(1), matrix.mean(0)])
        vector[place] = torch.log2(means.clamp(2.0**-LARGEST, 2.0**LARGEST)).mul_(UNIT)
