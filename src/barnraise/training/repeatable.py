"""Stateless tasks, which any node can repeat: a function of published data, rows, and a short transcript.

A stateful worker continues with its optimizer's moments, its residual, and its own parameters. A stateless task begins
at a published version and with its published moments. The second ones are published behind the parameters, as UNIT *
log2. The first ones follow from the last version's movement (see `training.inner.base`): its direction is -movement *
pace, where `pace` is one step's share of that, from the task. The first version, made by optimizers without state,
moved much further than later ones: the momentum is never longer than that of pure-noise gradients. A task from version
0 begins as after one step, with a guess of the second moments: without any, Adam's first step would be as long as the
rate in each parameter, and in those whose gradient is nearly 0 its direction depends on rounding.

The worker, an auditor and a later verifier perform the same operations in the same order. On one machine, one build and
one number of threads they get the same bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from barnraise.core.errors import InputError
from barnraise.models.exchange.record import LARGEST, UNIT, Exchange
from barnraise.training.local import LocalTrainer

PUBLISHED_STEPS = 30.0
"""Steps as which published moments count among a task's own.

With as many as an optimizer ever counts, losses are 1% higher and high rates are not tolerated; 10 are as good.
"""


class Repeatable:
    """One task, on the module of `trainer`, whose own moments it replaces.

    `exchange` has the layout of versions.
    """

    def __init__(self, trainer: LocalTrainer, exchange: Exchange) -> None:
        self._trainer, self._exchange = trainer, exchange
        self._base = torch.empty(0)

    def begin(self, version: int, parameters: Tensor, movement: Tensor | None, pace: float) -> None:
        """Start at `version`, which is `parameters` (float32 [exchanged]).

        `movement` [exchanged] is the difference to the version before; None: not known.
        """
        second = self._second(parameters) if self._exchange.moments else None
        direction = None if movement is None else self._own(movement) * -pace
        self._trainer.forget()
        self._trainer.expect(direction, second, PUBLISHED_STEPS if version > 0 else 1.0)
        self._trainer.load(self._own(parameters))
        self._base = parameters.clone()

    def take_in(self, parameters: Tensor) -> None:
        """Take in a newer version between two steps: continue from it plus the change since the start."""
        self._trainer.shift(self._own(parameters) - self._own(self._base))
        self._base.copy_(parameters)

    def end(self) -> tuple[Tensor, Tensor]:
        """Return the vectors whose difference is the update, [exchanged]: the last version taken in, and the end."""
        reached = self._base.clone()
        self._own(reached).copy_(self._trainer.flat.vector)
        second = self._trainer.second_moments()
        if self._exchange.moments and second is not None:
            tell(second.cpu(), self._exchange, reached)
        return self._base, reached

    def _own(self, vector: Tensor) -> Tensor:
        """Return its part that is the model's parameters."""
        return vector[: self._exchange.trained]

    def _second(self, parameters: Tensor) -> Tensor:
        """Return the published second moments, float32 [d]: of a matrix r_i c_j / mean(r)."""
        second = torch.empty(self._exchange.trained, dtype=torch.float32)
        for own, (rows, columns), place in self._exchange.each_moments():
            means = torch.exp2((parameters[place] / UNIT).clamp_(-LARGEST, LARGEST))
            if not columns:
                second[own] = means
                continue
            row, column = means[:rows], means[rows:]
            torch.outer(row / row.mean(), column, out=second[own].view(rows, columns))
        return second


def initial(parameters: Tensor, exchange: Exchange) -> Tensor:
    """Return version 0, float32 [exchanged], from `parameters` [d].

    The moments are a guess: gradients have a norm of about 1, to which they are usually clipped, so a mean square of 1
    / d. Where values travel encrypted it is the sum of no update: the run begins with parameters of 0.
    """
    vector = torch.zeros(exchange.exchanged, dtype=torch.float32)
    if exchange.digits:
        if parameters.any():
            raise InputError("the encrypted parameters do not begin at 0; train adapters with `train: b_only`")
        return vector
    vector[: exchange.trained] = parameters
    if exchange.moments:
        tell(torch.full_like(parameters, 1.0 / exchange.trained), exchange, vector)
    return vector


def tell(second: Tensor, exchange: Exchange, vector: Tensor) -> None:
    """Write second moments, float32 [d], to their places in the published vector."""
    for own, (rows, columns), place in exchange.each_moments():
        means = second[own]
        if columns:
            matrix = means.view(rows, columns)
            means = torch.cat([matrix.mean(1), matrix.mean(0)])
        vector[place] = torch.log2(means.clamp(2.0**-LARGEST, 2.0**LARGEST)).mul_(UNIT)
