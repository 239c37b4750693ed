"""Named layers of a model as what travels: full fine-tuning of a part; torch-free."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from barnraise.core.errors import ModelError
from barnraise.core.registry import Option
from barnraise.models.config import architecture_of

OPTIONS = (
    Option("layers", str, "", "Numbers of the trained blocks from 0, negative ones from the end, with commas."),
    Option("embeddings", bool, False, "Train all that is in no block: embeddings, the last norm, the output layer."),
)

_BLOCK = re.compile(r"\.(?:h|layers|layer|blocks)\.(\d+)\.")
"""The number of a block in a parameter's name."""


def leaves(config: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the names and shapes of the trained parameters; ModelError when a layer is not there."""
    shapes = list(architecture_of(config).shapes(config))
    blocks = {number for name, _ in shapes if (number := block_of(name)) is not None}
    wanted = {_numbered(text, len(blocks)) for text in options["layers"].split(",") if text.strip()}
    for name, shape in shapes:
        number = block_of(name)
        if number in wanted or (number is None and options["embeddings"]):
            yield name, shape


def block_of(name: str) -> int | None:
    """Return the number of the block that a parameter is in; None outside of blocks.

    >>> block_of("transformer.h.11.ln_1.weight"), block_of("transformer.wte.weight")
    (11, None)
    """
    found = _BLOCK.search(name)
    return int(found[1]) if found else None


def _numbered(text: str, count: int) -> int:
    """Return the number of a block from 0; ModelError when there is none of `count`."""
    try:
        number = int(text)
    except ValueError:
        raise ModelError(f"training.train.layers names {text.strip()!r}, but layers are numbers from 0") from None
    if not -count <= number < count:
        raise ModelError(f"training.train.layers names layer {number}, but the model has layers 0 to {count - 1}")
    return number % count
