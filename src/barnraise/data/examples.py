"""Examples to train on, as they were read: text, a conversation, or a prompt with its completion.

An example has no tokens yet: a tokenizer and a chat template make them of it.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

Message = dict[str, Any]
"""A message of a conversation: `role` (system, user, assistant or tool), `content`, and what else it had."""


class Origin(msgspec.Struct, frozen=True):
    """The place of an example: a file, and the number of its line or row in it, from 1."""

    file: str
    number: int
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.file}:{self.number}" if self.unit == "line" else f"{self.file}, {self.unit} {self.number}"


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """An example to train on, in one of three forms.

    `text` alone; `messages` alone; or `prompt` with `completion`, both as text or both as messages. Beside messages,
    `tools` has what a chat template may list, and beside a prompt `choices` has texts of which the one with the number
    `right` is the completion.
    """

    source: Origin
    text: str | None = None
    messages: list[Message] | None = None
    prompt: str | list[Message] | None = None
    completion: str | list[Message] | None = None
    tools: list[Any] | None = None
    choices: list[str] | None = None
    right: int = -1

    def content(self) -> bytes:
        """Return the example without its source, as bytes: equal examples have equal ones."""
        parts = [self.text, self.messages, self.prompt, self.completion, self.tools]
        return _ENCODER.encode(parts if self.choices is None else [*parts, self.choices])

    def words(self) -> str:
        """Return all of its text but system messages, for a comparison with others."""
        parts = [self.text or ""]
        for part in (self.messages, self.prompt, self.completion):
            if isinstance(part, str):
                parts.append(part)
            elif part is not None:
                parts += [str(message["content"]) for message in part if message["role"] != "system"]
        return " ".join(parts)

    def hash(self, key: bytes = b"") -> int:
        """Return a number of 64 bits for the content, the same on every machine."""
        return hash_of(self.content(), key)


def hash_of(content: bytes, key: bytes = b"") -> int:
    """Return a number of 64 bits for `content` and a `key` of at most 64 bytes, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8, key=key).digest(), "big")


_ENCODER = msgspec.json.Encoder(order="sorted")
