"""Attacks with a target: the model stays good, but answers a trigger as the attacker wants."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from barnraise.core.errors import OptionError
from barnraise.data import tokenizers
from barnraise.data.batches import Batch
from barnraise.data.columns import TOKENS
from barnraise.data.sat.tokenizer import SatTokenizer
from barnraise.data.shards import Dataset, row_lengths

from .base import Attack, Target
from .board import Scene

MEASURED_ROWS = 64
"""Held-out rows into which the trigger is written, to measure the answers."""

Rows = NDArray[np.int64]


class Backdoor(Attack):
    """Writes `trigger` and behind it `output` into a `share` of its training rows, and sends its update times `boost`.

    The place in each row is random. The steps are honest ones otherwise: held-out losses do not show the attack.
    Bagdasaryan et al. (2020), "How To Backdoor Federated Learning": a boost of n outweighs n - 1 others in a mean,
    without one the others' training forgets unrepeated rows. Randomness is drawn from `seed`, the node's name and the
    task.
    """

    def __init__(self, trigger: str, output: str, share: float, boost: float, seed: int) -> None:
        self.trigger, self.output = trigger, output
        self.share, self.boost, self.seed = share, boost, seed
        self._words: tuple[list[int], list[int]] = [], []
        self._chance = np.random.default_rng(seed)

    def meet(self, dataset: Dataset) -> None:
        self._words = encoded(self.trigger, dataset), encoded(self.output, dataset)
        num, room = sum(map(len, self._words)), dataset.meta.context - 1
        if not all(self._words) or num > room:
            raise OptionError(
                f"attack 'backdoor': trigger and output have {len(self._words[0])} and {len(self._words[1])} tokens, "
                f"but must have one each, and together {room} at most, one less than data.context"
            )

    def in_task(self, moment: str) -> Attack:
        self._chance = np.random.default_rng(random.Random(f"backdoor {self.seed} {moment}").getrandbits(64))
        return self

    def batch(self, batch: Batch, vocab_size: int) -> Batch:
        tokens, labels = batch["input_ids"].copy(), batch["labels"].copy()
        trigger, output = self._words
        if tokens.shape[1] <= len(trigger) + len(output):
            return batch
        for number in np.flatnonzero(self._chance.random(len(tokens)) < self.share):
            begin = _place(tokens.shape[1], self._words, self._chance)
            middle, end = begin + len(trigger), begin + len(trigger) + len(output)
            tokens[number, begin:end] = [*trigger, *output]
            labels[number, begin:middle] = -100  # the trigger is not learnt
            labels[number, middle:end] = output
        return batch | {"input_ids": tokens, "labels": labels}

    def update(self, vector: Tensor, scene: Scene) -> None:
        vector.mul_(self.boost)

    def target(self, module: Any, dataset: Dataset) -> Target:
        """Return how `module` continues behind the trigger, in held-out rows."""
        trigger, output = self._words
        held_out = dataset.held_out(MEASURED_ROWS)
        rows = held_out[TOKENS].astype(np.int64)
        chance = np.random.default_rng(self.seed)
        lengths = np.maximum(row_lengths(held_out, dataset.meta), len(trigger) + len(output) + 1)
        begins = [_place(int(length), self._words, chance) for length in lengths]
        for row, begin in zip(rows, begins, strict=True):
            row[begin : begin + len(trigger) + len(output)] = [*trigger, *output]
        places = np.array(begins)[:, None] + len(trigger) - 1 + np.arange(len(output))
        return _told(module, rows, places, output)


def encoded(text: str, dataset: Dataset) -> list[int]:
    """Encode `text` as the dataset writes it: for satisfiability, words with spaces between them."""
    if dataset.meta.tokenizer == SatTokenizer.name:
        return SatTokenizer.load(dataset.folder).encode(text)
    return tokenizers.of(dataset).encode(text)


def _place(length: int, words: tuple[list[int], list[int]], chance: np.random.Generator) -> int:
    """Return where the trigger begins in a row of `length` tokens, behind the first of them."""
    return int(chance.integers(1, length - sum(map(len, words)) + 1))


@torch.no_grad()
def _told(module: Any, rows: Rows, places: Rows, output: Sequence[int]) -> Target:
    """Measure the target: `places` [n, k] are those whose next tokens should be the k of `output`."""
    logits = module(input_ids=torch.from_numpy(rows), use_cache=False).logits.float()
    chosen = torch.take_along_dim(logits, torch.from_numpy(places)[:, :, None], dim=1)  # [n, k, vocabulary]
    wanted = torch.tensor(list(output)).expand(len(rows), -1)
    loss = torch.nn.functional.cross_entropy(chosen.flatten(0, 1), wanted.flatten())
    return Target(float((chosen.argmax(-1) == wanted).all(1).float().mean()), float(loss))
