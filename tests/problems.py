"""A problem of tests: points on a line, and problems whose code fails."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import barnraise


@dataclass
class Line(barnraise.Problem):
    """Fits a line to points; `fault` says what goes wrong in the loss of every row with an x above `odd_from`."""

    slope: float = 2.0
    fault: str = ""
    odd_from: float = 0.99

    columns = (
        barnraise.RowColumn(name="x", dtype="float32", shape=(3,)),
        barnraise.RowColumn(name="y", dtype="float32"),
    )

    def rows(self, seed: int) -> tuple[Any, Any]:
        x = np.random.default_rng(seed).uniform(-1.0, 1.0, (600, 3)).astype(np.float32)
        y = self.slope * x.sum(1) + 0.5
        return {"x": x[:500], "y": y[:500]}, {"x": x[500:], "y": y[500:]}

    def build(self) -> nn.Module:
        return nn.Linear(3, 1)

    def loss(self, module: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
        each = (module(batch["x"])[:, 0] - batch["y"]) ** 2
        odd = batch["x"][:, 0] > self.odd_from
        if self.fault == "raises" and bool(odd.any()):
            raise ValueError("a row is odd")
        if self.fault == "nan":
            each = torch.where(odd, math.nan, each)
        return each.sum(), len(each)
