"""Examples as a run would train on them, before anything is started."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from barnraise.config.data_sections import ChatData, InstructData, TextData
from barnraise.config.schema import RunFile
from barnraise.core.errors import InputError
from barnraise.plan.chats import chat_form
from barnraise.plan.dataset import longest_row, tokenizer_of

_MOST_BYTES = 256 * 1024
"""Bytes of a text that are examined, at most."""


@dataclass(frozen=True)
class PreviewedToken:
    """A token of an example: its id, its text, and whether it is learnt."""

    id: int
    text: str
    learnt: bool


@dataclass(frozen=True)
class PreviewedExample:
    """An example as trained: its tokens, of which `cut` more do not fit into a row.

    `parts` are its texts with whether they are learnt, in order.
    """

    source: str
    tokens: list[PreviewedToken]
    parts: list[tuple[str, bool]]
    cut: int

    @property
    def learnt(self) -> int:
        """Return how many of its tokens are learnt."""
        return sum(token.learnt for token in self.tokens)


def previews(run_file: RunFile, count: int) -> list[PreviewedExample]:
    """Return the first `count` examples as trained; DataError where they cannot be.

    Duplicates are not dropped, and some of these may be held out: nothing but these examples is read.
    """
    data = run_file.data
    if isinstance(data, ChatData | InstructData):
        return list(islice(_chats(run_file), count))
    if isinstance(data, TextData):
        return list(islice(_texts(run_file, data), count))
    raise InputError(f"data of the kind '{data.kind}' has no examples in files to preview; see `barnraise data show`")


def _chats(run_file: RunFile) -> Iterator[PreviewedExample]:
    from barnraise.data.gathering import peek
    from barnraise.data.rendering import ExampleError, Renderer

    data = run_file.data
    assert isinstance(data, ChatData | InstructData)
    form = chat_form(run_file)
    renderer = Renderer(form.tokenizer, form.template, form.train_on)
    for example in peek(data):
        try:
            ((ids, trained),) = renderer.encoded([example])
        except ExampleError:
            if not data.skip_bad:
                raise
            continue
        yield _previewed(str(example.source), ids, trained, form.tokenizer, data.context)


def _texts(run_file: RunFile, data: TextData) -> Iterator[PreviewedExample]:
    from barnraise.data import text, tokenizers
    from barnraise.data.gathering import peek
    from barnraise.data.sources import only_text

    coder, longest = tokenizers.load(tokenizer_of(run_file)), longest_row(run_file)
    if data.files and only_text(data.files):
        found = ((str(document.path), document.path.open("rb").read(_MOST_BYTES)) for document in text.find(data.files))
    else:
        found = ((str(example.source), (example.text or "").encode()[:_MOST_BYTES]) for example in peek(data))
    for source, content in found:
        (ids,) = coder.encode_chunks([content.decode(errors="ignore").encode()])
        ids = np.append(ids, np.uint32(coder.eos_id))
        yield _previewed(source, ids, np.ones(len(ids), bool), coder, longest)


def _previewed(source: str, ids: Any, trained: Any, tokenizer: Any, context: int) -> PreviewedExample:
    cut = max(0, len(ids) - context)
    numbers, learnt = ids[:context].tolist(), trained[:context].tolist()
    tokens = [
        PreviewedToken(number, tokenizer.shown([number]), known) for number, known in zip(numbers, learnt, strict=True)
    ]
    parts: list[tuple[str, bool]] = []
    start = 0
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or learnt[place] != learnt[start]:
            parts.append((tokenizer.shown(numbers[start:place]), learnt[start]))
            start = place
    return PreviewedExample(source, tokens, parts, cut)
