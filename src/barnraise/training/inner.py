"""The inner optimizers over the flat vector of the parameters.

>>> make = CATALOG.create("sgd", momentum=0.5)
>>> make([torch.nn.Parameter(torch.zeros(3))]).param_groups[0]["momentum"]
0.5
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch

from .catalog import INNER as CATALOG

Make = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]


def adamw(*, beta1: float, beta2: float, weight_decay: float) -> Make:
    """Make AdamW (Loshchilov and Hutter 2019)."""
    return partial(torch.optim.AdamW, betas=(beta1, beta2), weight_decay=weight_decay, fused=True)


def sgd(*, momentum: float, weight_decay: float) -> Make:
    """Make SGD; its rate is set at each step."""
    return partial(torch.optim.SGD, lr=1e-3, momentum=momentum, weight_decay=weight_decay)


def inner_optimizer(name: str, parameter: torch.nn.Parameter, options: Mapping[str, float]) -> torch.optim.Optimizer:
    """Make the optimizer `name` of `parameter`, with those of `options` that it takes."""
    known = CATALOG.entry(name).known_options
    make: Make = CATALOG.create(name, **{key: value for key, value in options.items() if key in known})
    return make([parameter])
