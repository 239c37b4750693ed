"""Greedy generation: the likeliest next token again and again, with the keys and values of earlier tokens kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

BATCH_ROWS = 16

TOKENS_AT_ONCE = 2048
"""Tokens that pass through the model at once, at most, unless one row has more: their logits are all in memory."""

Tokens = Sequence[int]


class Stopped(Exception):
    """The measurement is no longer wanted: the controller ends."""


def greedy(
    module: Any,
    prompts: Sequence[Tokens],
    *,
    context: int,
    stops: Collection[int],
    most: Sequence[int] | None = None,
    batch: int = BATCH_ROWS,
    stopped: Callable[[], bool] = lambda: False,
) -> list[list[int]]:
    """Return the completion of each prompt: up to a token of `stops`, which ends it, or `context` tokens in all.

    `most` has the most new tokens of each prompt. Prompts of one `batch` may differ in length: all rows advance a token
    at a time, and a row with a longer prompt takes its next token from there. So nothing is padded, and a row is
    completed as it is alone. Raises Stopped where `stopped` says so.
    """
    room = [context - len(prompt) for prompt in prompts]
    most = room if most is None else [min(pair) for pair in zip(room, most, strict=True)]
    found: list[list[int]] = [[] for _ in prompts]
    lengths = {row: len(prompts[row]) for row in range(len(prompts)) if most[row] > 0}
    for rows in batches_of(lengths, batch):
        together = _Together([prompts[row] for row in rows], [most[row] for row in rows], frozenset(stops))
        for row, completion in zip(rows, together.run(module, stopped), strict=True):
            found[row] = completion
    return found


def batches_of(lengths: Mapping[int, int], most: int = BATCH_ROWS) -> Iterator[list[int]]:
    """Yield batches of rows with these lengths, the shortest first: at most `most` rows, of TOKENS_AT_ONCE tokens.

    >>> list(batches_of({0: 900, 1: 5, 2: 1000, 3: 4000}))
    [[1, 0], [2], [3]]
    """
    found: list[int] = []
    for row in sorted(lengths, key=lambda row: lengths[row]):
        if found and (len(found) >= most or (len(found) + 1) * lengths[row] > TOKENS_AT_ONCE):
            yield found
            found = []
        found.append(row)
    if found:
        yield found


class _Together:
    """Rows that advance together, those with the shortest prompts first."""

    def __init__(self, prompts: Sequence[Tokens], most: Sequence[int], stops: frozenset[int]) -> None:
        self.prompts, self.most, self.stops = prompts, most, stops
        self.written: list[list[int]] = [[] for _ in prompts]
        self.ended = [False] * len(prompts)

    def run(self, module: Any, stopped: Callable[[], bool]) -> list[list[int]]:
        place, cache = min(map(len, self.prompts)), None
        given = torch.tensor([list(prompt[:place]) for prompt in self.prompts])
        with torch.inference_mode():
            while True:
                if stopped():
                    raise Stopped
                seen = torch.ones(len(self.prompts), place, dtype=torch.int64)
                output = module(input_ids=given, attention_mask=seen, past_key_values=cache, use_cache=True)
                cache = output.past_key_values
                chosen = output.logits[:, -1].argmax(-1).tolist()
                tokens = [self._next(row, place, token) for row, token in enumerate(chosen)]
                if all(self.ended):
                    return self.written
                given, place = torch.tensor(tokens)[:, None], place + 1

    def _next(self, row: int, place: int, chosen: int) -> int:
        """Return the token at `place` of a row: of its prompt, or the chosen one, which is then written."""
        if place < len(self.prompts[row]):
            return self.prompts[row][place]
        if not self.ended[row]:
            self.written[row].append(chosen)
            self.ended[row] = chosen in self.stops or len(self.written[row]) >= self.most[row]
        return chosen
