"""Records of multiple choice in the shapes that data sets have."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.data.test_forms import fault

from barnraise.config.data_sections import Fields, InstructData
from barnraise.data.examples import Example, Origin
from barnraise.data.forms import FormReader


def example(record: dict[str, Any], **fields: str) -> Example:
    data = InstructData(kind="instruct", files=["a"])
    return FormReader(data, Fields(**fields), record).example(record, Origin("a.jsonl", 1))


@pytest.mark.parametrize(
    ("record", "fields", "right"),
    [
        ({"question": "Why?", "choices": ["no", "so"], "answer": 1}, {}, 1),
        ({"prompt": "Why?", "choices": ["no", "so"], "label": "B"}, {}, 1),
        ({"question": "Why?", "choices": {"text": ["no", "so"], "label": ["1", "2"]}, "answerKey": "2"}, {}, 1),
        ({"ctx": "Why?", "endings": ["no", "so"], "label": "1"}, {"prompt": "ctx", "choices": "endings"}, 1),
        ({"q": "Why?", "c": '["no", "so"]', "l": "no"}, {"prompt": "q", "choices": "c", "label": "l"}, 0),
        ({"prompt": "Why?", "completion": "x", "c": ["no", "so"], "label": 1.0}, {"choices": "c"}, 1),
    ],
)
def test_shapes_of_known_data_sets_are_read(record: dict[str, Any], fields: dict[str, str], right: int) -> None:
    found = example(record, **fields)
    assert (found.prompt, found.choices, found.right) == ("Why?", [" no", " so"], right)
    assert found.completion == [" no", " so"][right]


def test_white_space_between_prompt_and_choice_is_not_doubled() -> None:
    found = example({"prompt": "Why?\n", "choices": ["no", "so"], "label": 0})
    assert found.completion == "no"


def test_a_record_with_a_completion_is_read_as_before() -> None:
    found = example({"prompt": "Why?", "completion": "So.", "choices": ["no", "so"], "label": 0})
    assert (found.completion, found.choices) == ("So.", None)


def test_examples_differ_by_their_choices() -> None:
    two = [example({"prompt": "Why?", "choices": ["so", other], "label": 0}) for other in ("no", "yes")]
    assert two[0].content() != two[1].content()
    plain = Example(source=Origin("a", 1), prompt="Why?", completion=" so")
    assert plain.content() not in {one.content() for one in two}


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"choices": ["no", "so"], "label": 2}, "has a label in 'label' that is 2, which names none of its 2 choices"),
        ({"choices": ["no", "so"], "label": -1}, "that is -1, which names none"),
        ({"choices": ["no", "so"], "label": True}, "that is True, which names none"),
        ({"choices": ["no", "so"], "label": "\x1b[2J" * 50}, "which names none"),
        ({"choices": ["no"], "label": 0}, "has 1 choices, but must have 2 to 64"),
        ({"choices": ["no", 5], "label": 0}, "must be a list of texts"),
        ({"choices": ["no", " "], "label": 0}, "must be a list of texts"),
        ({"choices": "no", "label": 0}, "has the text 'no' in 'choices', which must be a list of texts"),
        ({"choices": {"text": ["no", "so"], "label": ["A"]}, "label": 0}, "has 2 texts, but not a label for each"),
        ({"choices": ["no", "so"], "label": None}, "has null in 'label'"),
    ],
)
def test_a_bad_choice_says_why(record: dict[str, Any], words: str) -> None:
    told = fault({"prompt": "Why?", **record}, "instruct")
    assert words in told
    assert told.isprintable()
