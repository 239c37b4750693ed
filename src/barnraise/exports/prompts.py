"""Prompts for the round trip: pieces of a dataset's held-out rows, or of a sample text where it has none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from barnraise.core.errors import DataError
from barnraise.data import tokenizers
from barnraise.data.columns import TOKENS
from barnraise.data.shards import Dataset
from barnraise.exports.round_trip import NEW_TOKENS, PROMPT_TOKENS, PROMPTS, Prompt

_ROWS = 64
"""Held-out rows that are looked at: one piece of each, and further pieces where there are fewer rows than prompts."""

_SAMPLE = """Neighbours raise a barn in one day. In 1912, 48 people came to a farm with ropes, ladders and 3.5 tons of
oak; "heave!" they said, and the frame stood at noon. For each beam (there were 27) two men held the rope. Then the
roof: boards, nails, and at last the weathercock, which turned twice and showed east."""
"""The text of prompts where the rows stay with their owners, and the host has none."""


def prompts_of(dataset: Dataset) -> list[Prompt]:
    """Return PROMPTS prompts, fewer where the held-out rows have fewer pieces."""
    meta = dataset.meta
    length = min(PROMPT_TOKENS, max(1, meta.context // 2))
    room = min(NEW_TOKENS, meta.context - length)
    coder = _coder(dataset)
    special = {meta.bos_id, meta.eos_id, meta.pad_id}
    names = list(coder.special_tokens()) if coder is not None else []
    found: list[Prompt] = []
    for ids in _pieces(dataset, coder, length):
        plain = [token for token in ids if token not in special]
        if coder is None:
            found += [Prompt(plain, f"tokens {plain[:4]} ...", room)] if plain else []
        elif text := _without(names, coder.decode(plain)).strip("\ufffd"):
            again = coder.encode(text)
            if again and len(again) + room <= meta.context:
                found.append(Prompt(again, _shown(text), room, partial(_encoded, text)))
        if len(found) == PROMPTS:
            break
    return found


def _coder(dataset: Dataset) -> tokenizers.Tokenizer | None:
    """Return the tokenizer of a dataset of texts; None for data that is no text."""
    try:
        return tokenizers.of(dataset)
    except DataError:
        return None


def _without(names: Sequence[str], text: str) -> str:
    """Return the longest part of a text that has no special token's name in letters.

    The run reads such a name as letters, but the exported tokenizer as the special token.
    """
    return max(re.split("|".join(map(re.escape, names)), text), key=len) if names else text


def _encoded(text: str, tokenizer: Any) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def _pieces(dataset: Dataset, coder: tokenizers.Tokenizer | None, length: int) -> Iterator[list[int]]:
    """Yield pieces of `length` tokens: the first of each row, then later ones of each, which overlap."""
    rows = dataset.held_out(_ROWS)[TOKENS]
    if not len(rows) and coder is not None:
        rows = np.array([coder.encode(_SAMPLE)])
    for start in range(0, rows.shape[1] - length + 1, max(1, length // 4)):
        for row in rows:
            yield [int(token) for token in row[start : start + length]]


def _shown(text: str) -> str:
    return repr(text if len(text) <= 30 else text[:30] + "...")
