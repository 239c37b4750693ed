"""Whether rows are packed, told to transformers, which otherwise waits for the device in each forward pass to find out.

It makes masks that keep packed examples apart from the positions, which restart with each example, and looks whether
any does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor
from transformers import masking_utils

_PACKED: ContextVar[bool | None] = ContextVar("packed", default=None)
_packed: bool | None = None  # the same for compiled models: torch.compile reads no context, and compiles for each value
_find = masking_utils.find_packed_sequence_indices


@contextmanager
def rows_packed(packed: bool) -> Iterator[None]:
    """Tell forward passes in this context whether their rows are packed; compiled ones in all threads."""
    global _packed
    token, before = _PACKED.set(packed), _packed
    _packed = packed
    try:
        yield
    finally:
        _packed = before
        _PACKED.reset(token)


def _find_packed(position_ids: Tensor) -> Tensor | None:
    """Return the number of each token's example in its row; None where rows are not packed."""
    packed = _packed if torch.compiler.is_compiling() else _PACKED.get()
    if packed is None:
        found: Tensor | None = _find(position_ids)
        return found
    if not packed:
        return None
    return (torch.diff(position_ids, prepend=position_ids[:, :1] - 1, dim=-1) != 1).cumsum(-1)


masking_utils.find_packed_sequence_indices = _find_packed
