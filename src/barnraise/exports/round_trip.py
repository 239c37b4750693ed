"""The round trip: an exported model must write, from the same prompts, the tokens that the trained model writes.

Prompts are beginnings of held-out rows. Both models write greedily, through transformers' `generate`: the trained model
with the run's own ends of a text, the exported one with the settings and the tokenizer of its files. Imports torch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from barnraise.core.errors import ExportError
from barnraise.models.exchange.frozen_base import quietly

PROMPTS, PROMPT_TOKENS, NEW_TOKENS = 10, 24, 16

F32 = "f32"
SPREAD: Mapping[str, float] = {F32: 1e-4, "f16": 0.02, "q8_0": 0.1}
"""Most that logits may differ in the mean, as a share of their standard deviation, by the type of the matrices.

Measured on small models: below 1e-5, 0.005 and 0.03.
"""

_NEAR = 4.0
"""Times the bound: rounding may swap two tokens whose logits are closer than that."""

_AGAIN = "the folder is not to be used; --no-round-trip writes it without this check"


@dataclass(frozen=True)
class Prompt:
    """A beginning of a text: its tokens as the run trained on them, and how many the model may add.

    `source` is for messages. `encode` gets the exported tokenizer, and returns its tokens of the same text; None where
    the data is no text.
    """

    ids: list[int]
    source: str
    room: int
    encode: Callable[[Any], list[int]] | None = None


@dataclass(frozen=True)
class TextEnds:
    """Tokens that end or fill a text in the run: `eos`, the `stops` that end a turn, and `pad`."""

    eos: int | None
    stops: tuple[int, ...] = ()
    pad: int | None = None

    @property
    def all(self) -> list[int]:
        """Return the tokens that end a generation."""
        return [*([] if self.eos is None else [self.eos]), *(stop for stop in self.stops if stop != self.eos)]


@dataclass(frozen=True)
class Written:
    """The trained model's tokens after a prompt, and its logits for each of them, float32 [tokens, vocabulary]."""

    prompt: Prompt
    tokens: list[int]
    logits: Tensor


@dataclass(frozen=True)
class RoundTrip:
    """The result: `equal` of `prompts` gave the same tokens, the others differ by rounding.

    `spread` is the largest mean difference of a prompt's logits, as a share of their standard deviation.
    """

    prompts: int
    equal: int
    spread: float


def written_by(module: nn.Module, prompts: Sequence[Prompt], ends: TextEnds) -> list[Written]:
    """Return the tokens that the trained model writes after each prompt."""
    from transformers import GenerationConfig

    model: Any = module.eval()
    settings = GenerationConfig(eos_token_id=ends.all or None, pad_token_id=_filler(ends))
    found = []
    for prompt in prompts:
        tokens = _greedy(model, prompt, settings)
        found.append(Written(prompt, tokens, _logits(model, prompt.ids, tokens)))
    return found


def check_tokenizer(prompts: Sequence[Prompt], tokenizer: Any, ends: TextEnds) -> None:
    """Raise ExportError unless the exported `tokenizer` gives the tokens of each prompt, and ends a text alike."""
    for number, prompt in enumerate(prompts, 1):
        if prompt.encode is None:
            continue
        found = prompt.encode(tokenizer)
        if found != prompt.ids:
            place = _first_difference(prompt.ids, found)
            raise ExportError(
                f"the exported tokenizer reads prompt {number} ({prompt.source}) otherwise than the run did: token "
                f"{place} is {_shown(found, place, tokenizer)}, and was {_shown(prompt.ids, place, tokenizer)} in "
                f"training; {_AGAIN}"
            )
    if tokenizer.eos_token_id not in (*ends.all, None):
        raise ExportError(
            f"the exported tokenizer ends a text with token {tokenizer.eos_token_id}, but the run trained with "
            f"{ends.eos}; {_AGAIN}"
        )


def check_model(
    written: Sequence[Written], model: Any, ends: TextEnds, *, kind: str, tokenizer: Any = None
) -> RoundTrip:
    """Compare what the exported `model` writes with what was `written`; `kind` is the type of its matrices.

    Raises ExportError at the first difference that rounding does not explain.
    """
    model.eval()
    settings = copy.deepcopy(model.generation_config)
    _check_end("eos", settings.eos_token_id, ends.all)
    _check_end("pad", settings.pad_token_id, [] if ends.pad is None else [ends.pad])
    settings.pad_token_id = _filler(ends)  # else generate warns
    equal, widest = 0, 0.0
    for number, reference in enumerate(written, 1):
        ids = reference.prompt.ids
        spread = _spread(reference, _logits(model, ids, reference.tokens))
        widest = max(widest, spread)
        if not spread <= SPREAD[kind]:
            raise ExportError(
                f"prompt {number} ({reference.prompt.source}): the exported model's logits differ by {spread:.2%} of "
                f"their standard deviation in the mean, but may by {SPREAD[kind]:.1%} for {kind}; {_AGAIN}"
            )
        tokens = _greedy(model, reference.prompt, settings)
        if tokens == reference.tokens:
            equal += 1
            continue
        _explain(number, reference, tokens, kind, tokenizer)
    return RoundTrip(len(written), equal, widest)


def load_folder(folder: Path, **options: Any) -> Any:
    """Load an exported model as its users do; ExportError where it does not load."""
    from transformers import AutoModelForCausalLM

    try:
        with quietly(), redirect_stderr(StringIO()):  # a bar of progress that cannot be switched off
            return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, **options)
    except Exception as error:  # transformers raises exceptions of any type
        raise ExportError(f"the exported model in {folder} does not load: {error}; {_AGAIN}") from error


def load_tokenizer(folder: Path, **options: Any) -> Any:
    """Load an exported tokenizer as its users do; ExportError where it does not load."""
    from transformers import AutoTokenizer

    try:
        with quietly():
            return AutoTokenizer.from_pretrained(folder, local_files_only=True, **options)
    except Exception as error:  # transformers raises exceptions of any type
        raise ExportError(f"the exported tokenizer in {folder} does not load: {error}; {_AGAIN}") from error


def _explain(number: int, reference: Written, tokens: list[int], kind: str, tokenizer: Any) -> None:
    """Raise ExportError unless rounding explains the first differing token."""
    place = _first_difference(reference.tokens, tokens)
    if place < min(len(tokens), len(reference.tokens)):
        row = reference.logits[place]
        gap = float(row[reference.tokens[place]] - row[tokens[place]])
        if gap <= _NEAR * SPREAD[kind] * float(row.std()):
            return
    raise ExportError(
        f"prompt {number} ({reference.prompt.source}): the trained model's token {place} after it is "
        f"{_shown(reference.tokens, place, tokenizer)}, the exported model's is {_shown(tokens, place, tokenizer)}; "
        f"{_AGAIN}"
    )


def _greedy(model: Any, prompt: Prompt, settings: Any) -> list[int]:
    given = torch.tensor([prompt.ids])
    settings.do_sample, settings.max_new_tokens = False, prompt.room
    with torch.inference_mode(), quietly():
        made = model.generate(given, attention_mask=torch.ones_like(given), generation_config=settings)
    tokens: list[int] = made[0, len(prompt.ids) :].tolist()
    return tokens


def _logits(model: Any, ids: list[int], tokens: list[int]) -> Tensor:
    """Return the logits for each of `tokens` after `ids`, float32 [tokens, vocabulary]."""
    with torch.inference_mode():
        found: Tensor = model(input_ids=torch.tensor([ids + tokens]), use_cache=False).logits[0]
    return found[len(ids) - 1 : -1].float()


def _spread(reference: Written, found: Tensor) -> float:
    """Return the root mean square difference of logits, as a share of the reference's standard deviation."""
    return float((found - reference.logits).square().mean().sqrt() / reference.logits.std())


def _check_end(name: str, found: int | list[int] | None, trained: list[int]) -> None:
    have = found if isinstance(found, list) else [] if found is None else [found]
    if set(have) != set(trained):  # a GGUF file names the end of a text and that of a turn, which may be the same
        raise ExportError(
            f"the exported model has the {name} tokens {have}, but the run trained with {trained}; {_AGAIN}"
        )


def _filler(ends: TextEnds) -> int | None:
    return ends.pad if ends.pad is not None else ends.eos


def _first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the first place where two sequences differ, which may be the end of the shorter."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _shown(tokens: Sequence[int], place: int, tokenizer: Any) -> str:
    if place >= len(tokens):
        return "none: it ends there"
    text = "" if tokenizer is None else f" ({tokenizer.decode([tokens[place]])!r})"
    return f"{tokens[place]}{text}"
