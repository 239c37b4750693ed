"""A second kind of exchange: the parameters whose names have a prefix; all others are frozen, and come in files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from barnraise.core.registry import Entry, Option
from barnraise.core.types import Blob
from barnraise.models.config import lookup
from barnraise.models.exchange.catalog import CATALOG, Traits
from barnraise.models.exchange.module import ModuleExchange
from barnraise.wire.manifest import ExchangeName, FrozenPart

KIND, PART = "some", "frozen-00000.safetensors"


class Some(ModuleExchange):
    """Trains the parameters with the `prefix`, and takes the others from the frozen parts."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    @torch.no_grad()
    def prepare(self, module: nn.Module, parts: Mapping[str, Path]) -> nn.Module:
        kept: dict[str, Tensor] = {}
        for path in parts.values():
            kept |= load_file(path)
        for name, parameter in module.named_parameters():
            if not name.startswith(self.prefix):
                parameter.copy_(kept[name])
                parameter.requires_grad_(False)
        return module


def leaves(config: Mapping[str, Any], options: Mapping[str, Any]) -> Iterable[tuple[str, tuple[int, ...]]]:
    shapes = lookup(config["model_type"]).shapes(config)
    return [(name, shape) for name, shape in shapes if name.startswith(options["prefix"])]


@contextmanager
def second_kind() -> Iterator[None]:
    """A catalog that lists it."""
    options = (Option("prefix", str, "", "Beginning of the names of what is trained."),)
    CATALOG.entries[KIND] = Entry(KIND, f"{__name__}:Some", "some of it", options=options, declares=Traits(leaves))
    try:
        yield
    finally:
        del CATALOG.entries[KIND]


def freeze(module: nn.Module, prefix: str, folder: Path) -> ExchangeName:
    """Write what is not trained of `module`, a little changed, to `folder`, and return the exchange's name."""
    kept = {
        name: parameter.detach() + 0.01 for name, parameter in module.named_parameters() if not name.startswith(prefix)
    }
    save_file(kept, folder / PART)
    content = (folder / PART).read_bytes()
    part = FrozenPart(PART, Blob(hashlib.sha256(content).hexdigest(), len(content)))
    return ExchangeName(KIND, {"prefix": prefix}, (part,))
