"""An Ollama Modelfile for a GGUF file, with the chat template as Ollama writes one; torch-free.

Ollama's templates are Go's. A Jinja template is not translated: it is rendered for a few conversations, and the texts
around their contents are read off. The result is used only where it renders other conversations alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

Message = dict[str, str]
Render = Callable[[list[Message], bool], str]
"""Returns a conversation as the chat template writes it; `True` adds the beginning of an answer."""

MODELFILE = "Modelfile"
_NO_TEXT = re.compile(r'\{{2,}|\{(?="""|\Z)|"""')
"""Texts that would begin an action or end the Modelfile's template; one `{` does where an action follows."""
_SYSTEM, _USER, _ANSWER, _NEXT = "Sy5t3m", "Us3r1", "An5w3r", "Us3r2"


@dataclass(frozen=True)
class Turns:
    """The texts that a chat template puts around contents.

    `head` begins a conversation without a system message, `system` surrounds one; `user` and `assistant` surround the
    contents of a turn, `opening` begins an answer.
    """

    head: str
    system: tuple[str, str] | None
    user: tuple[str, str]
    assistant: tuple[str, str]
    opening: str

    def render(self, messages: Sequence[Message]) -> str:
        """Return a conversation that is to be answered."""
        text = self.head
        for message in messages:
            if message["role"] == "system" and self.system is not None:
                text = self.system[0] + message["content"] + self.system[1]
            else:
                before, after = self.user if message["role"] == "user" else self.assistant
                text += before + message["content"] + after
        return text + self.opening

    def parse(self, text: str) -> list[Message] | None:
        """Return the messages of a conversation that waits for its first answer; None where `text` is none."""
        rest, messages = text.removesuffix(self.opening), list[Message]()
        if self.system is not None and rest.startswith(self.system[0]):
            content, found, rest = rest.removeprefix(self.system[0]).partition(self.system[1] + self.user[0])
            messages, rest = [_message("system", content)], found.removeprefix(self.system[1]) + rest
        else:
            rest = rest.removeprefix(self.head)
        messages.append(_message("user", rest.removeprefix(self.user[0]).removesuffix(self.user[1])))
        return messages if self.render(messages) == text else None

    def without(self, beginning: str) -> Turns:
        """Return the same where the program that reads it adds `beginning` by itself."""
        system = self.system and (self.system[0].removeprefix(beginning), self.system[1])
        return Turns(self.head.removeprefix(beginning), system, self.user, self.assistant, self.opening)


def turns_of(render: Render) -> Turns | None:
    """Return the turns of a chat template; None where it has other rules than texts around contents."""
    user, answer, following = _message("user", _USER), _message("assistant", _ANSWER), _message("user", _NEXT)
    try:
        first, second, third = (render([user, answer, following][:count], False) for count in (1, 2, 3))
        opening = render([user], True).removeprefix(first)
        before, after = _around(third.removeprefix(second), _NEXT)
        head = _around(first, _USER)[0].removesuffix(before)
        found = Turns(
            head, _system(render, before), (before, after), _around(second.removeprefix(first), _ANSWER), opening
        )
        return found if all(found.render(each) == render(each, True) for each in _trials(found)) else None
    except Exception:  # templates raise exceptions of any type, some for the order of roles
        return None


def modelfile(file: str, turns: Turns | None, *, chat: bool, stops: Sequence[str], context: int | None) -> str:
    """Return the text of a Modelfile for the GGUF `file` beside it."""
    lines = [f"# ollama create NAME -f {MODELFILE}", f"FROM ./{file}"]
    if turns is not None:
        lines.append(f'TEMPLATE """{_go(turns)}"""')
    elif chat:
        lines.append(
            "# The chat template has rules that are not written here; Ollama looks for one that it knows in the file."
        )
    else:
        lines.append('TEMPLATE """{{ .Prompt }}"""')
    lines += [f'PARAMETER stop "{_quoted(stop)}"' for stop in stops]
    if context is not None:
        lines.append(f"PARAMETER num_ctx {context}")
    return "\n".join(lines) + "\n"


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _around(text: str, content: str) -> tuple[str, str]:
    """Return the texts before and behind `content`, which must be there once."""
    before, after = text.split(content)
    return before, after


def _system(render: Render, before_user: str) -> tuple[str, str] | None:
    try:
        text = render([_message("system", _SYSTEM), _message("user", _USER)], False)
        before, rest = _around(text, _SYSTEM)
        return before, _around(rest, _USER)[0].removesuffix(before_user)
    except Exception:  # a template may refuse system messages
        return None


def _trials(turns: Turns) -> Iterator[list[Message]]:
    """Yield conversations to compare renderings of."""
    talk = [_message("user", "Hello there."), _message("assistant", "Good day!"), _message("user", "Is it 7 or 8?")]
    yield talk[:1]
    yield talk
    yield [*talk, _message("assistant", "8"), _message("user", "Thanks")]
    if turns.system is not None:
        yield [_message("system", "Be brief."), *talk]


def _go(turns: Turns) -> str:
    """Return the template in Go's language, on one line but for its own line ends: Go keeps those."""
    head = _literal(turns.head)
    if turns.system is not None:
        before, after = map(_literal, turns.system)
        head = f"{{{{ if .System }}}}{before}{{{{ .System }}}}{after}{{{{ else }}}}{head}{{{{ end }}}}"
    user, answer = ("{{ .Content }}".join(map(_literal, pair)) for pair in (turns.user, turns.assistant))
    turn = f'{{{{ if eq .Role "user" }}}}{user}{{{{ else if eq .Role "assistant" }}}}{answer}{{{{ end }}}}'
    return f"{head}{{{{ range .Messages }}}}{turn}{{{{ end }}}}{_literal(turns.opening)}"


def _literal(text: str) -> str:
    """Return a text as a Go template has it between two actions.

    Go ends an action at the first `}}`, so that a `}` behind it is text.
    """
    return _NO_TEXT.sub(lambda found: f'{{{{ "{_quoted(found[0])}" }}}}', text)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
