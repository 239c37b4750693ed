"""Conversations and prompts of a run file: the form of their rows, and the problems of its template and examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnraise.config.data_sections import ChatData, InstructData
from barnraise.config.problems import Problem
from barnraise.config.schema import RunFile
from barnraise.core.errors import InputError
from barnraise.plan.dataset import model_type, tokenizer_of

if TYPE_CHECKING:
    from barnraise.data.chats import ChatForm

EXAMINED = 100
"""Examples that are rendered before a run, unless all may be bad."""


def chat_form(run_file: RunFile) -> ChatForm:
    """Return how the run's examples become rows for its model; DataError without a usable template."""
    from barnraise.data import tokenizers
    from barnraise.data.chats import ChatForm, template_of
    from barnraise.models.attention import packs

    data = run_file.data
    assert isinstance(data, ChatData | InstructData)
    coder, template = tokenizers.load(tokenizer_of(run_file)), None
    if isinstance(data, ChatData):
        path = Path(data.chat_template).expanduser() if data.chat_template else None
        template = template_of(coder, tokenizer_of(run_file), path)
    return ChatForm(data.kind, coder, template, data.train_on, data.context, packs(model_type(run_file)))


def example_problems(run_file: RunFile, model: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of the examples in records for a model of this config: their form, the chat template."""
    data = run_file.data
    if not isinstance(data, ChatData | InstructData):
        return
    from barnraise.models.problems import CAUSAL, SEQ2SEQ, entry_of

    problem = entry_of(model).name
    if problem == SEQ2SEQ and isinstance(data, ChatData):
        return  # `pair_problems` tells
    if problem not in (CAUSAL, SEQ2SEQ):
        text = (
            f"is {data.kind}, which a {CAUSAL} learns, but the problem of this model is {problem}; set data.kind: text"
        )
        yield Problem(("data", "kind"), text)
        return
    from barnraise.data.gathering import peek
    from barnraise.data.rendering import Renderer

    try:
        form = chat_form(run_file)
    except InputError as error:
        yield Problem(("data", "chat_template") if isinstance(data, ChatData) else ("data", "tokenizer"), str(error))
        return
    faults: list[str] = []
    try:
        renderer = Renderer(form.tokenizer, form.template, form.train_on)
        for _ in renderer.encoded(islice(peek(data), EXAMINED), lambda error: faults.append(str(error))):
            pass
    except InputError as error:
        faults.append(str(error))
    if len(faults) > data.skip_bad:
        yield Problem(("data", "files" if data.files else "mixture"), faults[0])
