"""Sizes of the comparison on a card: GPT-2 with 124 million parameters, and rehearsals on the CPU with 5 million."""

from __future__ import annotations

import glob
import hashlib
import os
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from _races import files
from _sides import Task

ADAMW: dict[str, Any] = {"betas": [0.9, 0.95], "weight_decay": 0.1}
SAMPLE = 24_000_000
"""Characters that the tokenizer is trained on."""


@dataclass(frozen=True)
class Size:
    """A model, its rows and its budget. `tokens` are millions of the lone worker, at most."""

    name: str
    shape: dict[str, int]  # config of the GPT-2
    context: int
    rows: int  # a step
    tokens: float
    held_out: int  # rows of an evaluation
    evaluations: int  # over a run of our sides
    steps: int  # that are timed
    moved: int  # bytes of a larger payload that the measured exchanges move
    precision: str
    rates: str  # learning rates that each side tries
    data: tuple[str, ...]

    @property
    def step_tokens(self) -> int:
        return self.rows * self.context

    def task(self, folder: Path, device: str) -> Task:
        """Return the task of all sides, with a tokenizer in `folder` that is trained at the first use."""
        vocabulary, texts = self.shape["vocab_size"], list(readable(self.data))
        return Task(
            texts,
            {"architecture": "gpt2", "config": self.shape},
            str(make_tokenizer(folder / f"tokenizer-{vocabulary}", vocabulary, texts)),
            self.context,
            self.held_out,
            ADAMW,
            self.precision,
            device,
            1 if device == "cpu" else min(16, os.cpu_count() or 1),
        )


LIBRARIES = tuple(f"{Path(module.__file__).parent}/**/*.py" for module in (torch, np, transformers))
FEW = f"{sysconfig.get_path('stdlib')}/[a-c]*.py"
SMALL = {"n_embd": 256, "n_layer": 5, "n_head": 4, "vocab_size": 4096}
SIZES = {
    size.name: size
    for size in (
        Size(
            "gpt2", {"n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}, 1024, 64, 65.536, 64, 16, 40,
            6_000_000, "bfloat16", "0.0006:0.0012:0.002", (*files("tests"), *LIBRARIES),
        ),
        Size("rehearsal", SMALL, 128, 4, 0.0512, 64, 10, 6, 2_000_000, "float32", "0.001", tuple(files("modules"))),
        Size("quick", SMALL, 64, 2, 0.0025, 8, 3, 2, 500_000, "float32", "0.001", (FEW,)),
    )
}  # fmt: skip


def readable(patterns: Iterable[str]) -> Iterator[str]:
    """Yield the paths of the files in UTF-8; some of Python's tests are in other encodings."""
    for path in sorted({path for pattern in patterns for path in glob.glob(pattern, recursive=True)}):
        try:
            Path(path).read_text("utf-8")
        except UnicodeDecodeError:
            continue
        yield path


def make_tokenizer(folder: Path, vocabulary: int, texts: list[str]) -> Path:
    """Train a byte-level BPE on a sample of the files, if `folder` has none yet, and return the folder."""
    if (folder / "tokenizer.json").exists():
        return folder
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    backend.train_from_iterator(_sample(texts), trainer)
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>").save_pretrained(folder)
    return folder


def digest(folder: Path) -> str:
    """Return a short digest of a tokenizer: with the same one, the same files give the same rows."""
    return hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()[:12]


def _sample(paths: list[str]) -> Iterator[str]:
    """Yield texts with about `SAMPLE` characters in all, evenly spread over the files."""
    for path in paths[:: max(1, sum(map(os.path.getsize, paths)) // SAMPLE)]:
        yield Path(path).read_text("utf-8")
