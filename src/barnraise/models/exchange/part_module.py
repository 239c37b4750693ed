"""Named layers of a model in a module; imports torch."""

from __future__ import annotations

from torch import nn

from barnraise.models.exchange.layout import Layout
from barnraise.models.exchange.module import ModuleExchange


class PartExchange(ModuleExchange):
    """Trains the parameters of its layout; the others stay as they are in the base."""

    def __init__(self, layers: str, embeddings: bool) -> None:
        self.layers, self.embeddings = layers, embeddings

    def prepare(self, module: nn.Module, layout: Layout) -> nn.Module:
        names = {leaf.name for leaf in layout.leaves}
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(name in names)
        return module
