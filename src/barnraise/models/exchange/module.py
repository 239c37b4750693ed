"""How the vector of an exchange enters a module; imports torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from barnraise.models.exchange.layout import Layout


class ModuleExchange:
    """The torch side of a kind of exchange: here of the full model, from which other kinds derive.

    The parameters of a prepared module that require a gradient are the leaves of the exchange, in its order.
    """

    dtype = torch.float32
    """The type in which the frozen parameters are loaded."""

    def prepare(self, module: nn.Module, layout: Layout) -> nn.Module:
        """Return the module to train, from the one that the model's config describes.

        A kind that trains less than the model gets the base, and sets `requires_grad` to false where it is frozen.
        Afterwards the parameters of `layout` are float32.
        """
        return module

    def whole(self, module: nn.Module) -> nn.Module:
        """Return the model itself, from a prepared module with its base in float32: adapters are merged into it."""
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
