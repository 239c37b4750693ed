"""The text of a dataset's rows: its tokenizer, and the prompts that its held-out rows begin with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from barnraise.data import tokenizers
from barnraise.data.columns import TOKENS
from barnraise.data.sat import traces
from barnraise.data.sat.dataset import options_of
from barnraise.data.sat.shown import show
from barnraise.data.sat.tokenizer import SatTokenizer
from barnraise.data.shards import Dataset

PROMPT_TOKENS = 32
"""Tokens of a held-out row of text that are a prompt, at most half of the row."""


class TextCoder(Protocol):
    """The tokenizer of a dataset, as metrics and samples use it."""

    def encode(self, text: str) -> list[int]:
        """Encode `text` as ids, without special tokens."""

    def decode(self, ids: Sequence[int]) -> str:
        """Decode `ids` to text, without special tokens."""

    def shown(self, ids: Sequence[int]) -> str:
        """Decode `ids` to text with special tokens by their names."""


def coder_of(dataset: Dataset) -> TextCoder | None:
    """Return the tokenizer of a dataset; None for rows that a problem makes itself."""
    if dataset.meta.tokenizer == SatTokenizer.name:
        return SatTokenizer.load(dataset.folder)
    if dataset.meta.kind == "rows":
        return None
    return tokenizers.of(dataset)


def openings(dataset: Dataset, count: int) -> list[list[int]]:
    """Return the beginnings of the first `count` held-out rows: the formula, or some tokens of text."""
    rows = dataset.held_out(count)[TOKENS].tolist()
    if dataset.meta.tokenizer == SatTokenizer.name:
        colon = SatTokenizer.load(dataset.folder).colon_id
        return [row[: row.index(colon) + 1] for row in rows]
    return [row[: min(PROMPT_TOKENS, dataset.meta.context // 2)] for row in rows]


def writes_traces(dataset: Dataset) -> bool:
    """Return whether the rows of a dataset are formulas with traces, which are samples as a whole."""
    return dataset.meta.tokenizer == SatTokenizer.name


def answer_of(dataset: Dataset, coder: TextCoder, prompt: Sequence[int], written: Sequence[int]) -> str:
    """Return a generated text as it is shown; of a trace the verdict of the independent checker, then its steps."""
    if not isinstance(coder, SatTokenizer):
        return coder.decode(written)
    options = options_of(dataset)
    formula, tokens = coder.formula(prompt), coder.completion(written)
    score = traces.score(formula, tokens, style=options.style, slots=options.slots)
    _, *steps, verdict = show(formula, tokens, score, style=options.style, slots=options.slots).splitlines()
    return "\n".join([verdict, *steps])
