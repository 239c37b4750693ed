"""A Modelfile has the chat template where Ollama can have it."""

from __future__ import annotations

import ast
import re

import jinja2
import pytest

from barnraise.exports.modelfile import Message, Turns, modelfile, turns_of

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QWEN = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n{% endif %}" + CHATML
)  # a system message of its own
LLAMA2 = (
    "{{ bos }}{% for m in messages %}{% if m.role == 'system' %}{{ raise('no') }}{% elif m.role == 'user' %}"
    "[INST] {{ m.content | trim }} [/INST]{% else %} {{ m.content }}</s>{% endif %}{% endfor %}"
)
COUNTING = "{% for m in messages %}{{ loop.index }}. {{ m.role }}: {{ m.content }}\n{% endfor %}"


def turns(template: str) -> Turns | None:
    def refuse(text: str) -> None:
        raise ValueError(text)

    environment = jinja2.Environment(keep_trailing_newline=True)
    compiled = environment.from_string(template)

    def render(messages: list[Message], answer: bool) -> str:
        return compiled.render(messages=messages, add_generation_prompt=answer, bos="<s>", **{"raise": refuse})

    return turns_of(render)


def test_the_turns_of_chatml() -> None:
    found = turns(CHATML)
    assert found is not None
    assert found.user == ("<|im_start|>user\n", "<|im_end|>\n")
    assert found.opening == "<|im_start|>assistant\n"
    text = modelfile("m.gguf", found, chat=True, stops=["<|im_end|>"], context=64)
    assert text.splitlines()[1] == "FROM ./m.gguf"
    assert text.endswith(
        'TEMPLATE """{{ if .System }}<|im_start|>system\n{{ .System }}<|im_end|>\n{{ else }}{{ end }}'
        '{{ range .Messages }}{{ if eq .Role "user" }}<|im_start|>user\n{{ .Content }}<|im_end|>\n'
        '{{ else if eq .Role "assistant" }}<|im_start|>assistant\n{{ .Content }}<|im_end|>\n{{ end }}{{ end }}'
        '<|im_start|>assistant\n"""\nPARAMETER stop "<|im_end|>"\nPARAMETER num_ctx 64\n'
    )


def test_a_template_with_a_system_message_of_its_own() -> None:
    found = turns(QWEN)
    assert found is not None
    assert found.head == "<|im_start|>system\nYou help.<|im_end|>\n"
    assert found.system == ("<|im_start|>system\n", "<|im_end|>\n")


def test_a_beginning_that_the_program_adds_is_left_out() -> None:
    found = turns(LLAMA2)
    assert found is not None
    assert found.system is None, "the template refuses it"
    assert found.head == "<s>"
    assert found.without("<s>").head == ""


@pytest.mark.parametrize("template", [COUNTING, "{{ raise('never') }}", "constant"])
def test_a_template_with_other_rules_is_not_written(template: str) -> None:
    assert turns(template) is None
    text = modelfile("m.gguf", None, chat=True, stops=[], context=None)
    assert "TEMPLATE" not in text
    assert "has rules that are not written here" in text


def test_a_model_of_plain_texts() -> None:
    text = modelfile("m.gguf", None, chat=False, stops=['a"b\\'], context=None)
    assert 'TEMPLATE """{{ .Prompt }}"""\n' in text
    assert 'PARAMETER stop "a\\"b\\\\"\n' in text


ACTION = re.compile(r'\{\{ ((?:"(?:[^"\\]|\\.)*"|[^"{}])*?) \}\}')


def rendered(template: str, role: str) -> str:
    """The turn of `role` as Go renders it: texts stay, strings in actions are written, and a content is CONTENT."""
    written, on = "", False
    for place, piece in enumerate(ACTION.split(template)):
        if place % 2 == 0:
            assert "{{" not in piece, "Go would begin an action there"
            assert not piece.endswith("{"), "Go would begin the action earlier"
            written += piece * on
        elif piece.startswith(("if", "else", "end", "range")):
            on = f'"{role}"' in piece
        else:
            written += ("CONTENT" if piece == ".Content" else ast.literal_eval(piece)) * on
    return written


@pytest.mark.parametrize(
    ("before", "after"),
    [('"user": {', "}"), ("{", "{"), ("{{{", "}}}"), ("a{{b{", "}{"), ("{\n", "{\n"), ('{"', '"}'), ('"""{', '{"""')],
)
def test_a_brace_beside_a_content_is_text_to_go(before: str, after: str) -> None:
    odd = Turns("", None, (before, after), ("{", "}"), "")
    text = modelfile("m.gguf", odd, chat=True, stops=[], context=None)
    template = text.split('TEMPLATE """')[1].removesuffix('"""\n')
    assert rendered(template, "user") == f"{before}CONTENT{after}"
    assert rendered(template, "assistant") == "{CONTENT}"


def test_braces_and_quotes_stay_what_they_are() -> None:
    odd = Turns("{{", None, ('"""', ""), ("a", ""), "")
    assert 'TEMPLATE """{{ "{{" }}{{ range' in modelfile("m.gguf", odd, chat=True, stops=[], context=None)
