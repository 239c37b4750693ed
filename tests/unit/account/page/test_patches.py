"""Patches between pictures: what they leave out is the same, and applied they make the new picture."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from barnraise.account.page.patches import patch

SMALL = st.one_of(st.integers(-3, 3), st.text("ab<", max_size=3), st.none(), st.lists(st.integers(0, 2), max_size=3))
VALUES = st.one_of(SMALL, st.lists(SMALL, max_size=9), st.dictionaries(st.text("xyz", max_size=2), SMALL, max_size=9))
PICTURES = st.dictionaries(st.sampled_from("abcd"), VALUES, min_size=4, max_size=4)


def applied(data: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The data after a patch, as `barn.apply` of the page's store.js makes it."""
    data = json.loads(json.dumps(data))
    data |= changes.get("set", {})
    for key, entries in changes.get("in", {}).items():
        for entry, value in entries.items():
            if isinstance(data[key], dict):
                data[key][entry] = value
            elif int(entry) < len(data[key]):
                data[key][int(entry)] = value
            else:
                assert int(entry) == len(data[key]), "entries of a list come in order"
                data[key].append(value)
    for key, entries in changes.get("out", {}).items():
        for entry in entries:
            del data[key][entry]
    return data


@given(PICTURES, PICTURES)
def test_a_patch_makes_the_new_picture_of_the_old_one(old: dict[str, Any], new: dict[str, Any]) -> None:
    changes = patch(old, new)
    assert (changes is None) == (old == new)
    assert applied(old, changes or {}) == new


def test_a_changed_row_is_sent_without_the_others() -> None:
    old = {"rows": {f"node-{number}": [number, "training"] for number in range(1000)}, "columns": ["a"]}
    new = {"rows": old["rows"] | {"node-7": [8, "training"]}, "columns": ["a"]}  # type: ignore[operator]
    assert patch(old, new) == {"in": {"rows": {"node-7": [8, "training"]}}}


def test_a_curve_that_grows_sends_its_new_points() -> None:
    old = {"loss": [[number, 2.0] for number in range(500)]}
    assert patch(old, {"loss": [*old["loss"], [500, 1.9]]}) == {"in": {"loss": {"500": [500, 1.9]}}}
