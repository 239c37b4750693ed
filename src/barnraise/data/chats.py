"""Datasets of examples: conversations, or prompts with completions, packed into rows of `context` tokens.

Everything is streamed: in memory are the examples that are placed together, and the held-out rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from barnraise.core.errors import DataError
from barnraise.data import shards
from barnraise.data.chat_template import MAX_TEMPLATE_BYTES, TEMPLATE_FILE, ChatTemplate
from barnraise.data.examples import Example
from barnraise.data.lengths import SHARD_BYTES
from barnraise.data.meta import Format, Meta
from barnraise.data.packing import COLUMNS, PACKED_COLUMNS, Columns, EncodedExample, pack, separate
from barnraise.data.rendering import ExampleError, Renderer, TrainOn
from barnraise.data.tokenizers import Tokenizer


@dataclass(frozen=True)
class ChatForm:
    """How examples become rows.

    `template` is None for prompts with completions as plain text. With `packed` several examples share a row.
    """

    kind: str
    tokenizer: Tokenizer
    template: ChatTemplate | None
    train_on: TrainOn
    context: int
    packed: bool = True

    def format(self) -> Format:
        """Return the form of the dataset's rows."""
        return Format(
            kind=self.kind,
            tokenizer=self.tokenizer.name,
            context=self.context,
            vocab_size=self.tokenizer.vocab_size,
            pad_id=self.tokenizer.pad_id,
            bos_id=self.tokenizer.bos_id,
            eos_id=self.tokenizer.eos_id,
            columns=PACKED_COLUMNS if self.packed else COLUMNS,
        )

    def files(self) -> dict[str, bytes]:
        """Return the tokenizer's files, with the chat template among them."""
        template = {} if self.template is None else {TEMPLATE_FILE: self.template.template.encode()}
        return self.tokenizer.files() | template


@dataclass
class PackedCounts:
    """The number of examples of one side, of those cut or left out, and of the rows that they fill."""

    examples: int = 0
    truncated: int = 0
    unanswered: int = 0
    bad: int = 0
    tokens: int = 0
    trained: int = 0
    rows: int = 0
    first_fault: str = ""

    def text(self, context: int) -> str:
        """Return the counts as a sentence."""
        filled = self.tokens / max(1, self.rows * context)
        trained = self.trained / max(1, self.tokens)
        parts = [f"{self.examples:,} examples in {self.rows:,} rows, {filled:.1%} of them filled"]
        parts.append(f"{trained:.0%} of the tokens are learnt")
        if self.truncated:
            parts.append(f"{self.truncated:,} examples longer than {context} tokens lost their end")
        if self.unanswered:
            parts.append(f"{self.unanswered:,} were left out since their answer begins behind {context} tokens")
        if self.bad:
            parts.append(f"{self.bad:,} were left out as bad (the first: {self.first_fault})")
        return "; ".join(parts)


@dataclass
class _Faults:
    """The examples from which nothing can be learnt: at most `allowed`."""

    allowed: int
    counts: PackedCounts = field(default_factory=PackedCounts)

    def refuse(self, error: ExampleError) -> None:
        self.counts.bad += 1
        self.counts.first_fault = self.counts.first_fault or str(error)
        if self.counts.bad > self.allowed:
            remedy = f"correct it, or set data.skip_bad to more than {self.allowed}"
            raise DataError(f"{error} ({remedy})") from error


def template_of(tokenizer: Tokenizer, source: str, path: Path | None = None) -> ChatTemplate:
    """Return the chat template in the file `path`, or the tokenizer's own; DataError when there is none."""
    files = tokenizer.files()
    if path is not None:
        try:
            if path.stat().st_size > MAX_TEMPLATE_BYTES:
                raise DataError(f"{path} has {path.stat().st_size} bytes, but a template may have {MAX_TEMPLATE_BYTES}")
            files[TEMPLATE_FILE] = path.read_text(encoding="utf-8").encode()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"no chat template at {path} ({error}); give a file with one") from error
    return ChatTemplate.of(files, source)


def build(
    folder: Path | str,
    form: ChatForm,
    training: Iterable[Example],
    held_out: Iterable[Example],
    *,
    skip_bad: int = 0,
    seed: int = 0,
    shard_bytes: int = SHARD_BYTES,
    beside: Mapping[str, bytes] | None = None,
) -> tuple[Meta, PackedCounts]:
    """Make a dataset in `folder` of examples; the same examples and seed give the same dataset.

    Returns the counts of training. At most `skip_bad` examples may have nothing to learn. Raises DataError (such
    examples, or too few) and StorageError (disk full).
    """
    form.format().check()
    held, faults = _Faults(skip_bad), _Faults(skip_bad)
    meta = shards.write(
        folder,
        form.format(),
        _rows(training, form, faults),
        _rows(held_out, form, held),
        files=form.files() | dict(beside or {}),
        seed=seed,
        shard_bytes=shard_bytes,
    )
    return meta, faults.counts


def _rows(examples: Iterable[Example], form: ChatForm, faults: _Faults) -> Iterator[Columns]:
    renderer = Renderer(form.tokenizer, form.template, form.train_on)
    cut = _cut(renderer.encoded(examples, faults.refuse), form.context, faults.counts)
    tokenizer = form.tokenizer
    pad = tokenizer.eos_id if tokenizer.pad_id is None else tokenizer.pad_id
    for arrays in (pack if form.packed else separate)(cut, form.context, pad):
        faults.counts.rows += len(next(iter(arrays.values())))
        yield arrays


def _cut(examples: Iterable[EncodedExample], context: int, counts: PackedCounts) -> Iterator[EncodedExample]:
    """Yield examples of at most `context` tokens, each with something to learn."""
    for ids, trained in examples:
        counts.truncated += len(ids) > context
        cut = EncodedExample(ids[:context], trained[:context])
        learnt = _count(cut.trained[1:])
        if not learnt:
            counts.unanswered += 1
            continue
        counts.examples += 1
        counts.tokens += len(cut.ids)
        counts.trained += learnt
        yield cut


def _count(trained: npt.NDArray[Any]) -> int:
    return int(np.count_nonzero(trained))
