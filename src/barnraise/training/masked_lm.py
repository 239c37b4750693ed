"""The masked language model: the cross-entropy of tokens that are hidden from the model, which sees all others."""

from __future__ import annotations

import numpy as np
from msgspec import UNSET
from torch import Tensor, nn

from barnraise.core.errors import DataError
from barnraise.data.batches import Batch, Rows, batch_of
from barnraise.data.columns import TOKENS
from barnraise.data.meta import Format
from barnraise.data.shards import IGNORED
from barnraise.training.labelled import LabelledTokens
from barnraise.training.problem import Tensors

REPLACED, KEPT = 0.1, 0.1
"""Shares of the predicted tokens that are replaced by a random one and that stay; the others become the mask."""


class MaskedLM(LabelledTokens):
    """Predicts a `share` of the labelled tokens (Devlin et al. 2019, "BERT", section 3.1).

    Which ones follows from the task and the number of the batch, so they differ from pass to pass, and a task that is
    repeated hides the same ones. The mask is the tokenizer's, or the padding, where that has no mask.
    """

    def __init__(self, share: float = 0.15) -> None:
        self.share = share

    def batch(self, rows: Rows, form: Format, chance: np.random.Generator) -> Batch:
        batch = batch_of(rows, form)
        ids, labels = batch["input_ids"].copy(), batch["labels"]
        drawn = chance.random(ids.shape)
        chosen = (drawn < self.share) & (labels != IGNORED)
        part = drawn / self.share  # even in [0, 1) where chosen
        random = chosen & (part < REPLACED)
        ids[random] = chance.integers(0, form.vocab_size, int(random.sum()))
        ids[chosen & (part >= REPLACED + KEPT)] = mask_of(form)
        found = {"input_ids": ids, "labels": np.where(chosen, labels, IGNORED)}
        if form.pad_id is not None:
            found["attention_mask"] = (rows[TOKENS] != form.pad_id).astype(np.int64)
        return found

    def predicted(self, module: nn.Module, batch: Tensors) -> tuple[Tensor, Tensor]:
        inputs = {name: values for name, values in batch.items() if name != "labels"}
        return module(**inputs).logits.float(), batch["labels"]

    def require(self, form: Format) -> None:
        super().require(form)
        mask_of(form)


def mask_of(form: Format) -> int:
    """Return the token id that hides another; DataError where there is none."""
    if form.mask_id is not UNSET:
        return form.mask_id
    if form.pad_id is None:
        raise DataError("the tokenizer has neither a mask nor padding, one of which hides tokens from a masked model")
    return form.pad_id
