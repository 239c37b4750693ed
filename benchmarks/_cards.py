"""Parts of the benchmark of CUDA devices: peak rates of cards, the deadline, random rows, a plain PyTorch loop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch

from barnraise.core.types import Batches
from barnraise.data.batches import batches
from barnraise.data.columns import loaded_type
from barnraise.data.meta import Format
from barnraise.models.build import build

PEAKS = {
    "H200": 989e12, "H100 NVL": 835e12, "H100 PCIe": 756e12, "H100": 989e12, "A100": 312e12,
    "A10G": 70e12, "A10": 125e12, "L40S": 362e12, "L40": 181e12, "L4": 121e12, "RTX 4090": 165e12, "RTX 3090": 71e12,
    "A6000": 155e12,
}  # fmt: skip
"""Dense bfloat16 operations a second that makers state, by a part of the card's name; the first that fits counts."""


def peak_operations(name: str) -> float | None:
    """Return the peak operations a second of the card with that name; None for a card that is not in the table."""
    return next((peak for part, peak in PEAKS.items() if part in name), None)


def operations_a_token(num_parameters: int, layers: int, hidden: int, context: int, *, frozen: bool = False) -> float:
    """Return the floating-point operations that training takes for one token.

    Each parameter takes two operations forward and four backward, or two where it is `frozen`. Attention's scores and
    sums come on top (Chowdhery et al. 2022, "PaLM", appendix B).
    """
    return (4.0 if frozen else 6.0) * num_parameters + 12.0 * layers * hidden * context


class Clock:
    """The time that is left until the deadline."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(0.0, self.end - time.monotonic())


class Rows:
    """Random rows, as a dataset gives them."""

    def __init__(self, vocabulary: int, context: int, count: int) -> None:
        self.meta = Format(kind="text", tokenizer="bytes", context=context, vocab_size=vocabulary)
        self.rows = np.empty(count, loaded_type(self.meta.fields, context, self.meta.dtype_name))
        self.rows["tokens"] = np.random.default_rng(0).integers(0, vocabulary, (count, context))

    def batches(self, batch: int, steps: int) -> Iterator[Any]:
        return islice(batches([self.rows[: batch * steps]], Batches((), batch, 0), self.meta), steps)


class Plain:
    """A plain PyTorch training loop, for comparison with barnraise."""

    def __init__(self, device: str, resolved: dict[str, Any]) -> None:
        self.device = torch.device(device)
        with self.device:
            self.model = build(resolved).train()
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01, fused=True
        )

    def run(self, steps: Iterator[Any]) -> None:
        for batch in steps:
            ids = torch.from_numpy(batch["input_ids"]).to(self.device, non_blocking=True)
            self.optimizer.zero_grad(set_to_none=True)
            with torch.autocast(self.device.type, dtype=torch.bfloat16):
                logits = self.model(input_ids=ids, use_cache=False).logits
                loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
