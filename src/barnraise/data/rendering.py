"""Examples as a model reads them: token ids, and which of them are learnt.

A conversation passes through the tokenizer's chat template. A prompt with its completion is one text after the other.
The end of an answer is learnt with it: the template's end of turn, or else the tokenizer's end of text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import numpy as np

from barnraise.core.errors import DataError
from barnraise.data.chat_template import ASSISTANT, ChatTemplate, MarkedText, answer_end
from barnraise.data.examples import Example, Message
from barnraise.data.packing import EncodedExample
from barnraise.data.tokenizers import Tokenizer

TrainOn = Literal["assistant", "completion", "all"]

BATCH_CHARACTERS = 1 << 20
"""Characters that are encoded at once."""


class ExampleError(DataError):
    """An example from which nothing can be learnt as the run file asks."""


class Renderer:
    """Renders examples with a tokenizer, and a chat template if they are conversations."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None, train_on: TrainOn) -> None:
        self.tokenizer, self.template, self.train_on = tokenizer, template, train_on
        self._ends = tokenizer.special_tokens()
        self._end_ids = np.array(sorted({tokenizer.eos_id, *self._ends.values()}), np.uint32)

    def encoded(
        self, examples: Iterable[Example], refuse: Callable[[ExampleError], None] | None = None
    ) -> Iterator[EncodedExample]:
        """Yield each example as token ids.

        An example from which nothing can be learnt is given to `refuse`, or else raised as an ExampleError.
        """
        texts: list[MarkedText] = []
        size = 0
        for example in examples:
            try:
                texts.append(self.text(example))
            except ExampleError as error:
                if refuse is None:
                    raise
                refuse(error)
                continue
            size += len(texts[-1].text)
            if size >= BATCH_CHARACTERS:
                yield from self._encode(texts)
                texts, size = [], 0
        yield from self._encode(texts)

    def text(self, example: Example) -> MarkedText:
        """Return the text of an example, and the parts of it that are learnt."""
        try:
            found = self._plain(example) if self.template is None else self._chat(example, self.template)
        except DataError as error:
            raise ExampleError(f"{example.source}: {error}") from error
        if not any(stop > start for start, stop in found.spans):
            raise ExampleError(f"{example.source}: there is no answer to learn; leave it out, or set train_on: all")
        return found

    def _plain(self, example: Example) -> MarkedText:
        prompt, completion = example.prompt, example.completion
        if not isinstance(prompt, str) or not isinstance(completion, str):
            raise DataError(
                "it is no prompt with a completion, both as text; set data.kind to chat for conversations, "
                "or to text for plain text"
            )
        text = prompt + completion
        return MarkedText(text, [(0 if self.train_on == "all" else len(prompt), len(text))])

    def _chat(self, example: Example, template: ChatTemplate) -> MarkedText:
        prompt, messages = _conversation(example)
        if not messages:
            raise DataError("it has no messages; leave it out")
        tools = example.tools
        if self.train_on == "all":
            text = template.render(messages, tools).text
            return MarkedText(text, [(0, len(text))])
        if not any(message.get("role") == ASSISTANT for message in messages):
            raise DataError(
                f"it has no message of the role '{ASSISTANT}' (roles: {', '.join(_roles(messages))}), so there is no "
                "answer to learn; leave it out, name its roles in data.roles, or set train_on: all"
            )
        if self.train_on == "completion" and messages[-1].get("role") != ASSISTANT and prompt is None:
            raise DataError(
                f"its last message is of the role '{_roles(messages)[-1]}', but train_on: completion learns the last "
                "answer; leave it out, or set train_on: assistant"
            )
        if self.train_on == "completion":
            return self._last(messages, prompt or messages[:-1], tools, template)
        return template.answers(messages, tools, tuple(self._ends))

    def _last(
        self, messages: list[Message], prompt: list[Message], tools: list[object] | None, template: ChatTemplate
    ) -> MarkedText:
        """Return the text of `messages`, of which what follows the `prompt` is learnt."""
        whole, before = template.render(messages, tools), template.render(prompt, tools, prompt=True)
        if template.marked:
            spans = [span for span in whole.spans if span[0] >= len(before.text)]
            return MarkedText(whole.text, spans or whole.spans[len(before.spans) :])
        if not whole.text.startswith(before.text):
            raise DataError(
                "the chat template writes the prompt otherwise when the answer follows, so where that begins cannot be "
                "told; put {% generation %} marks around answers in a file that data.chat_template names, or set "
                "train_on: all"
            )
        start = len(before.text)
        return MarkedText(whole.text, [(start, answer_end(whole.text, start, tuple(self._ends)))])

    def _encode(self, texts: Sequence[MarkedText]) -> Iterator[EncodedExample]:
        for text, (ids, trained) in zip(
            texts, self.tokenizer.encode_marked(texts, specials=self.template is not None), strict=True
        ):
            yield self._ended(text, ids, trained)

    def _ended(self, text: MarkedText, ids: np.ndarray, trained: np.ndarray) -> EncodedExample:
        """Return the example with the tokens that end its answers learnt, with an end of text where it has none."""
        special = np.isin(ids, self._end_ids)
        behind = np.flatnonzero(trained[:-1] & ~trained[1:])  # the last token of each answer, but one at the very end
        trained[behind[~special[behind] & special[behind + 1]] + 1] = True
        last = int(np.flatnonzero(trained)[-1]) if trained.any() else len(ids) - 1
        if self.template is None or (not special[last] and not text.text[text.spans[-1][1] :].strip()):
            ids, trained = np.append(ids, np.uint32(self.tokenizer.eos_id)), np.append(trained, True)
        if self.template is None and self.tokenizer.leading_id is not None:
            ids, trained = np.insert(ids, 0, self.tokenizer.leading_id), np.insert(trained, 0, False)
        return EncodedExample(ids, trained)


def _conversation(example: Example) -> tuple[list[Message] | None, list[Message]]:
    """Return the prompt's messages, where the example has a completion apart, and all of its messages."""
    if example.messages is not None:
        return None, example.messages
    prompt, completion = example.prompt, example.completion
    if prompt is None or completion is None:
        raise DataError("it is no conversation; set data.kind to text for plain text")
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    if isinstance(completion, str):
        completion = [{"role": ASSISTANT, "content": completion}]
    return prompt, [*prompt, *completion]


def _roles(messages: Sequence[Message]) -> list[str]:
    return [str(message.get("role")) for message in messages]
