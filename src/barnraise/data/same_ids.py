"""Comparison of the token ids of two tokenizers.

A model has learned the meaning of each id of its own tokenizer. The ids of another one are noise to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from barnraise.core.errors import DataError


class Mapped(NamedTuple):
    """The parts of a tokenizer that decide the ids of a text.

    `rules` holds normalization, splitting and merges.
    """

    vocabulary: dict[str, int]
    rules: dict[str, Any]


def mapped(files: Mapping[str, bytes], source: str) -> Mapped:
    """Read the tokenizer.json among `files`; DataError with `source` when it cannot be read."""
    from tokenizers import Tokenizer

    try:
        backend = Tokenizer.from_str(files["tokenizer.json"].decode())
    except Exception as error:  # the library raises plain Exception
        raise DataError(f"{source} is not a tokenizer: {str(error)[:200]}") from error
    written = json.loads(backend.to_str())  # in the current format, whichever version wrote the file
    rules = {key: written[key] for key in ("normalizer", "pre_tokenizer", "model")}
    return Mapped(backend.get_vocab(with_added_tokens=True), rules)


def difference(given: Mapped, own: Mapped) -> str:
    """Describe how the ids of `given` differ from those of `own`; empty when they are the same.

    Padding, truncation and special tokens around a text do not count: datasets are made without them.
    """
    sizes = len(given.vocabulary), len(own.vocabulary)
    if given.vocabulary != own.vocabulary:
        moved = {token for token, number in given.vocabulary.items() if own.vocabulary.get(token) != number}
        moved |= {token for token in own.vocabulary if token not in given.vocabulary}
        first = min(moved, key=lambda token: (own.vocabulary.get(token, given.vocabulary.get(token, 0)), token))
        places = f"{_id(given.vocabulary, first)} in it and {_id(own.vocabulary, first)} in the model's own"
        return f"it has {sizes[0]:,} tokens, the model's own {sizes[1]:,}; {first[:40]!r} is {places}"
    parts = [name for name in own.rules if given.rules[name] != own.rules[name]]
    if parts:
        return f"both have the same {sizes[0]:,} tokens, but they differ in {' and '.join(parts)}"
    return ""


def _id(vocabulary: Mapping[str, int], token: str) -> str:
    return f"id {vocabulary[token]}" if token in vocabulary else "no token"
