"""Chat templates: a conversation as the text that a model reads, and where in it the answers are.

A template is a program in Jinja that comes with a tokenizer. transformers renders it in a sandbox; no other code of a
checkpoint runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from barnraise.core.errors import DataError
from barnraise.data.examples import Message

TEMPLATE_FILE = "chat_template.jinja"
MAX_TEMPLATE_BYTES = 1 << 20
ASSISTANT = "assistant"

_MARK = re.compile(r"\{%-?\s*generation\s*-?%\}")
_SPECIALS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")

Spans = list[tuple[int, int]]
"""Characters start..stop-1 of a text, ascending."""


class MarkedText(NamedTuple):
    """A text, and the parts of it that are learnt."""

    text: str
    spans: Spans


class ChatTemplate:
    """A chat template with the special tokens that it may name."""

    def __init__(self, template: str, special_tokens: dict[str, str]) -> None:
        """Compile the template; DataError when it is no Jinja template."""
        from jinja2.exceptions import TemplateError
        from transformers.utils.chat_template_utils import _compile_jinja_template

        self.template, self._special = template, special_tokens
        self.marked = _MARK.search(template) is not None  # it says itself where answers are
        try:
            _compile_jinja_template(template)
        except TemplateError as error:
            raise DataError(f"the chat template is no Jinja template: {_first_line(error)}; correct it") from error

    @classmethod
    def of(cls, files: dict[str, bytes], source: str) -> ChatTemplate:
        """Return the template in a tokenizer's files; DataError when they have none."""
        config = _json(files.get("tokenizer_config.json", b"{}"))
        found = files[TEMPLATE_FILE].decode() if TEMPLATE_FILE in files else _named(config.get("chat_template"))
        if not found:
            raise DataError(
                f"the tokenizer {source} has no chat template; name a file with one as data.chat_template, or use a "
                "tokenizer of a model that was tuned for chats"
            )
        special = {key: text for key in _SPECIALS if (text := _text(config.get(key))) is not None}
        return cls(found, special)

    def render(
        self, messages: Sequence[Message], tools: list[Any] | None = None, *, prompt: bool = False
    ) -> MarkedText:
        """Return the text of `messages`, and the spans that the template marks as generated.

        With `prompt` the text ends where the assistant would begin. Raises DataError when the template refuses.
        """
        from jinja2.exceptions import TemplateError
        from transformers.utils.chat_template_utils import render_jinja_template

        given = [{key: value for key, value in message.items() if value is not None} for message in messages]
        try:
            texts, spans = render_jinja_template(
                conversations=[given],
                tools=tools,
                chat_template=self.template,
                return_assistant_tokens_mask=self.marked,
                add_generation_prompt=prompt,
                **self._special,
            )
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
            raise DataError(f"the chat template refuses it: {_first_line(error)}") from error
        return MarkedText(texts[0], spans[0] if self.marked else [])

    def answers(self, messages: Sequence[Message], tools: list[Any] | None, ends: Sequence[str]) -> MarkedText:
        """Return the text of `messages`, and where in it each message of the assistant is, with what ends it.

        Where the template does not mark answers, an answer is what its message adds to the text of those before it and
        the assistant's prompt. `ends` are the special tokens: white space behind one of them is not of the answer.
        DataError where these texts do not continue each other.
        """
        whole = self.render(messages, tools)
        if self.marked:
            return whole
        spans = []
        for number, message in enumerate(messages):
            if message.get("role") == ASSISTANT:
                before = self.render(messages[:number], tools, prompt=True).text
                behind = whole.text if number + 1 == len(messages) else self.render(messages[: number + 1], tools).text
                if not (whole.text.startswith(behind) and behind.startswith(before)):
                    raise DataError(
                        "the chat template has no {% generation %} marks, and writes a message otherwise when others "
                        "follow, so where the answers are cannot be told; put marks around answers in a file that "
                        "data.chat_template names, or set train_on: completion or all"
                    )
                spans.append((len(before), answer_end(behind, len(before), ends)))
        return MarkedText(whole.text, spans)


def answer_end(text: str, start: int, ends: Sequence[str]) -> int:
    """Return where an answer at the end of `text` ends: before white space that follows a special token."""
    stripped = text.rstrip()
    return len(stripped) if len(stripped) > start and stripped.endswith(tuple(ends)) else len(text)


def _named(value: Any) -> str | None:
    """Return the default template of a config that has one, or a list of named ones."""
    if isinstance(value, list):
        named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None


def _text(value: Any) -> str | None:
    found = value.get("content") if isinstance(value, dict) else value
    return found if isinstance(found, str) else None


def _json(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
