"""Conversations in a dataset: as prompts for the round trip, and the tokens that end an answer in them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from barnraise.core.errors import DataError
from barnraise.data.chat_template import ChatTemplate, MarkedText
from barnraise.data.columns import BEGINS, TOKENS, TRAINED
from barnraise.data.shards import Dataset
from barnraise.data.tokenizers import Tokenizer
from barnraise.exports.modelfile import Message, Turns
from barnraise.exports.round_trip import NEW_TOKENS, PROMPTS, Prompt

_ROWS, _LONGEST = 64, 512
"""Held-out rows that are looked at, and tokens of a prompt, at most."""


def stops_of(dataset: Dataset, coder: Tokenizer) -> tuple[int, ...]:
    """Return the special tokens that end the answers in a dataset of conversations; nothing for other data."""
    rows = dataset.held_out(_ROWS)
    if TRAINED not in (rows.dtype.names or ()):
        return ()
    ids, trained = rows[TOKENS], rows[TRAINED].astype(bool)
    ends = trained & ~np.pad(trained[:, 1:], ((0, 0), (0, 1)))
    special = set(coder.special_tokens().values())
    return tuple(int(token) for token in np.unique(ids[ends]) if int(token) in special)


def talks_of(dataset: Dataset, coder: Tokenizer, template: ChatTemplate, turns: Turns | None) -> list[Prompt]:
    """Return prompts of conversations: their tokens as trained, and their messages for the exported template.

    A message is read off a held-out row where the template is regular. Other prompts have questions of texts of the
    rows, rendered as training renders them.
    """
    room, longest = _room(dataset), longest_prompt(dataset)
    found: list[Prompt] = []
    for messages, ids in (*_read_off(dataset, coder, turns), *_made(dataset, coder, template)):
        if 0 < len(ids) <= longest and len(found) < PROMPTS:
            found.append(Prompt(ids, repr(messages[-1]["content"][:30]), room, partial(_encoded, messages)))
    return found


def longest_prompt(dataset: Dataset) -> int:
    """Return the most tokens that a conversation may have to be a prompt."""
    return min(_LONGEST, dataset.meta.context - _room(dataset))


def _room(dataset: Dataset) -> int:
    """Return the tokens that a model may add to a conversation."""
    return min(NEW_TOKENS, dataset.meta.context // 2)


def _encoded(messages: list[Message], tokenizer: Any) -> list[int]:
    ids: list[int] = tokenizer.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, return_dict=False
    )
    return ids


def _read_off(dataset: Dataset, coder: Tokenizer, turns: Turns | None) -> Iterator[tuple[list[Message], list[int]]]:
    """Yield the messages before the first answer of each example, and their tokens in its row."""
    rows = dataset.held_out(_ROWS)
    names = rows.dtype.names or ()
    if turns is None or TRAINED not in names:
        return
    for row in rows:
        starts = np.flatnonzero(row[BEGINS]).tolist() if BEGINS in names else [0]
        for start, stop in zip(starts, [*starts[1:], len(row[TOKENS])], strict=True):
            learnt = np.flatnonzero(row[TRAINED][start:stop])
            ids = row[TOKENS][start : start + int(learnt[0])].tolist() if len(learnt) else []
            text = coder.decode(ids, specials=True)
            messages = turns.parse(text) if ids else None
            if messages is not None and ids == _ids(coder, text):  # else its end is one token with the answer's start
                yield messages, ids


def _made(dataset: Dataset, coder: Tokenizer, template: ChatTemplate) -> Iterator[tuple[list[Message], list[int]]]:
    """Yield questions made of texts of the rows."""
    for row in dataset.held_out(_ROWS)[TOKENS]:
        words = coder.decode(row.tolist()).split()
        for start in range(max(1, len(words) - 4)):
            messages = [{"role": "user", "content": " ".join(words[start : start + 4]) or "?"}]
            try:
                text = template.render(messages, prompt=True).text
            except DataError:  # the template wants other roles
                return
            yield messages, _ids(coder, text)


def _ids(coder: Tokenizer, text: str) -> list[int]:
    """Return the tokens of a rendered text, as training makes them."""
    ((ids, _),) = coder.encode_marked([MarkedText(text, [])], specials=True)
    return [int(token) for token in ids]
