"""Texts that nearly equal another are found, and others are not, whatever their length."""

from __future__ import annotations

import random

import pytest

from barnraise.data.near import NearIndex, sketch

RANDOM = random.Random(0)
WORDS = ["".join(RANDOM.choices("abcdefghijklmnopqrstuvwxyz", k=RANDOM.randint(2, 9))) for _ in range(3000)]


def texts(words: int) -> list[list[str]]:
    return [RANDOM.choices(WORDS, k=words) for _ in range(100)]


def changed(words: list[str], share: float) -> str:
    return " ".join(RANDOM.choice(WORDS) if RANDOM.random() < share else word for word in words)


@pytest.mark.parametrize("words", [30, 300, 3000])
def test_slightly_changed_texts_are_found_and_others_are_not(words: int) -> None:
    originals = texts(words)
    index = NearIndex([sketch(" ".join(text)) for text in originals])
    assert all(index.has_near(sketch(" ".join(text).upper().replace(" ", "\n  "))) for text in originals)
    assert sum(index.has_near(sketch(changed(text, 0.01))) for text in originals) >= 95
    assert sum(index.has_near(sketch(changed(text, 0.3))) for text in originals) <= 2
    assert not any(index.has_near(sketch(" ".join(text))) for text in texts(words))


def test_the_share_of_equal_bins_estimates_the_similarity() -> None:
    errors = []
    for words in texts(200):
        one, other = " ".join(words), changed(words, 0.1)
        pieces = [{text[at : at + 8] for at in range(len(text) - 7)} for text in (one, other)]
        similarity = len(pieces[0] & pieces[1]) / len(pieces[0] | pieces[1])
        errors.append(float((sketch(one) == sketch(other)).mean()) - similarity)
    assert abs(sum(errors) / len(errors)) < 0.02
    assert max(map(abs, errors)) < 0.2


@pytest.mark.parametrize("text", ["", "a", "語", " \n"])
def test_short_texts_have_sketches(text: str) -> None:
    assert NearIndex([sketch(text)]).has_near(sketch(text))
    assert not NearIndex([sketch(text)]).has_near(sketch("quite another text than that"))
    assert not NearIndex([]).has_near(sketch(text))
