"""The causal language model: the next token's cross-entropy over labelled positions."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from barnraise.data.batches import Batch, Rows, batch_of
from barnraise.data.meta import Format
from barnraise.data.packing import COLUMNS, PACKED_COLUMNS
from barnraise.data.shards import IGNORED
from barnraise.models.attention import apart
from barnraise.models.packing import rows_packed
from barnraise.training.problem import Problem, Tensors


class CausalLM(Problem):
    """Predicts each labelled token from those before it."""

    other_columns = COLUMNS, PACKED_COLUMNS

    def batch(self, rows: Rows, form: Format, chance: np.random.Generator) -> Batch:
        return batch_of(rows, form)

    def loss(self, module: nn.Module, batch: Tensors) -> tuple[Tensor, Tensor]:
        logits, wanted = _predicted(module, batch)
        total = nn.functional.cross_entropy(
            logits.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        return total, (wanted != IGNORED).sum()

    def row_losses(self, module: nn.Module, batch: Tensors) -> Tensor:
        logits, wanted = _predicted(module, batch)
        each = nn.functional.cross_entropy(
            logits.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED, reduction="none"
        )
        return each.view_as(wanted).sum(1) / (wanted != IGNORED).sum(1).clamp(min=1)

    def positions(self, batch: Batch) -> int:
        return int(batch["input_ids"].shape[1])

    def trial_batch(self, form: Format, num_rows: int, length: int) -> Batch:
        ids = np.random.default_rng(0).integers(0, form.vocab_size, (num_rows, length))
        return {"input_ids": ids, "labels": ids}


def _predicted(module: nn.Module, batch: Tensors) -> tuple[Tensor, Tensor]:
    """Return logits [rows, length - 1, vocabulary] and their labels [rows, length - 1].

    A device's memory is short: there the logits are not cut, [rows, length, vocabulary], and the last has no label.
    """
    inputs = apart(module, {name: values for name, values in batch.items() if name != "labels"})
    with rows_packed("position_ids" in batch):
        logits: Tensor = module(**inputs, use_cache=False).logits
    if logits.device.type == "cpu":
        return logits[:, :-1].float(), batch["labels"][:, 1:]
    return logits.float(), nn.functional.pad(batch["labels"][:, 1:], (0, 1), value=IGNORED)
