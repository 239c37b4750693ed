"""Examples: equal content has an equal hash, wherever it was read."""

from __future__ import annotations

from barnraise.data.examples import Example, Origin

CHAT = [{"role": "user", "content": "Hé?"}, {"role": "assistant", "content": "Ho."}]


def test_an_origin_names_its_line_or_row() -> None:
    assert str(Origin("a.jsonl", 3)) == "a.jsonl:3"
    assert str(Origin("a.parquet", 3, "row")) == "a.parquet, row 3"


def test_equal_content_has_an_equal_hash_wherever_it_was_read() -> None:
    turned = [dict(reversed(message.items())) for message in CHAT]
    one, other = Example(source=Origin("a", 1), messages=CHAT), Example(source=Origin("b", 2), messages=turned)
    assert one.hash() == other.hash() == 17698979912213475916
    assert one.hash(b"1") != one.hash()


def test_other_content_has_another_hash() -> None:
    source = Origin("a", 1)
    found = [
        Example(source=source, text="ab"),
        Example(source=source, prompt="a", completion="b"),
        Example(source=source, prompt="", completion="ab"),
        Example(source=source, messages=CHAT),
        Example(source=source, messages=CHAT, tools=[{"name": "clock"}]),
        Example(source=source, prompt=CHAT[:1], completion=CHAT[1:]),
    ]
    assert len({example.hash() for example in found}) == len(found)
