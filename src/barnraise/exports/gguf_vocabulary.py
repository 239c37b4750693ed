"""The vocabulary of a tokenizer.json as a GGUF file holds it: byte-level BPE alone.

A GGUF file does not hold the expression by which a text is split before merges apply. It names one of llama.cpp's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from barnraise.core.errors import DataError
from barnraise.data.chat_template import TEMPLATE_FILE

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
"""Types of a token in GGUF."""

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_SPLITS = {_LLAMA3: "llama-bpe", _QWEN2: "qwen2"}
"""Names that llama.cpp has for expressions; GPT-2's is the one that tokenizers' ByteLevel has built in."""

_MARK = re.compile(r"\{%(-?)\s*(?:end)?generation\s*(-?)%\}")

_REMEDY = "export with --as model, which transformers loads"


@dataclass(frozen=True)
class GgufVocabulary:
    """The tokens by id, their types, the merges in order, and the tokens with a meaning.

    `pre` is llama.cpp's name of the split. `begins` and `ends`: whether a text gets the first or the last token. `eot`
    ends a turn where that is another token than the end of a text.
    """

    tokens: list[str]
    types: list[int]
    merges: list[str]
    pre: str
    bos: int | None
    eos: int | None
    pad: int | None
    begins: bool = False
    ends: bool = False
    chat_template: str | None = None
    eot: int | None = None


def vocabulary_of(files: Mapping[str, bytes], size: int, eot: int | None = None) -> GgufVocabulary:
    """Return the vocabulary of a tokenizer by its files, filled up to `size` tokens; `eot` ends a turn.

    DataError with a remedy for a tokenizer of another kind.
    """
    if "tokenizer.json" not in files:
        raise DataError(f"the run's data has no tokenizer.json, and a GGUF file holds a tokenizer; {_REMEDY}")
    whole = json.loads(files["tokenizer.json"])
    config = json.loads(files.get("tokenizer_config.json", b"{}"))
    model = whole["model"]
    _check(whole)
    ids: dict[str, int] = dict(model["vocab"])
    special = {entry["content"]: bool(entry.get("special")) for entry in whole.get("added_tokens") or ()}
    ids |= {entry["content"]: int(entry["id"]) for entry in whole.get("added_tokens") or ()}
    named = {key: _text(config.get(f"{key}_token")) for key in ("bos", "eos", "pad")}
    if max(ids.values()) >= size:
        raise DataError(
            f"the tokenizer has ids up to {max(ids.values())}, but the model's vocabulary {size}; {_REMEDY}"
        )
    tokens, types = [f"[PAD{number}]" for number in range(size)], [UNUSED] * size
    for text, number in ids.items():
        tokens[number] = text
        control = special.get(text, False) or text in named.values()
        types[number] = CONTROL if control else USER_DEFINED if text in special else NORMAL
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    bos, eos, pad = (ids.get(named[key] or "") for key in ("bos", "eos", "pad"))
    template = template_of(files)
    begins, ends = _added(files["tokenizer.json"], config, bos, eos)
    return GgufVocabulary(
        tokens,
        types,
        merges,
        _split(whole),
        bos=bos,
        eos=eos,
        pad=pad,
        begins=begins,
        ends=ends,
        chat_template=None if template is None else without_marks(template),
        eot=eot,
    )


def template_of(files: Mapping[str, bytes]) -> str | None:
    """Return the chat template among a tokenizer's files: chat_template.jinja, or the one in tokenizer_config.json."""
    if (found := files.get(TEMPLATE_FILE)) is not None:
        return found.decode()
    template = json.loads(files.get("tokenizer_config.json", b"{}")).get("chat_template")
    if isinstance(template, list):  # several by name
        named = {each.get("name"): each.get("template") for each in template if isinstance(each, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def without_marks(template: str) -> str:
    """Return a chat template without the marks around answers, which only transformers knows.

    A mark becomes a comment, which strips the same white space.

    >>> without_marks("a {%- generation -%} b{% endgeneration %}")
    'a {#- -#} b{# #}'
    """
    return _MARK.sub(r"{#\1 \2#}", template)


def _check(whole: Mapping[str, Any]) -> None:
    """Raise DataError unless the tokenizer is a byte-level BPE as llama.cpp knows it."""
    model, kind = whole["model"], whole["model"].get("type")
    decoder = (whole.get("decoder") or {}).get("type")
    if kind != "BPE" or model.get("byte_fallback") or decoder != "ByteLevel":
        named = "BPE with byte fallback" if model.get("byte_fallback") else f"{kind} with decoder {decoder}"
        raise DataError(f"barnraise writes byte-level BPE tokenizers to GGUF, and this one is {named}; {_REMEDY}")
    normalizer = (whole.get("normalizer") or {}).get("type")
    if normalizer not in (None, "NFC"):
        raise DataError(f"llama.cpp normalizes no text, and this tokenizer does ({normalizer}); {_REMEDY}")
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        raise DataError(f"llama.cpp has no prefixes or suffixes of pieces, and this tokenizer has; {_REMEDY}")


def _split(whole: Mapping[str, Any]) -> str:
    """Return llama.cpp's name of the split; DataError where it has none."""
    found = whole.get("pre_tokenizer") or {}
    steps = found.get("pretokenizers", []) if found.get("type") == "Sequence" else [found]
    *before, last = steps or [{}]
    if last.get("type") == "ByteLevel" and not last.get("add_prefix_space"):
        if not before and (last.get("use_regex", True) or not whole["model"]["merges"]):
            return "gpt-2"
        if len(before) == 1 and not last.get("use_regex", True):
            pattern = (before[0].get("pattern") or {}).get("Regex")
            if before[0].get("behavior") == "Isolated" and not before[0].get("invert") and pattern in _SPLITS:
                return _SPLITS[pattern]
    raise DataError(
        "the tokenizer splits a text in a way that barnraise does not know by a name of llama.cpp (known: "
        f"gpt-2, {', '.join(_SPLITS.values())}); {_REMEDY}"
    )


def _added(content: bytes, config: Mapping[str, Any], bos: int | None, eos: int | None) -> tuple[bool, bool]:
    """Return whether the tokenizer puts its first token before a text, and its last behind it."""
    from tokenizers import Tokenizer

    ids = Tokenizer.from_str(content.decode()).encode("a").ids
    begins = config.get("add_bos_token", bos is not None and ids[:1] == [bos])
    ends = config.get("add_eos_token", eos is not None and ids[-1:] == [eos])
    return bool(begins) and bos is not None, bool(ends) and eos is not None


def _text(token: object) -> str | None:
    value = token.get("content") if isinstance(token, dict) else token
    return value if isinstance(value, str) else None
