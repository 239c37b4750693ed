"""How the vector of an exchange enters a module; imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn


class ModuleExchange:
    """The torch side of a kind of exchange: here of the full model, from which other kinds derive.

    The parameters of a prepared module that require a gradient are the leaves of the exchange, in its order.
    """

    def prepare(self, module: nn.Module, parts: Mapping[str, Path]) -> nn.Module:
        """Return the module to train, from the one that the model's config describes.

        `parts` are the files of the frozen parts, by name. A kind that trains less takes the other parameters from
        them, and has `requires_grad` false there.
        """
        return module

    @torch.no_grad()
    def enter(self, module: nn.Module, vector: Tensor) -> None:
        """Give the trained parameters the values at the start of `vector`, float32 [exchanged] or [trained]."""
        start = 0
        for _, parameter in trained(module):
            parameter.copy_(vector[start : start + parameter.numel()].view_as(parameter))
            start += parameter.numel()

    @torch.no_grad()
    def read(self, module: nn.Module) -> Tensor:
        """Return the values of the trained parameters, float32 [trained], as a copy."""
        return torch.cat([parameter.flatten() for _, parameter in trained(module)])


def trained(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the named parameters that require a gradient, tied ones once."""
    return [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
