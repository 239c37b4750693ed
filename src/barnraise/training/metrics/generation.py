"""Generation of text: the likeliest next token again and again, or a drawn one; keys and values of tokens are kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

BATCH_ROWS = 16

TOKENS_AT_ONCE = 2048
"""Tokens that pass through the model at once, at most, unless one row has more: their logits are all in memory."""

WORTH_DROPPING = 0.75
"""Share of a batch's rows that are not over, from which on those that are over leave it: leaving copies the cache."""

Tokens = Sequence[int]
Choose = Callable[[Tensor], Tensor]
"""Chooses the next tokens of rows, [rows], from their logits, [rows, tokens]."""


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
    tokens_at_once: int = TOKENS_AT_ONCE,
    stopped: Callable[[], bool] = lambda: False,
    choose: Choose = lambda logits: logits.argmax(-1),
) -> list[list[int]]:
    """Return the completion of each prompt: up to a token of `stops`, which ends it, or `context` tokens in all.

    `most` has the most new tokens of each prompt. A `batch` has rows of at most `tokens_at_once` tokens, unless one row
    has more. Prompts of one batch may differ in length: all rows advance a token at a time, and a row with a longer
    prompt takes its next token from there. So nothing is padded, and a row is completed as it is alone. Raises Stopped
    where `stopped` says so.
    """
    room = [context - len(prompt) for prompt in prompts]
    most = room if most is None else [min(pair) for pair in zip(room, most, strict=True)]
    found: list[list[int]] = [[] for _ in prompts]
    lengths = {row: len(prompts[row]) for row in range(len(prompts)) if most[row] > 0}
    for rows in batches_of(lengths, batch, tokens_at_once):
        together = _Together([prompts[row] for row in rows], [most[row] for row in rows], frozenset(stops))
        for row, completion in zip(rows, together.run(module, stopped, choose), strict=True):
            found[row] = completion
    return found


def drawn(
    module: Any,
    prompts: Sequence[Tokens],
    *,
    context: int,
    stops: Collection[int],
    temperature: float,
    seed: int,
    most: Sequence[int] | None = None,
    batch: int = BATCH_ROWS,
) -> list[list[int]]:
    """Return completions as `greedy` does, with tokens drawn at `temperature`; the seed and the prompts decide them."""
    chance = torch.Generator().manual_seed(seed)

    def choose(logits: Tensor) -> Tensor:
        shares = (logits.float().cpu() / temperature).softmax(-1)
        return torch.multinomial(shares, 1, generator=chance)[:, 0]

    return greedy(module, prompts, context=context, stops=stops, most=most, batch=batch, choose=choose)


def batches_of(
    lengths: Mapping[int, int], most: int = BATCH_ROWS, tokens_at_once: int = TOKENS_AT_ONCE
) -> Iterator[list[int]]:
    """Yield batches of rows with these lengths, the shortest first: at most `most` rows, of `tokens_at_once` tokens.

    >>> list(batches_of({0: 900, 1: 5, 2: 1000, 3: 4000}))
    [[1, 0], [2], [3]]
    >>> list(batches_of({0: 900, 1: 5, 2: 1000, 3: 4000}, tokens_at_once=10_000))
    [[1, 0, 2], [3]]
    """
    found: list[int] = []
    for row in sorted(lengths, key=lambda row: lengths[row]):
        if found and (len(found) >= most or (len(found) + 1) * lengths[row] > tokens_at_once):
            yield found
            found = []
        found.append(row)
    if found:
        yield found


class _Together:
    """Rows that advance together, those with the shortest prompts first; rows that ended are dropped on the way."""

    def __init__(self, prompts: Sequence[Tokens], most: Sequence[int], stops: frozenset[int]) -> None:
        self.prompts, self.most, self.stops = prompts, most, stops
        self.written: list[list[int]] = [[] for _ in prompts]
        self.ended = [False] * len(prompts)

    def run(self, module: Any, stopped: Callable[[], bool], choose: Choose) -> list[list[int]]:
        place, cache, device = min(map(len, self.prompts)), None, getattr(module, "device", None)
        rows = list(range(len(self.prompts)))
        given = torch.tensor([list(prompt[:place]) for prompt in self.prompts], device=device)
        with torch.inference_mode():
            while True:
                if stopped():
                    raise Stopped
                seen = torch.ones(len(rows), place, dtype=torch.int64, device=device)
                output = module(input_ids=given, attention_mask=seen, past_key_values=cache, use_cache=True)
                cache = output.past_key_values
                chosen = choose(output.logits[:, -1]).tolist()
                tokens = [self._next(row, place, token) for row, token in zip(rows, chosen, strict=True)]
                if all(self.ended):
                    return self.written
                kept = [at for at, row in enumerate(rows) if not self.ended[row]]
                if len(kept) <= WORTH_DROPPING * len(rows) and _selects(cache):
                    cache.batch_select_indices(torch.tensor(kept, device=device))
                    rows, tokens = [rows[at] for at in kept], [tokens[at] for at in kept]
                given, place = torch.tensor(tokens, device=device)[:, None], place + 1

    def _next(self, row: int, place: int, chosen: int) -> int:
        """Return the token at `place` of a row: of its prompt, or the chosen one, which is then written."""
        if place < len(self.prompts[row]):
            return self.prompts[row][place]
        if not self.ended[row]:
            self.written[row].append(chosen)
            self.ended[row] = chosen in self.stops or len(self.written[row]) >= self.most[row]
        return chosen


def _selects(cache: Any) -> bool:
    """Return whether rows can be chosen from the cache of a model: those of recurrent layers cannot."""
    layers = getattr(cache, "layers", ())
    return bool(layers) and all(hasattr(layer, "batch_select_indices") for layer in layers)
