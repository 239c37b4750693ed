"""Examples are split, mixed and deduplicated by their content, and all that is left out is told."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from barnraise.config.data_sections import ChatData, FileData, InstructData, TextData
from barnraise.core.errors import DataError
from barnraise.data.examples import Example
from barnraise.data.gathering import Examples, gather, peek

KINDS = {"text": TextData, "chat": ChatData, "instruct": InstructData}


def section(*files: str, kind: str = "instruct", **keys: Any) -> FileData:
    return KINDS[kind].model_validate({"kind": kind, "files": list(files), **keys})


def pairs(numbers: Iterable[int], **more: Any) -> list[dict[str, Any]]:
    return [{"prompt": f"{number} + 1?", "completion": str(number + 1), **more} for number in numbers]


def write(path: Path, records: Iterable[Any]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def prompts(examples: Iterable[Example]) -> list[str]:
    return [str(example.prompt) for example in examples]


def sides(found: Examples) -> tuple[list[str], list[str]]:
    return prompts(found.training()), prompts(found.held_out())


def test_a_share_is_held_out_and_nothing_is_lost(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", pairs(range(2000)))
    found = gather(section("a.jsonl", held_out=0.1), 0, tmp_path)
    training, held_out = sides(found)
    assert sorted(training + held_out) == sorted(prompts(peek(section("a.jsonl"), tmp_path)))
    assert 150 < len(held_out) < 250
    assert (found.counts.records, found.counts.held_out, found.counts.training) == (
        2000,
        len(held_out),
        {"files": len(training)},
    )
    assert str(found.counts) == f"2,000 records, {len(training):,} to train on, {len(held_out)} held out"


def test_sides_and_order_depend_on_files_and_seed_alone(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        for name in ("b.jsonl", "a.jsonl") if folder == "one" else ("a.jsonl", "b.jsonl"):
            write(tmp_path / folder / name, pairs(range(200 * ord(name[0]), 200 * ord(name[0]) + 200)))
    one, two = (sides(gather(section("."), 3, tmp_path / folder)) for folder in ("one", "two"))
    assert one == two
    assert sides(gather(section("."), 4, tmp_path / "one")) != one


def test_an_example_stays_on_its_side_when_files_are_added(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", pairs(range(500)))
    _, before = sides(gather(section("."), 0, tmp_path))
    write(tmp_path / "a.jsonl", pairs(range(500, 1000)))
    training, after = sides(gather(section("."), 0, tmp_path))
    assert set(before) < set(after)
    assert not set(before) & set(training)


def test_a_small_file_holds_one_example_out(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", pairs(range(3)))
    for seed in range(5):
        training, held_out = sides(gather(section("a.jsonl"), seed, tmp_path))
        assert (len(training), len(held_out)) == (2, 1)


def test_all_examples_with_one_value_are_on_one_side(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [pair | {"by": number % 50} for number, pair in enumerate(pairs(range(1000)))])
    training, held_out = sides(gather(section("a.jsonl", held_out={"share": 0.2, "by": "by"}), 0, tmp_path))
    values = [{int(prompt.split()[0]) % 50 for prompt in side} for side in (training, held_out)]
    assert not values[0] & values[1]
    assert values[0] | values[1] == set(range(50))
    assert 2 <= len(values[1]) <= 20


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_values_of_a_field_are_held_out(tmp_path: Path, suffix: str) -> None:
    rows = [pair | {"split": number % 5 == 0} for number, pair in enumerate(pairs(range(50)))]
    if suffix == "jsonl":
        write(tmp_path / "a.jsonl", rows)
    else:
        lines = [f"{row['prompt']},{row['completion']},{row['split']}" for row in rows]
        (tmp_path / "a.csv").write_text("\n".join(["prompt,completion,split", *lines]))
    data = section(f"a.{suffix}", held_out={"field": "split", "values": [True]})
    assert sides(gather(data, 0, tmp_path))[1] == [f"{number} + 1?" for number in range(0, 50, 5)]


def test_named_files_are_held_out_and_their_copies_are_not_trained_on(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", pairs(range(50)))
    write(tmp_path / "b.jsonl", pairs(range(40, 60)))
    found = gather(section("a.jsonl", held_out={"files": ["b.jsonl"]}), 0, tmp_path)
    assert sides(found) == ([f"{n} + 1?" for n in range(40)], [f"{n} + 1?" for n in range(40, 60)])
    assert found.counts.equal == 10
    assert str(found.counts) == "70 records, 40 to train on, 20 held out; left out: 10 equal to another"
    kept = gather(section("a.jsonl", held_out={"files": ["b.jsonl"]}, deduplicate="none"), 0, tmp_path)
    assert len(sides(kept)[0]) == 50


def test_equal_examples_are_kept_once_wherever_they_are(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", pairs([1, 2, 3, 2, 1, 4]))
    write(tmp_path / "b.jsonl", [dict(reversed(pair.items())) | {"id": 7} for pair in pairs([4, 5])])
    found = gather(section("a.jsonl", "b.jsonl"), 0, tmp_path)
    assert Counter(chain(*sides(found))) == Counter(f"{n} + 1?" for n in range(1, 6))
    assert found.counts.equal == 3


STORY = "The barn at the end of the long lane was raised by thirty neighbours on a bright day in late summer, {}."


def test_near_copies_of_held_out_examples_are_not_trained_on(tmp_path: Path) -> None:
    held_out = [{"text": STORY.format("and it stands to this day") * 3}]
    others = [{"text": f"Number {n} is another story about {n * n} geese, {n} ducks and a pond" * 2} for n in range(20)]
    near = [{"text": (STORY.format("and it stands to this day") * 3).upper().replace("THIRTY", "forty")}]
    write(tmp_path / "a.jsonl", near + others)
    write(tmp_path / "b.jsonl", held_out)
    for way, number in (("near", 1), ("exact", 0)):
        data = section("a.jsonl", kind="text", held_out={"files": ["b.jsonl"]}, deduplicate=way)
        found = gather(data, 0, tmp_path)
        assert (found.counts.near, found.counts.training) == (number, {"files": 21 - number})
        assert [example.text for example in found.training()] == [row["text"] for row in (near + others)[number:]]


def test_epochs_repeat_a_source_as_often_as_they_say(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", pairs(range(400)))
    write(tmp_path / "b.jsonl", pairs(range(400, 420)))
    mixture = [{"files": ["a.jsonl"], "epochs": 0.5}, {"files": ["b.jsonl"], "epochs": 2.5}]
    found = gather(section(mixture=mixture, held_out=0.01), 0, tmp_path)
    times = Counter(prompts(found.training()))
    own = [[times[f"{n} + 1?"] for n in numbers] for numbers in (range(400), range(400, 420))]
    assert set(own[0]) == {0, 1}
    assert 160 < sum(own[0]) < 240
    assert set(own[1]) - {0} == {2, 3}
    assert found.counts.epochs == {"mixture[0]": 0.5, "mixture[1]": 2.5}


def test_weights_are_shares_of_the_examples(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", pairs(range(1000)))
    write(tmp_path / "b.jsonl", pairs(range(1000, 1100)))
    mixture = [{"files": ["a.jsonl"], "weight": 3}, {"files": ["b.jsonl"], "weight": 1}]
    found = gather(section(mixture=mixture), 0, tmp_path)
    training = prompts(found.training())
    first = [prompt for prompt in training if int(prompt.split()[0]) < 1000]
    assert len(first) == len(set(first))
    assert 0.73 < len(first) / len(training) < 0.77
    assert "mixture[0] " in str(found.counts)
    assert " x 1, mixture[1] " in str(found.counts)


def test_a_weight_that_repeats_a_source_too_often_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", pairs(range(100)))
    write(tmp_path / "b.jsonl", pairs(range(100, 102)))
    mixture = [{"files": ["a.jsonl"], "weight": 1}, {"files": ["b.jsonl"], "weight": 100}]
    with pytest.raises(
        DataError, match=r"the weight of data\.mixture\[1\] repeats its \d examples \d+ times, more than 1000"
    ):
        gather(section(mixture=mixture, held_out=0.001), 0, tmp_path)


BAD = [*pairs(range(3)), {"prompt": "a"}, *pairs(range(3, 6)), [1], *pairs(range(6, 9))]


def test_a_bad_record_ends_the_reading_with_its_place(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", BAD)
    said = r"^a\.jsonl:4: has no field 'completion' \(there are: prompt\).* raise data\.skip_bad$"
    with pytest.raises(DataError, match=said):
        gather(section("a.jsonl"), 0, tmp_path)
    said = r"^a\.jsonl:8: is a list.* It is bad record number 2, and data\.skip_bad is 1\."
    with pytest.raises(DataError, match=said):
        gather(section("a.jsonl", skip_bad=1), 0, tmp_path)


def test_bad_records_are_passed_over_and_told(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", BAD)
    found = gather(section("a.jsonl", skip_bad=2), 0, tmp_path)
    assert sorted(chain(*sides(found))) == [f"{n} + 1?" for n in range(9)]
    assert [fault.partition(" ")[0] for fault in found.counts.faults] == ["a.jsonl:4:", "a.jsonl:8:"]
    assert str(found.counts).endswith("; left out: 2 bad")


def test_empty_texts_are_left_out_and_told(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [{"text": text} for text in ("a", "", " \n", "b", "c")])
    found = gather(section("a.jsonl", kind="text"), 0, tmp_path)
    assert sorted(str(example.text) for side in (found.training(), found.held_out()) for example in side) == [
        "a",
        "b",
        "c",
    ]
    assert found.counts.empty == 2


BY_SPLIT = {"held_out": {"field": "split", "values": ["x"]}}


@pytest.mark.parametrize(
    ("rows", "keys", "said"),
    [
        ([], {}, r"data\.files has no example to train on \(0 records, 0 to train on, 0 held out\)"),
        (pairs([1]), {}, r"data\.files has no example to train on \(1 records, 0 to train on, 1 held out\)"),
        (pairs([1, 2]), BY_SPLIT, r"a\.jsonl:1: has no 'split' \(there are: prompt"),
        (pairs([1, 2], split="y"), BY_SPLIT, "no example is held out .*field"),
    ],
)  # fmt: skip
def test_a_side_without_examples_is_an_error(tmp_path: Path, rows: Any, keys: Any, said: str) -> None:
    write(tmp_path / "a.jsonl", rows)
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write("\n")
    with pytest.raises(DataError, match=said):
        gather(section("a.jsonl", **keys), 0, tmp_path)


def test_a_table_without_the_fields_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("question,answer\na,b\n")
    with pytest.raises(DataError, match=r"^a\.csv:2: has none of the fields prompt with completion"):
        gather(section("a.csv"), 0, tmp_path)


def test_the_form_of_a_file_is_that_of_its_first_record_in_every_reading(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    write(tmp_path / "a.jsonl", [*pairs([0]), *pairs(range(1, 30), messages=chat)])
    found = gather(section("a.jsonl", kind="chat", held_out=0.3), 0, tmp_path)
    both = [*found.training(), *found.held_out()]
    assert len(both) == 30
    assert all(example.messages is None for example in both)


def test_a_file_that_changes_between_the_readings_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", pairs(range(9)))
    found = gather(section("a.jsonl"), 0, tmp_path)
    size = os.stat(tmp_path / "a.jsonl").st_size
    (tmp_path / "a.jsonl").write_text("x" * size)
    with pytest.raises(
        DataError, match=r"a\.jsonl:1: is no JSON .*: the file has changed while it was read; start again"
    ):
        list(found.training())
