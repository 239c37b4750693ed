"""Forms of records: the fields that make an example, by their usual names or by those of `data.fields`.

A file has one form, which follows from the fields of its first record.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from barnraise.config.data_sections import ChatData, Fields, FileData
from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import DataError, nearest
from barnraise.core.text import printable
from barnraise.data.choices import choices_of, right_of
from barnraise.data.examples import Example, Message, Origin

FORMS = {
    "text": ("text",),
    "messages": ("messages",),
    "prompt": ("prompt", "completion"),
    "instruction": ("instruction", "output"),
    "choices": ("prompt", "choices", "label"),
}
"""The forms, in the order in which they are tried, with the fields that each needs (by our names)."""

KINDS = {
    "text": ("text",),
    "chat": ("messages", "prompt", "instruction", "choices"),
    "instruct": ("prompt", "instruction", "choices"),
}
"""The forms that each kind of data reads."""

_BESIDE = {
    "text": (),
    "messages": ("system", "tools"),
    "prompt": ("system", "tools"),
    "instruction": ("input", "system"),
    "choices": ("system", "tools"),
}
_MESSAGES = ("messages", "conversations", "conversation")
_LABELS = ("label", "answer", "answerKey")
_MOST_NAMES = 12

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "function_response": "tool",
}
"""Usual names of roles, and the role that each means."""

ALPACA = """\
Below is an instruction that describes a task{more}. Write a response that appropriately completes the request.

### Instruction:
{instruction}

{input}### Response:
"""
"""The usual prompt of Alpaca's form, for data of kind `instruct`."""


class FormError(DataError):
    """A record that makes no example; the message ends with the remedy."""


class FormReader:
    """Makes examples of the records of one file, whose form follows from the names of its fields."""

    def __init__(self, data: FileData, fields: Fields, names: Collection[str]) -> None:
        """Choose the form by the `names` of the first record's fields; FormError where they make none."""
        self.kind = data.kind
        self.roles = ROLES | (data.roles if isinstance(data, ChatData) else {})
        self.names = {key: given or key for key, given in fields.model_dump().items()}
        if fields.messages is None:
            self.names["messages"] = next((name for name in _MESSAGES if name in names), "messages")
        if self.names["choices"] in names:
            if fields.label is None:
                self.names["label"] = next((name for name in _LABELS if name in names), "label")
            if fields.prompt is None and "prompt" not in names and "question" in names:
                self.names["prompt"] = "question"
        given = set(fields.model_fields_set)
        if self.names["choices"] not in names:
            given.discard("label")  # it names no form by itself
        mapped = [form for form in KINDS[self.kind] if given & set(FORMS[form])]
        there = [form for form in KINDS[self.kind] if self._has(form, names)]
        if not mapped and not there:
            raise self._no_form(names)
        if "choices" in given and "choices" in mapped:
            mapped = ["choices"]
        self.form = ([form for form in mapped if form in there] or mapped or there)[0]
        self.needs = [self.names[key] for key in FORMS[self.form]]
        self.columns = {*self.needs, *(self.names[key] for key in _BESIDE[self.form])}

    def example(self, record: Mapping[str, Any], source: Origin) -> Example:
        """Return the example of a record; FormError where it makes none."""
        for name in self.needs:
            if record.get(name) is None:
                raise self._missing(name, record)
        match self.form:
            case "text":
                return Example(source=source, text=self._text(record, "text"))
            case "messages":
                return self._conversation(record, source)
            case "prompt":
                prompt, completion = self._turn(record, "prompt", "user"), self._turn(record, "completion", "assistant")
            case "choices":
                return self._choice(record, source)
            case _:
                prompt, completion = self._instruction(record), self._text(record, "output")
        return self._pair(prompt, completion, record, source)

    def _has(self, form: str, names: Collection[str]) -> bool:
        return all(self.names[key] in names for key in FORMS[form])

    def _conversation(self, record: Mapping[str, Any], source: Origin) -> Example:
        messages = self._messages(record, "messages")
        if not any(message["role"] == "assistant" and _says(message) for message in messages):
            raise FormError(
                "has no answer of the assistant; leave it out, or map the roles: `roles: {NAME: assistant}`"
            )
        return Example(source=source, messages=self._with_system(messages, record), tools=self._tools(record))

    def _pair(
        self, prompt: str | list[Message], completion: str | list[Message], record: Mapping[str, Any], source: Origin
    ) -> Example:
        if not any(map(_says, completion)) if isinstance(completion, list) else not completion.strip():
            raise FormError(f"has an empty answer in '{self.needs[1]}'; leave it out")
        if self.kind == "chat":
            asked = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
            answer = completion if isinstance(completion, list) else [{"role": "assistant", "content": completion}]
            asked = self._with_system(asked, record)
            return Example(source=source, prompt=asked, completion=answer, tools=self._tools(record))
        if isinstance(prompt, list) or isinstance(completion, list):
            raise FormError("has a list of messages, which need a chat template; use kind: chat")
        system = self._text(record, "system", optional=True)
        return Example(source=source, prompt=f"{system}\n\n{prompt}" if system else prompt, completion=completion)

    def _choice(self, record: Mapping[str, Any], source: Origin) -> Example:
        """Return a prompt with its right choice as the completion, and all choices beside it."""
        prompt = self._turn(record, "prompt", "user")
        choices = choices_of(_parsed(record[self.names["choices"]]))
        if isinstance(choices, str):
            raise FormError(f"has {_kind(record[self.names['choices']])} in '{self.names['choices']}', which {choices}")
        right = right_of(record[self.names["label"]], choices)
        if isinstance(right, str):
            raise FormError(f"has a label in '{self.names['label']}' that {right}; correct it, or map another field")
        texts = choices.texts
        if isinstance(prompt, str) and self.kind != "chat" and not prompt[-1:].isspace():
            texts = [text if text[0].isspace() else f" {text}" for text in texts]
        return msgspec.structs.replace(self._pair(prompt, texts[right], record, source), choices=texts, right=right)

    def _turn(self, record: Mapping[str, Any], key: str, role: str) -> str | list[Message]:
        """Return the prompt or completion of a record: as text, or as messages."""
        if isinstance(record[self.names[key]], str):
            return self._text(record, key)
        messages = self._messages(record, key)
        if key == "completion" and (other := next((m["role"] for m in messages if m["role"] == "user"), "")):
            raise FormError(
                f"has a message of the {other} in '{self.names[key]}', where only answers belong; correct it"
            )
        return messages

    def _instruction(self, record: Mapping[str, Any]) -> str:
        instruction, about = self._text(record, "instruction"), self._text(record, "input", optional=True)
        if self.kind == "chat":
            return f"{instruction}\n\n{about}" if about else instruction
        more = ", paired with an input that provides further context" if about else ""
        return ALPACA.format(more=more, instruction=instruction, input=f"### Input:\n{about}\n\n" if about else "")

    def _text(self, record: Mapping[str, Any], key: str, optional: bool = False) -> str:
        value = record.get(self.names[key])
        if value is None and optional:
            return ""
        if not isinstance(value, str):
            raise FormError(f"has {_kind(value)} in '{self.names[key]}', which must be text; map another field")
        return value

    def _messages(self, record: Mapping[str, Any], key: str) -> list[Message]:
        """Return messages with `role` and `content`, whatever their keys and roles are called in the file."""
        name = self.names[key]
        found = _parsed(record[name])
        if isinstance(found, dict) and found and all(isinstance(value, list) for value in found.values()):
            found = [dict(zip(found, values, strict=False)) for values in zip(*found.values(), strict=False)]
        if not isinstance(found, list) or not all(isinstance(message, dict) for message in found):
            raise FormError(f"has {_kind(found)} in '{name}', which must be a list of messages with role and content")
        if not found:
            raise FormError(f"has no message in '{name}'; leave it out")
        return [self._message(message, name, number) for number, message in enumerate(found, 1)]

    def _message(self, message: Mapping[str, Any], name: str, number: int) -> Message:
        role_key = self.names["role"] if self.names["role"] in message else "from"
        key = self.names["content"] if self.names["content"] in message else "value"
        content, given = message.get(key), message.get(role_key)
        if len(message) == 2 and type(content) is str and type(given) is str and given in self.roles:
            return {"role": self.roles[given], "content": content}
        where = f"message {number} of '{name}'"
        if role_key not in message:
            there = _listed(message)
            raise FormError(f"has no role in {where} (there are: {there}); map it: `fields: {{role: NAME}}`")
        role = self.roles.get(given) or self.roles.get(given.lower()) if isinstance(given, str) else None
        if role is None:
            shown = f"'{printable(given, 40)}'" if isinstance(given, str) else _kind(given)
            raise FormError(
                f"has the role {shown} in {where}; map it: `roles: {{NAME: assistant}}` (or user, system, tool)"
            )
        others = {
            other: _without_nulls(value)
            for other, value in message.items()
            if other not in (role_key, key) and value is not None
        }
        content = _words(content)
        if content is None:
            if role != "assistant" or not others.get("tool_calls"):
                if key not in message:
                    there = _listed(message)
                    raise FormError(
                        f"has no content in {where} (there are: {there}); map it: `fields: {{content: NAME}}`"
                    )
                raise FormError(
                    f"has {_kind(message[key])} as the content of {where}, which must be text; leave it out"
                )
            content = ""
        return {"role": role, "content": content, **others}

    def _with_system(self, messages: list[Message], record: Mapping[str, Any]) -> list[Message]:
        system = self._text(record, "system", optional=True)
        if not system or messages[0]["role"] == "system":
            return messages
        return [{"role": "system", "content": system}, *messages]

    def _tools(self, record: Mapping[str, Any]) -> list[Any] | None:
        found = _parsed(record.get(self.names["tools"]))
        if found is None or found == "" or found == []:
            return None
        if not isinstance(found, list):
            raise FormError(f"has {_kind(found)} in '{self.names['tools']}', which must be a list of tools")
        return [_without_nulls(tool) for tool in found]

    def _missing(self, name: str, record: Mapping[str, Any]) -> FormError:
        if name in record:
            return FormError(f"has null in '{name}'; leave it out, or map another field")
        there = f"has no field '{name}' (there are: {_listed(record)})"
        other = next((form for form in KINDS[self.kind] if form != self.form and self._has(form, record)), "")
        if other:
            first = f"the first record of the file has the form {' with '.join(self.needs)}"
            return FormError(f"{there}, but {first}; give a file to each form")
        close = nearest(name, list(record))
        hint = f"; did you mean '{close}'?" if close else ""
        return FormError(f"{there}{hint}; map it: `fields: {{{self._key(name)}: NAME}}`")

    def _key(self, name: str) -> str:
        return next(key for key in FORMS[self.form] if self.names[key] == name)

    def _no_form(self, names: Collection[str]) -> FormError:
        there = f"(there are: {_listed(names)})"
        kind = next((kind for kind, forms in KINDS.items() if any(self._has(form, names) for form in forms)), "")
        if "chosen" in names and "rejected" in names:
            return FormError(
                f"has preferences {there}, which are not trained on as such; "
                "train on what was chosen: `fields: {completion: chosen}`, or {messages: chosen} where it has messages"
            )
        if kind:
            return FormError(
                f"has no fields for kind: {self.kind} {there}; use kind: {kind}, or map them with `fields`"
            )
        if self.kind == "text":
            return FormError(f"has no field 'text' {there}; map it: `fields: {{text: NAME}}`")
        for form in KINDS[self.kind]:
            lacking = [key for key in FORMS[form] if self.names[key] not in names]
            if len(lacking) < len(FORMS[form]):
                keys = ", ".join(f"{key}: NAME" for key in lacking)
                return FormError(f"has no field '{self.names[lacking[0]]}' {there}; map it: `fields: {{{keys}}}`")
        wanted = "prompt with completion, instruction with output, or prompt with choices and label"
        wanted = f"messages, conversations, {wanted}" if self.kind == "chat" else wanted
        key = "messages: NAME" if self.kind == "chat" else "prompt: NAME, completion: NAME"
        return FormError(f"has none of the fields {wanted} {there}; map them: `fields: {{{key}}}`")


def _listed(names: Collection[str]) -> str:
    shown = [printable(str(name), 40) for name in list(names)[:_MOST_NAMES]]
    return f"{', '.join(shown)}{', ...' if len(names) > _MOST_NAMES else ''}" or "none"


def _kind(value: object) -> str:
    """Return a short description of a value of the wrong type."""
    match value:
        case None:
            return "null"
        case str():
            return f"the text '{printable(value, 40)}'"
        case list():
            return f"a list of {len(value)}"
        case dict():
            return f"a record of {_listed(value)}"
        case _:
            return f"{printable(str(value), 40)} ({type(value).__name__})"


def _says(message: Message) -> bool:
    return bool(str(message["content"]).strip() or message.get("tool_calls"))


def _parsed(value: Any) -> Any:
    """Return a list that a table keeps as JSON in a text, decoded; anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        try:
            return msgspec.json.decode(value)
        except MALFORMED:
            return value
    return value


def _words(content: object) -> str | None:
    """Return the content of a message as text, also where it is a list of parts; None where it is something else."""
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        texts = [part for part in parts if isinstance(part, str)]
        return "".join(texts) if texts and len(texts) == len(parts) else None
    return content if isinstance(content, str) else None


def _without_nulls(value: Any) -> Any:
    """Drop keys without a value: a table has all keys of a column in each row."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value
