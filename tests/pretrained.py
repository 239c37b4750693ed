"""A small pretrained model in a folder, as transformers writes it, with a byte-level BPE tokenizer of its own."""

from __future__ import annotations

import random
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

CONTEXT = 32
EOS = "<|endoftext|>"
_WORDS = (
    "barn",
    "beam",
    "board",
    "roof",
    "wall",
    "nail",
    "saw",
    "rope",
    "stone",
    "field",
    "horse",
    "cart",
    "door",
    "lamp",
)


def prose(seed: int, sentences: int = 400) -> str:
    """Text that is easy to learn."""
    chance = random.Random(seed)
    return "".join(f"The {chance.choice(_WORDS)} is on the {chance.choice(_WORDS)}.\n" for _ in range(sentences))


def tokenizer(seed: int = 0, size: int = 300) -> PreTrainedTokenizerFast:
    """A BPE tokenizer that was trained on `prose(seed)`."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, special_tokens=[EOS], show_progress=False)
    backend.train_from_iterator([prose(seed)], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=EOS)


def write(folder: Path, steps: int = 0) -> Path:
    """A GPT-2 with dropout 0.1 and its tokenizer in `folder`, trained on `prose(0)` for `steps` steps."""
    coder = tokenizer()
    config = GPT2Config(
        vocab_size=len(coder), n_positions=CONTEXT, n_embd=32, n_layer=1, n_head=2,
        eos_token_id=coder.eos_token_id, bos_token_id=coder.eos_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = GPT2LMHeadModel(config)
        ids = torch.tensor(coder(prose(0))["input_ids"])
        rows = ids[: len(ids) // CONTEXT * CONTEXT].reshape(-1, CONTEXT)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for step in range(steps):
            batch = rows[torch.arange(8 * step, 8 * step + 8) % len(rows)]
            optimizer.zero_grad()
            model(input_ids=batch, labels=batch).loss.backward()
            optimizer.step()
    model.save_pretrained(folder)
    coder.save_pretrained(folder)
    return folder
