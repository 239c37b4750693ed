"""What a data section says about the tokens, before any data is made."""

from __future__ import annotations

from dataclasses import dataclass

from barnraise.config.schema import RunFile, TextData


@dataclass(frozen=True)
class Vocabulary:
    """How many token ids there are, and the special ones."""

    size: int
    bos_id: int | None = None
    eos_id: int | None = None
    pad_id: int | None = None


def vocabulary(run_file: RunFile) -> Vocabulary:
    """The tokens of the run's data; DataError when the tokenizer cannot be read."""
    data = run_file.data
    if isinstance(data, TextData):
        from barnraise.data import tokenizers

        coder = tokenizers.load(data.tokenizer)
        return Vocabulary(coder.vocab_size, coder.bos_id, coder.eos_id, coder.pad_id)
    raise NotImplementedError
