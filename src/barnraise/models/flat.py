"""The trained parameters of a module as ONE contiguous float32 vector, of which the module's parameters are views.

Copying a version in or out, the norm of a gradient, an optimizer's step: each is one operation on one tensor. Forward
and backward passes are unchanged.

Inner optimizers (`training.inner`) step over ranges of the vector, with weight decay for some.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from barnraise.core.errors import ModelError
from barnraise.models.exchange.layout import Layout
from barnraise.models.exchange.module import trained


class FlatParameters:
    """Moves the trained parameters of `module` (those that require a gradient) into `vector`, float32 [d].

    Tied ones are there once; buffers and other parameters stay.

    Afterwards `module.to(device)` or replacing a parameter would break the views: move the module first. `gradient` is
    their gradient, [d], also one vector: zero it with `gradient.zero_()`, not with `zero_grad()`, which would drop the
    views.
    """

    def __init__(self, module: nn.Module) -> None:
        """Raise ModelError when a parameter is not float32 or shares memory with another in part."""
        named = trained(module)
        for name, parameter in named:
            if parameter.dtype != torch.float32:
                raise ModelError(f"parameter {name} is {parameter.dtype}, but training needs float32; convert it")
        _check_separate(named)
        self.module = module
        self.loads = 0  # times that other parameters were loaded, perhaps by another user of the module
        self.layout = Layout.of((name, tuple(parameter.shape)) for name, parameter in named)
        device = named[0][1].device
        self.vector = torch.empty(self.layout.size, dtype=torch.float32, device=device)
        self.gradient = torch.zeros_like(self.vector)
        with torch.no_grad():
            for (_, parameter), leaf in zip(named, self.layout.leaves, strict=True):
                view = self.vector[leaf.place].view(leaf.shape)
                view.copy_(parameter)
                parameter.data = view
                parameter.grad = self.gradient[leaf.place].view(leaf.shape)

    def as_parameter(self) -> nn.Parameter:
        """Return `vector` and `gradient` as one parameter, for an optimizer over all of them; memory is shared."""
        parameter = nn.Parameter(self.vector)
        parameter.grad = self.gradient
        return parameter


def _check_separate(named: list[tuple[str, nn.Parameter]]) -> None:
    """Check that no two parameters share memory: tied ones are listed once, but two objects over it would separate."""
    places = sorted((p.data_ptr(), p.data_ptr() + p.nbytes, name) for name, p in named if p.nbytes)
    for (_, end, name), (start, _, other) in pairwise(places):
        if start < end:
            raise ModelError(f"parameters {name} and {other} share memory without being tied; tie or clone them")
