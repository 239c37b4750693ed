"""Held-out examples as questions: prompts with the answers or choices that metrics compare a model with.

They lie in a file of the dataset, as token ids. Workers need none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import DataError
from barnraise.data.chat_template import ASSISTANT
from barnraise.data.chats import ChatForm
from barnraise.data.examples import Example, Message, Origin
from barnraise.data.packing import EncodedExample
from barnraise.data.rendering import ExampleError, Renderer
from barnraise.data.shards import Dataset
from barnraise.data.tokenizers import Tokenizer

QUESTIONS = "questions.json"
_ASKED = Origin("evaluation.prompts", 1)
MAX_BYTES = 32 << 20


class CodedChoice(msgspec.Struct, frozen=True, array_like=True):
    """A prompt with one of its choices, as token ids.

    The first `start` of them are the prompt's. `characters` is the length of the choice's text, without white
    space around it.
    """

    ids: tuple[int, ...]
    start: int
    characters: int


class Question(msgspec.Struct, frozen=True):
    """A prompt and its answer as token ids; `choices` where there are some, of which `right` is the answer."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...] = ()
    choices: tuple[CodedChoice, ...] = ()
    right: int = -1


class Questions(msgspec.Struct, frozen=True):
    """The content of the file.

    A token of `stops` ends an answer. `asked` are the prompts of the run file as token ids.
    """

    stops: tuple[int, ...]
    held_out: tuple[Question, ...] = ()
    asked: tuple[tuple[int, ...], ...] = ()


def questions_of(examples: Iterable[Example], form: ChatForm, most: int, asked: Sequence[str] = ()) -> Questions:
    """Return the first `most` held-out examples that a row holds whole, and the prompts `asked`, as questions.

    DataError where no example makes a question.
    """
    maker = _QuestionMaker(form)
    found: list[Question] = []
    fault = ""
    for example in examples:
        if len(found) >= most:
            break
        try:
            question = maker.question(example)
        except ExampleError as error:
            fault = fault or str(error)
            continue
        if question is not None:
            found.append(question)
    if most and not found:
        why = fault or f"all are longer than a row of {form.context} tokens"
        raise DataError(
            f"no held-out example has an answer that evaluation.metrics or samples can ask for: {why}; correct it, or "
            "leave them out"
        )
    return Questions(maker.stops, tuple(found), _fitting(map(maker.prompt, asked), form.context))


def prompts_of(asked: Sequence[str], tokenizer: Tokenizer, context: int) -> Questions:
    """Return prompts as plain text, as questions without answers."""
    found = (tuple(tokenizer.encode(text)) or (tokenizer.eos_id,) for text in asked)
    return Questions((tokenizer.eos_id,), asked=_fitting(found, context))


def _fitting(prompts: Iterable[tuple[int, ...]], context: int) -> tuple[tuple[int, ...], ...]:
    """Return the prompts; DataError where one leaves no room for an answer."""
    found = tuple(prompts)
    for number, prompt in enumerate(found, 1):
        if len(prompt) >= context:
            raise DataError(
                f"prompt {number} of evaluation.prompts has {len(prompt)} tokens, but must have fewer than a row "
                f"(data.context: {context}); shorten it"
            )
    return found


class _QuestionMaker:
    """Renders examples as they are rendered for training, and tells prompts and answers apart."""

    def __init__(self, form: ChatForm) -> None:
        self.form, self.renderer = form, Renderer(form.tokenizer, form.template, "completion")
        specials = form.tokenizer.special_tokens().values() if form.template is not None else ()
        self.stops = tuple(sorted({form.tokenizer.eos_id, *specials}))

    def question(self, example: Example) -> Question | None:
        """Return the question of an example; None where it is longer than a row."""
        example = _last_answer(example)
        ids, start, stop = self._split(next(self.renderer.encoded([example])))
        if not start or len(ids) > self.form.context:
            return None
        question = Question(ids[:start], ids[start:stop])
        if example.choices is None:
            return question
        texts = example.choices
        rendered = self.renderer.encoded([replace(example, completion=self._as(example, text)) for text in texts])
        split = [self._split(encoded) for encoded in rendered]
        if any(stop > self.form.context for _, _, stop in split):
            return None
        choices = tuple(
            CodedChoice(ids[:stop], start, len(text.strip()))
            for (ids, start, stop), text in zip(split, texts, strict=True)
        )
        return replace(question, choices=choices, right=example.right)

    def prompt(self, text: str) -> tuple[int, ...]:
        """Return a prompt of the run file as token ids: a user's message where there is a chat template."""
        asked: str | list[Message] = text if self.form.template is None else [{"role": "user", "content": text}]
        answer: str | list[Message] = "." if self.form.template is None else [{"role": ASSISTANT, "content": "."}]
        example = Example(source=_ASKED, prompt=asked, completion=answer)
        ids, start, _ = self._split(next(self.renderer.encoded([example])))
        return ids[:start]

    def _as(self, example: Example, text: str) -> str | list[Message]:
        return text if isinstance(example.prompt, str) else [{"role": ASSISTANT, "content": text}]

    def _split(self, encoded: EncodedExample) -> tuple[tuple[int, ...], int, int]:
        """Return the ids, and where the answer begins and ends, without tokens that end it."""
        ids, trained = tuple(encoded.ids.tolist()), encoded.trained
        start = int(trained.argmax())
        stop = start + int((~trained[start:]).argmax()) if not trained[start:].all() else len(ids)
        while stop > start and ids[stop - 1] in self.stops:
            stop -= 1
        return ids, start, stop


def _last_answer(example: Example) -> Example:
    """Return a conversation as its last answer and the messages before it; others as they are."""
    if example.messages is None:
        return example
    last = max((n for n, message in enumerate(example.messages) if message["role"] == ASSISTANT), default=0)
    if not last:
        raise ExampleError(f"{example.source}: no answer of the assistant follows a message")
    return replace(example, messages=None, prompt=example.messages[:last], completion=[example.messages[last]])


def encoded(questions: Questions) -> bytes:
    """Return the content of the file; DataError where it is too long."""
    content = msgspec.json.encode(questions)
    if len(content) > MAX_BYTES:
        raise DataError(f"the questions take {len(content)} bytes, but may take {MAX_BYTES}; lower evaluation.rows")
    return content


def questions_in(dataset: Dataset) -> Questions | None:
    """Return the questions of a dataset; None where it has none. DataError when the file is damaged."""
    info = next((info for info in dataset.meta.files if info.name == QUESTIONS), None)
    if info is None:
        return None
    path = dataset.folder / QUESTIONS
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Questions)
    except (OSError, *MALFORMED) as error:
        raise DataError(f"{path} cannot be read ({error}); put it back from a copy") from error
    bad = next((token for token in _tokens(found) if not 0 <= token < dataset.meta.vocab_size), None)
    if bad is not None:
        raise DataError(f"{path} holds token {bad}, but the vocabulary has {dataset.meta.vocab_size}")
    return found


def _tokens(questions: Questions) -> Iterator[int]:
    for question in questions.held_out:
        yield from question.prompt
        yield from question.answer
        for choice in question.choices:
            yield from choice.ids
    for prompt in questions.asked:
        yield from prompt
