"""Examples as token ids: as transformers renders them, with what ends an answer learnt."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.chats import CHATML, TOKENIZERS, chat_tokenizer, conversation, unmarked

from barnraise.core.errors import DataError
from barnraise.data import chats, tokenizers
from barnraise.data.chat_template import ChatTemplate
from barnraise.data.examples import Example, Origin
from barnraise.data.rendering import ExampleError, Renderer

HELLO = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "well met"}]
PLAIN = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"


def example(**fields: Any) -> Example:
    return Example(source=Origin("chats.jsonl", 3), **fields)


def renderer(folder: Path, train_on: Any = "assistant", template: str | None = None) -> Renderer:
    coder = tokenizers.load(folder)
    found = ChatTemplate(template, {}) if template else chats.template_of(coder, "it")
    return Renderer(coder, found, train_on)


def learnt(found: Renderer, one: Example) -> tuple[str, str]:
    """Return the whole and the learnt tokens as text, special tokens included."""
    ((ids, trained),) = found.encoded([one])
    backend: Any = found.tokenizer
    decode = backend._backend.decode
    return decode(ids.tolist(), skip_special_tokens=False), decode(ids[trained].tolist(), skip_special_tokens=False)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_rows_are_what_transformers_makes_of_conversations(name: str, tmp_path: Path) -> None:
    known = chat_tokenizer(name, tmp_path)
    chance = random.Random(name)
    given = [conversation(chance) for _ in range(1000)]
    found = list(renderer(tmp_path).encoded(example(messages=turns) for turns in given))
    wanted = known.apply_chat_template(given, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    assert len(found) == 1000
    for number, (ids, trained) in enumerate(found):
        assert ids.tolist() == wanted["input_ids"][number], given[number]
        assert trained.tolist() == wanted["assistant_masks"][number], given[number]
        assert trained.any()


@pytest.mark.parametrize("name", TOKENIZERS)
def test_without_marks_the_answers_are_the_same(name: str, tmp_path: Path) -> None:
    chat_tokenizer(name, tmp_path / "marked")
    chat_tokenizer(name, tmp_path / "plain", unmarked(TOKENIZERS[name][1]))
    chance = random.Random(name)
    given = [example(messages=conversation(chance)) for _ in range(50)]
    for train_on in ("assistant", "all"):
        marked, plain = (list(renderer(tmp_path / to, train_on).encoded(given)) for to in ("marked", "plain"))
        for (ids, trained), (others, also) in zip(marked, plain, strict=True):
            assert ids.tolist() == others.tolist()
            assert trained.tolist() == also.tolist()


def test_completion_learns_the_last_answer_alone(tmp_path: Path) -> None:
    chat_tokenizer("byte-level", tmp_path)
    again = [*HELLO, {"role": "user", "content": "and now"}, {"role": "assistant", "content": "goodbye"}]
    assert learnt(renderer(tmp_path, "assistant"), example(messages=again))[1] == "well met<|im_end|>goodbye<|im_end|>"
    for template in (CHATML, unmarked(CHATML)):
        last = renderer(tmp_path, "completion", template)
        assert learnt(last, example(messages=again))[1] == "goodbye<|im_end|>"
        assert learnt(last, example(prompt=again[:3], completion=again[3:]))[1] == "goodbye<|im_end|>"
        assert learnt(last, example(prompt="hello", completion="well met"))[1] == "well met<|im_end|>"


def test_an_end_of_turn_outside_of_the_marks_is_learnt(tmp_path: Path) -> None:
    chat_tokenizer("byte-level", tmp_path)
    outside = CHATML.replace(
        "+ '<|im_end|>' }}{% endgeneration %}{{ '\n' }}", "}}{% endgeneration %}{{ '<|im_end|>\n' }}"
    )
    assert outside != CHATML
    assert learnt(renderer(tmp_path, template=outside), example(messages=HELLO))[1] == "well met<|im_end|>"


@pytest.mark.parametrize("last", ["🙂", "你好", "é"])
def test_an_answer_whose_last_character_has_several_tokens_is_learnt_to_its_end(last: str, tmp_path: Path) -> None:
    chat_tokenizer("byte-level", tmp_path)
    outside = CHATML.replace(
        "+ '<|im_end|>' }}{% endgeneration %}{{ '\n' }}", "}}{% endgeneration %}{{ '<|im_end|>\n' }}"
    )
    talk = [HELLO[0], {"role": "assistant", "content": f"ok {last}"}]
    assert learnt(renderer(tmp_path, template=outside), example(messages=talk))[1] == f"ok {last}<|im_end|>"
    plain = Renderer(tokenizers.load(tmp_path), None, "completion")
    assert learnt(plain, example(prompt="hello", completion=f" ok {last}"))[1] == f" ok {last}</s>"


def test_an_answer_that_nothing_ends_gets_an_end_of_text(tmp_path: Path) -> None:
    chat_tokenizer("byte-level", tmp_path)
    text, answer = learnt(renderer(tmp_path, "completion", PLAIN), example(messages=HELLO))
    assert text == "user: hello\nassistant: well met\n</s>"
    assert answer.endswith("well met\n</s>")


def test_prompts_as_plain_text_have_no_special_tokens_of_their_own(tmp_path: Path) -> None:
    chat_tokenizer("byte-level", tmp_path)
    coder = tokenizers.load(tmp_path)
    found = Renderer(coder, None, "completion")
    one = example(prompt="Say </s>:", completion=" never")
    assert learnt(found, one) == ("<s>Say </s>: never</s>", " never</s>")
    ((ids, _),) = found.encoded([one])
    assert np.count_nonzero(ids == coder.eos_id) == 1
    assert learnt(Renderer(coder, None, "all"), one)[1] == "Say </s>: never</s>"


def test_bytes_take_a_template_too() -> None:
    found = Renderer(tokenizers.load("bytes"), ChatTemplate(CHATML, {}), "assistant")
    ((ids, trained),) = found.encoded([example(messages=[HELLO[0], {"role": "assistant", "content": "où"}])])
    assert bytes(ids[trained][:-1].tolist()).decode() == "où<|im_end|>"
    assert ids[trained][-1] == found.tokenizer.eos_id


@pytest.mark.parametrize(
    ("train_on", "template", "fields", "message"),
    [
        ("assistant", CHATML, {"messages": HELLO[:1]}, r"no message of the role 'assistant' \(roles: user\)"),
        ("completion", CHATML, {"messages": [*HELLO, HELLO[0]]}, "last message is of the role 'user'"),
        ("assistant", CHATML, {"messages": []}, "no messages"),
        ("assistant", CHATML, {"text": "prose"}, "set data.kind to text"),
        ("assistant", "{{ raise_exception('roles must alternate') }}", {"messages": HELLO}, "roles must alternate"),
        ("assistant", "{{ messages[7].content.x.y }}", {"messages": HELLO}, "the chat template refuses it"),
        ("assistant", "{{ ''.__class__.__mro__ }}", {"messages": HELLO}, "the chat template refuses it: .*unsafe"),
        ("assistant", "{{ messages | length }}", {"messages": HELLO}, "has no {% generation %} marks"),
        ("completion", "{{ messages | length }}", {"messages": HELLO}, "writes the prompt otherwise"),
        ("assistant", "{% generation %}{% endgeneration %}x", {"messages": HELLO}, "no answer to learn"),
    ],
)
def test_an_example_without_an_answer_is_refused(
    tmp_path: Path, train_on: str, template: str, fields: dict[str, Any], message: str
) -> None:
    chat_tokenizer("byte-level", tmp_path)
    with pytest.raises(ExampleError, match=rf"^chats\.jsonl:3: .*{message}"):
        list(renderer(tmp_path, train_on, template).encoded([example(**fields)]))


def test_a_tokenizer_without_a_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the tokenizer bytes has no chat template; name a file with one"):
        chats.template_of(tokenizers.load("bytes"), "bytes")
    with pytest.raises(DataError, match=r"no chat template at .*none"):
        chats.template_of(tokenizers.load("bytes"), "bytes", tmp_path / "none")
    (tmp_path / "bad").write_text("{% if %}")
    with pytest.raises(DataError, match="the chat template is no Jinja template: Expected an expression"):
        chats.template_of(tokenizers.load("bytes"), "bytes", tmp_path / "bad")
