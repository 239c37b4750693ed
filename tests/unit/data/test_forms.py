"""Records become examples by their usual fields, by mapped ones, or are refused with a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from barnraise.config.data_sections import ChatData, Fields, FileData, InstructData, TextData
from barnraise.data.examples import Example, Origin
from barnraise.data.forms import FormError, FormReader

HERE = Origin("a.jsonl", 1)
ASKED = {"role": "user", "content": "2 + 2?"}
ANSWER = {"role": "assistant", "content": "4"}
SYSTEM = {"role": "system", "content": "Be brief."}


def section(kind: str, **keys: Any) -> FileData:
    kinds = {"text": TextData, "chat": ChatData, "instruct": InstructData}
    return kinds[kind].model_validate({"kind": kind, "files": ["a"], **keys})


def example(record: dict[str, Any], kind: str = "chat", **keys: Any) -> Example:
    data = section(kind, **keys)
    return FormReader(data, data.fields, record).example(record, HERE)


def fault(record: dict[str, Any], kind: str = "chat", **keys: Any) -> str:
    with pytest.raises(FormError) as caught:
        example(record, kind, **keys)
    return str(caught.value)


SHAREGPT = [
    {"from": "system", "value": "Be brief."},
    {"from": "human", "value": "2 + 2?"},
    {"from": "gpt", "value": "4"},
]


@pytest.mark.parametrize(
    ("record", "keys"),
    [
        ({"messages": [SYSTEM, ASKED, ANSWER]}, {}),
        ({"conversations": SHAREGPT}, {}),
        ({"conversations": SHAREGPT[1:], "system": "Be brief."}, {}),
        ({"conversations": SHAREGPT, "system": "Be long."}, {}),
        (
            {
                "messages": '[{"role":"system","content":"Be brief."},{"from":"User","value":"2 + 2?"},'
                '{"from":"bot","value":"4"}]'
            },
            {},
        ),
        ({"messages": {"role": ["system", "user", "assistant"], "content": ["Be brief.", "2 + 2?", "4"]}}, {}),
        (
            {
                "messages": [
                    SYSTEM,
                    ASKED | {"content": [{"type": "text", "text": "2 +"}, {"type": "text", "text": " 2?"}]},
                    ANSWER,
                ]
            },
            {},
        ),
        ({"messages": [SYSTEM, ASKED | {"tool_calls": None, "name": None}, ANSWER]}, {}),
        ({"chat": [SYSTEM, ASKED, ANSWER], "messages": 3}, {"fields": {"messages": "chat"}}),
        (
            {
                "messages": [
                    {"who": "Boss", "says": "Be brief."},
                    {"who": "Ann", "says": "2 + 2?"},
                    {"who": "HAL", "says": "4"},
                ]
            },
            {
                "fields": {"role": "who", "content": "says"},
                "roles": {"Boss": "system", "Ann": "user", "HAL": "assistant"},
            },
        ),
    ],
)
def test_conversations_of_all_forms_are_equal(record: dict[str, Any], keys: dict[str, Any]) -> None:
    assert example(record, **keys) == Example(source=HERE, messages=[SYSTEM, ASKED, ANSWER])


@pytest.mark.parametrize(
    "record",
    [
        {"prompt": "2 + 2?", "completion": "4"},
        {"prompt": [ASKED], "completion": [ANSWER]},
        {"prompt": [ASKED], "completion": "4", "prompt_id": 7},
        {"instruction": "2 + 2?", "input": "", "output": "4"},
        {"instruction": "2 + 2?", "output": "4", "text": "..."},
    ],
)
def test_a_prompt_with_its_completion_is_a_chat(record: dict[str, Any]) -> None:
    assert example(record) == Example(source=HERE, prompt=[ASKED], completion=[ANSWER])
    found = example(record | {"system": "Be brief."})
    assert found == Example(source=HERE, prompt=[SYSTEM, ASKED], completion=[ANSWER])


def test_messages_come_before_other_forms_and_mapped_fields_before_all() -> None:
    record = {"text": "x", "prompt": "p", "completion": "c", "messages": [ASKED, ANSWER], "answer": "a"}
    assert example(record).messages == [ASKED, ANSWER]
    assert example(record, fields={"completion": "answer"}).completion == [{"role": "assistant", "content": "a"}]
    assert example(record, kind="text").text == "x"
    assert example(record, kind="text", fields={"text": "answer"}).text == "a"


def test_a_mapped_label_changes_no_form_without_choices() -> None:
    record = {"prompt": "p", "completion": "c", "y": "A"}
    assert example(record, fields={"label": "y"}).completion == [{"role": "assistant", "content": "c"}]


def test_further_keys_of_messages_and_tools_are_kept_without_nulls() -> None:
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"name": "clock", "arguments": {"zone": "UTC", "x": None}}],
    }
    tools = [{"name": "clock", "parameters": {"zone": {"type": "string", "enum": None}}}]
    found = example(
        {"messages": [ASKED, call, {"role": "observation", "content": "12:00", "name": "clock"}], "tools": tools}
    )
    assert found.messages is not None
    assert found.messages[1] == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"name": "clock", "arguments": {"zone": "UTC"}}],
    }
    assert found.messages[2] == {"role": "tool", "content": "12:00", "name": "clock"}
    assert found.tools == [{"name": "clock", "parameters": {"zone": {"type": "string"}}}]
    assert example({"messages": [ASKED, ANSWER], "tools": '[{"name": "clock"}]'}).tools == [{"name": "clock"}]
    assert example({"messages": [ASKED, ANSWER], "tools": "[]"}).tools is None


def test_an_instruction_has_the_usual_words_without_a_template() -> None:
    found = example({"instruction": "Add {them}.", "input": "2, 2", "output": "4"}, kind="instruct")
    assert found.completion == "4"
    assert isinstance(found.prompt, str)
    assert found.prompt.startswith("Below is an instruction that describes a task, paired with an input that provides ")
    assert found.prompt.endswith("\n\n### Instruction:\nAdd {them}.\n\n### Input:\n2, 2\n\n### Response:\n")
    short = example({"instruction": "Add.", "input": None, "output": "4"}, kind="instruct").prompt
    assert isinstance(short, str)
    assert "input" not in short
    assert short.endswith("\n\n### Instruction:\nAdd.\n\n### Response:\n")


def test_an_instruct_pair_stays_as_it_is() -> None:
    assert example({"prompt": "a", "completion": " b"}, kind="instruct") == Example(
        source=HERE, prompt="a", completion=" b"
    )
    assert example({"prompt": "a", "completion": "b", "system": "s"}, kind="instruct").prompt == "s\n\na"


@pytest.mark.parametrize(
    ("kind", "record", "said"),
    [
        ("text", {"body": "x", "id": 1}, "has no field 'text' (there are: body, id); map it: `fields: {text: NAME}`"),
        ("text", {"messages": []}, "has no fields for kind: text (there are: messages); use kind: chat, or map them"),
        ("text", {"text": 5}, "has 5 (int) in 'text', which must be text; map another field"),
        ("chat", {"text": "x"}, "has no fields for kind: chat (there are: text); use kind: text, or map them"),
        (
            "chat",
            {"q": "x"},
            "has none of the fields messages, conversations, prompt with completion, instruction with output, or",
        ),
        ("chat", {}, "(there are: none)"),
        (
            "chat",
            {"instruction": "a", "answer": "b"},
            "has no field 'output' (there are: instruction, answer); map it: `f",
        ),
        ("instruct", {"question": "a", "completion": "b"}, "map it: `fields: {prompt: NAME}`"),
        (
            "chat",
            {"prompt": "a", "chosen": "b", "rejected": "c"},
            "has preferences (there are: prompt, chosen, rejected)",
        ),
        ("chat", {"messages": []}, "has no message in 'messages'; leave it out"),
        ("chat", {"messages": None}, "has null in 'messages'; leave it out, or map another field"),
        ("chat", {"messages": "hello"}, "has the text 'hello' in 'messages', which must be a list of messages"),
        ("chat", {"messages": ["hello"]}, "has a list of 1 in 'messages', which must be a list of messages"),
        ("chat", {"messages": [ASKED]}, "has no answer of the assistant; leave it out"),
        ("chat", {"messages": [ASKED, ANSWER | {"content": " "}]}, "has no answer of the assistant; leave it out"),
        (
            "chat",
            {"messages": [ASKED, {"role": "wizard", "content": "4"}]},
            "has the role 'wizard' in message 2 of 'messages'; map it: `roles: {NAME: assistant}`",
        ),
        ("chat", {"messages": [ASKED, {"role": 3, "content": "4"}]}, "has the role 3 (int) in message 2"),
        (
            "chat",
            {"messages": [ASKED, {"who": "x", "content": "4"}]},
            "has no role in message 2 of 'messages' (there are: who, content); map it: `fields: {role: NAME}`",
        ),
        (
            "chat",
            {"messages": [ASKED, {"role": "user", "says": "4"}]},
            "has no content in message 2 of 'messages' (there are: role, says); map it: `fields: {content: NAME}`",
        ),
        (
            "chat",
            {"messages": [ASKED | {"content": None}, ANSWER]},
            "has null as the content of message 1 of 'messages'",
        ),
        (
            "chat",
            {"messages": [ASKED | {"content": [{"type": "image"}]}, ANSWER]},
            "has a list of 1 as the content of message 1",
        ),
        ("chat", {"prompt": "a", "completion": " "}, "has an empty answer in 'completion'; leave it out"),
        (
            "chat",
            {"prompt": [ASKED], "completion": [ASKED]},
            "has a message of the user in 'completion', where only answers",
        ),
        (
            "chat",
            {"messages": [ASKED, ANSWER], "tools": "clock"},
            "has the text 'clock' in 'tools', which must be a list of tools",
        ),
        (
            "instruct",
            {"messages": [ASKED, ANSWER]},
            "has no fields for kind: instruct (there are: messages); use kind: chat",
        ),
        (
            "instruct",
            {"prompt": [ASKED], "completion": [ANSWER]},
            "has a list of messages, which need a chat template; use kind: chat",
        ),
        (
            "instruct",
            {"question": "a"},
            "prompt with choices and label (there are: question); map them: `fields: {prompt: NAME, completion: NAME}`",
        ),
        ("instruct", {"instruction": "a", "output": {"x": 1}}, "has a record of x in 'output', which must be text"),
    ],
)
def test_a_record_that_makes_no_example_says_why(kind: str, record: dict[str, Any], said: str) -> None:
    assert said in fault(record, kind)


def test_a_missing_field_of_a_later_record_names_the_nearest_one() -> None:
    data = section("instruct")
    reader = FormReader(data, Fields(), ["prompt", "completion"])
    with pytest.raises(
        FormError, match=r"has no field 'completion' \(there are: prompt, completon\); did you mean 'compl"
    ):
        reader.example({"prompt": "a", "completon": "b"}, HERE)
    with pytest.raises(
        FormError, match="but the first record of the file has the form prompt with completion; give a file"
    ):
        reader.example({"instruction": "a", "output": "b"}, HERE)
    with pytest.raises(FormError, match=r"map it: `fields: \{completion: NAME\}`"):
        FormReader(data, Fields(completion="answer"), ["prompt"]).example({"prompt": "a", "reply": "b"}, HERE)
