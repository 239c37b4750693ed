"""Sequence to sequence: the cross-entropy of a target text, which a decoder predicts from a source text."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from barnraise.core.errors import DataError
from barnraise.data.batches import Batch, Rows
from barnraise.data.columns import TOKENS, TRAINED
from barnraise.data.meta import Format
from barnraise.data.packing import COLUMNS
from barnraise.data.shards import IGNORED
from barnraise.training.labelled import LabelledTokens
from barnraise.training.problem import Tensors

SOURCE, TARGET = "source", "target"
"""The columns of the rows, token ids of fixed lengths, filled up with padding."""

Ids = np.ndarray[tuple[int, int], np.dtype[np.int64]]


class Seq2Seq(LabelledTokens):
    """Predicts each token of the target from those before it and the source (Raffel et al. 2020, "T5").

    A row has both as columns of its own, or it is a prompt with a completion, which is the target.
    """

    other_columns = (COLUMNS,)

    def batch(self, rows: Rows, form: Format, chance: np.random.Generator) -> Batch:
        if TRAINED in (rows.dtype.names or ()):
            return _of_prompts(rows[TOKENS].astype(np.int64), rows[TRAINED], form)
        source, target = (rows[name].astype(np.int64) for name in (SOURCE, TARGET))
        source, target = (_cut(ids, form.pad_id) for ids in (source, target))
        start = np.full((len(target), 1), start_of(form))
        found = {"input_ids": source, "decoder_input_ids": np.concatenate([start, target[:, :-1]], axis=1)}
        if form.pad_id is not None:
            found["attention_mask"] = (source != form.pad_id).astype(np.int64)
            target = np.where(target == form.pad_id, IGNORED, target)
        return found | {"labels": target}

    def predicted(self, module: nn.Module, batch: Tensors) -> tuple[Tensor, Tensor]:
        inputs = {name: values for name, values in batch.items() if name != "labels"}
        if (start := getattr(getattr(module, "config", None), "decoder_start_token_id", None)) is not None:
            inputs["decoder_input_ids"] = inputs["decoder_input_ids"].clone()
            inputs["decoder_input_ids"][:, 0] = start
        return module(**inputs, use_cache=False).logits.float(), batch["labels"]

    def positions(self, batch: Batch) -> int:
        return int(batch["input_ids"].shape[1] + batch["labels"].shape[1])

    def trial_batch(self, form: Format, num_rows: int, length: int) -> Batch:
        ids = np.random.default_rng(0).integers(0, form.vocab_size, (num_rows, max(1, length // 2)))
        return {"input_ids": ids, "decoder_input_ids": ids, "labels": ids}

    def require(self, form: Format) -> None:
        names = {column.name for column in form.fields}
        if form.fields not in self.other_columns and not {SOURCE, TARGET} <= names:
            raise DataError(
                f"the rows have the columns {', '.join(sorted(names))}, but a model that maps texts to texts needs "
                f"{SOURCE} and {TARGET}: set data.kind: instruct, or give such rows from Python, in a subclass of "
                "Seq2Seq with a method rows"
            )


def start_of(form: Format) -> int:
    """Return the token id with which a decoder starts whose model does not name one."""
    return next((token for token in (form.pad_id, form.bos_id, form.eos_id) if token is not None), 0)


def _of_prompts(tokens: Ids, trained: np.ndarray[tuple[int, int], np.dtype[np.bool_]], form: Format) -> Batch:
    """Return the batch of rows with one prompt each, from the first position to the first learnt one, and its answer.

    An end of text is put behind the prompt, as behind the answer.
    """
    pad = form.eos_id or 0 if form.pad_id is None else form.pad_id
    ends = [] if form.eos_id is None else [form.eos_id]
    starts, counts = trained.argmax(1).tolist(), trained.sum(1).tolist()
    sources = [[*row[:start].tolist(), *ends] for row, start in zip(tokens, starts, strict=True)]
    targets = [row[start : start + count].tolist() for row, start, count in zip(tokens, starts, counts, strict=True)]
    source, target = _filled(sources, pad), _filled(targets, IGNORED)
    inputs = np.full_like(target, start_of(form))
    inputs[:, 1:] = np.where(target[:, :-1] == IGNORED, pad, target[:, :-1])
    mask = np.arange(source.shape[1]) < np.array([[max(1, len(row))] for row in sources])
    return {
        "input_ids": source,
        "attention_mask": mask.astype(np.int64),
        "decoder_input_ids": inputs,
        "labels": target,
    }


def _filled(rows: list[list[int]], fill: int) -> Ids:
    """Return ids [rows, length of the longest, 1 at least], filled up with `fill`."""
    found = np.full((len(rows), max(1, *map(len, rows), 1)), fill, np.int64)
    for number, row in enumerate(rows):
        found[number, : len(row)] = row
    return found


def _cut(ids: Ids, pad_id: int | None) -> Ids:
    """Return ids [rows, length] without the columns at the end that are padding alone."""
    if pad_id is None:
        return ids
    filled = np.flatnonzero((ids != pad_id).any(axis=0))
    return ids[:, : max(1, int(filled[-1]) + 1 if len(filled) else 1)]
