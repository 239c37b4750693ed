"""Records of multiple choice: the choices in the shapes that data sets have, and the number of the right one."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any, NamedTuple

from barnraise.core.text import printable

MOST_CHOICES = 64
_LETTERS = string.ascii_uppercase


class ChoiceTexts(NamedTuple):
    """The texts of the choices, and their names where the record gives some (as ARC does)."""

    texts: list[str]
    names: list[str]


def choices_of(value: Any) -> ChoiceTexts | str:
    """Return the choices of a record's field, a list of texts or a record with `text` and `label`; else why not."""
    names: Any = []
    if isinstance(value, dict):
        value, names = value.get("text"), value.get("label") or []
    if not isinstance(value, list) or not all(isinstance(text, str) and text.strip() for text in value):
        return "must be a list of texts, or a record with lists 'text' and 'label'"
    if not 2 <= len(value) <= MOST_CHOICES:
        return f"has {len(value)} choices, but must have 2 to {MOST_CHOICES}"
    if not isinstance(names, list) or (names and len(names) != len(value)):
        return f"has {len(value)} texts, but not a label for each"
    return ChoiceTexts(list(value), [str(name).strip() for name in names])


def right_of(label: Any, choices: ChoiceTexts) -> int | str:
    """Return the number of the right choice, from 0; else why the label names none.

    A label is a number from 0, one of the record's own labels, a letter from A on, or the text of the choice.

    >>> found = ChoiceTexts(["red", "blue"], [])
    >>> right_of(1, found), right_of("1", found), right_of("B", found), right_of("blue", found)
    (1, 1, 1, 1)
    >>> right_of("2", ChoiceTexts(["red", "blue"], ["1", "2"]))
    1
    >>> right_of("0", ChoiceTexts(["1", "0"], []))
    "is the text 0: one choice's text, and another one's number; give a number"
    >>> right_of(2, found)
    "is 2, which names none of its 2 choices (numbers from 0, letters from A, or a choice's text)"
    """
    count = len(choices.texts)
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    text = str(label).strip()
    places = [place for place, name in enumerate(choices.names) if name == text]
    if not places and not choices.names and not isinstance(label, bool):
        places = [place for place in range(count) if str(place) == text]
    if isinstance(label, str) and not choices.names:
        named = _named(text, choices.texts)
        if places and named and places != named:
            return f"is the text {printable(text, 40)}: one choice's text, and another one's number; give a number"
        places = places or named
    elif not places and isinstance(label, str):
        places = _named(text, choices.texts)
    if places:
        return places[0]
    return (
        f"is {printable(text, 40)}, which names none of its {count} choices (numbers from 0, letters from A, or a "
        "choice's text)"
    )


def _named(text: str, texts: Sequence[str]) -> list[int]:
    """Return the places of the choices that a letter, or a whole text, names."""
    same = [place for place, choice in enumerate(texts) if choice.strip() == text]
    letter = _LETTERS[: len(texts)].find(text) if len(text) == 1 else -1
    return same or ([letter] if letter >= 0 else [])
