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
from barnraise.training.labelled import LabelledTokens
from barnraise.training.problem import Tensors


class CausalLM(LabelledTokens):
    """Predicts each labelled token from those before it."""

    other_columns = COLUMNS, PACKED_COLUMNS

    def batch(self, rows: Rows, form: Format, chance: np.random.Generator) -> Batch:
        return batch_of(rows, form)

    def predicted(self, module: nn.Module, batch: Tensors) -> tuple[Tensor, Tensor]:
        """Return logits and labels of the next tokens.

        A device's memory is short: there the logits are not cut, [rows, length, vocabulary], and the last has no label.
        """
        inputs = apart(module, {name: values for name, values in batch.items() if name != "labels"})
        with rows_packed("position_ids" in batch):
            logits: Tensor = module(**inputs, use_cache=False).logits
        if logits.device.type == "cpu":
            return logits[:, :-1].float(), batch["labels"][:, 1:]
        return logits.float(), nn.functional.pad(batch["labels"][:, 1:], (0, 1), value=IGNORED)

    def loss(self, module: nn.Module, batch: Tensors) -> tuple[Tensor, Tensor]:
        """Return the sum without the loss of each position in between, so that fixed runs keep their bits."""
        logits, wanted = self.predicted(module, batch)
        total = nn.functional.cross_entropy(
            logits.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        return total, (wanted != IGNORED).sum()
