"""Codecs: a float32 vector to a payload of bytes and back.

>>> import torch
>>> codec = create("topk", ratio=0.25)
>>> encoded = codec.encode(torch.tensor([0.1, -3.0, 0.2, 0.0]))
>>> encoded.num_bytes, codec.decode(encoded).tolist()
(28, [0.0, -3.0, 0.0, 0.0])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from .catalog import CATALOG

if TYPE_CHECKING:
    from .base import Codec

__all__ = ["CATALOG", "create", "names"]


def create(name: str, **options: Any) -> Codec:
    """Build the codec `name`; UnknownNameError or OptionError, with the nearest known spelling, for others."""
    return cast("Codec", CATALOG.create(name, **options))


def names() -> list[str]:
    """Return the names of all codecs."""
    return CATALOG.names()
