"""Exchanges of a part of a model, whose base is a file in a folder."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from safetensors.torch import save_model
from torch import nn

from barnraise.core.types import Blob
from barnraise.models.exchange.catalog import CATALOG
from barnraise.wire.manifest import ExchangeName, FrozenPart

PART = "frozen-model.safetensors"


def frozen(module: nn.Module, folder: Path, kind: str, **options: Any) -> ExchangeName:
    """Write `module` to `folder`, and return the name of an exchange of a part of it, or of adapters beside it."""
    save_model(module, str(folder / PART), metadata={"format": "pt"})
    content = (folder / PART).read_bytes()
    part = FrozenPart(PART, Blob(hashlib.sha256(content).hexdigest(), len(content)))
    return ExchangeName(kind, CATALOG.resolve(kind, options), (part,))
