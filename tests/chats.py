"""Tokenizers with chat templates, built here, and conversations drawn at random."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}{% else %}"
    "{{ message['content'] + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] | trim + '<|eot_id|>' }}{% endgeneration %}{% else %}"
    "{{ message['content'] | trim + '<|eot_id|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set first = messages[0]['content'] + '\n\n' %}"
    "{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}"
    "{% for message in rest %}{% if message['role'] == 'assistant' %}{{ '<start_of_turn>model\n' }}"
    "{% generation %}{{ message['content'] | trim + '<end_of_turn>' }}{% endgeneration %}{{ '\n' }}{% else %}"
    "{{ '<start_of_turn>' + message['role'] + '\n' + (first if loop.first else '') + message['content'] | trim "
    "+ '<end_of_turn>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
SPECIALS = {
    CHATML: ["<|im_start|>", "<|im_end|>"],
    LLAMA: ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    GEMMA: ["<start_of_turn>", "<end_of_turn>"],
}
WORDS = ["the", "barn", "was", "raised", "by", "many", "hands", "nobody", "asked", "who", "brought", "which", "beam"]
ODD = [
    "naïve",
    "日本語",
    "🙂🙂",
    "\n\n",
    "\t",
    "x=1;",
    "<b>",
    "  ",
    "ﬁ",
    "e\u0301",
    "<|im_end|>",
    "0123456789",
    "don't",
    "“so”",
]


def unmarked(template: str) -> str:
    """Return the template without marks around what is generated."""
    return template.replace("{% generation %}", "").replace("{% endgeneration %}", "")


def texts(count: int = 400) -> Iterator[str]:
    chance = random.Random(7)
    for _ in range(count):
        yield words(chance, 30)


def words(chance: random.Random, most: int) -> str:
    """Return some words, a few of them odd."""
    return " ".join(chance.choice(ODD if chance.random() < 0.15 else WORDS) for _ in range(chance.randint(1, most)))


def conversation(chance: random.Random) -> list[dict[str, Any]]:
    """Return a conversation with at least one answer; some have a system message, or end with a question."""
    turns = [{"role": "system", "content": words(chance, 9)}] if chance.random() < 0.4 else []
    for _ in range(chance.randint(1, 4)):
        turns.append({"role": "user", "content": words(chance, 25)})
        turns.append({"role": "assistant", "content": words(chance, 40) if chance.random() < 0.95 else ""})
    if chance.random() < 0.15:
        turns.append({"role": "user", "content": words(chance, 5)})
    return turns


def _byte_level(prefix: bool = False) -> Tokenizer:
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    found.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    found.train_from_iterator(texts(), trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet))
    return found


def _word_pieces() -> Tokenizer:
    found = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    found.normalizer = normalizers.BertNormalizer()
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    found.decoder = decoders.WordPiece()
    found.train_from_iterator(texts(), trainers.WordPieceTrainer(vocab_size=400, special_tokens=["[UNK]"]))
    return found


def _unigram() -> Tokenizer:
    found = Tokenizer(models.Unigram())
    found.normalizer = normalizers.NFKC()
    found.pre_tokenizer = pre_tokenizers.Metaspace()
    found.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=400, unk_token="<unk>", special_tokens=["<unk>"])
    found.train_from_iterator(texts(), trainer)
    return found


def _byte_fallback() -> Tokenizer:
    found = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    found.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    specials = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    found.train_from_iterator(texts(), trainers.BpeTrainer(vocab_size=700, special_tokens=specials))
    found.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return found


TOKENIZERS = {
    "byte-level": (_byte_level, CHATML),
    "byte-level with headers": (lambda: _byte_level(prefix=True), LLAMA),
    "word pieces": (_word_pieces, LLAMA),
    "unigram with metaspace": (_unigram, GEMMA),
    "byte fallback": (_byte_fallback, GEMMA),
}


@cache
def _trained(name: str) -> str:
    """Return the tokenizer of that name as JSON; training it again may order its tokens otherwise."""
    found: str = TOKENIZERS[name][0]().to_str()
    return found


def chat_tokenizer(name: str, folder: Path, template: str | None = None) -> Any:
    """Save the tokenizer of that name in `folder`, with its template or another; return it as transformers has it."""
    from transformers import PreTrainedTokenizerFast

    own = TOKENIZERS[name][1]
    backend = Tokenizer.from_str(_trained(name))
    tokens = ["<s>", "</s>", *SPECIALS[own]]
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in tokens])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", backend.token_to_id("<s>"))]
    )
    found = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    found.chat_template = own if template is None else template
    found.save_pretrained(folder)
    return found
