"""A model card names the licence of the base, and replaces no card of the user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnraise.exports.model_card import MARK, licence_of, may_write


@pytest.mark.parametrize(
    ("readme", "licence"),
    [
        ("---\nlanguage: en\nlicense: apache-2.0\n---\n# A model", "apache-2.0"),
        ("---\nlanguage: en\n---\nlicense: mit", ""),
        ("# A model\n\n---\nlicense: mit\n---\n", ""),
    ],
)
def test_the_licence_is_that_of_the_front_matter(tmp_path: Path, readme: str, licence: str) -> None:
    (tmp_path / "README.md").write_text(readme)
    assert licence_of(tmp_path) == licence


def test_a_licence_in_a_file_of_its_own_has_no_name(tmp_path: Path) -> None:
    assert licence_of(tmp_path) == ""
    (tmp_path / "LICENSE").write_text("Do as you like.")
    assert licence_of(tmp_path) == "other"


def test_a_card_of_the_user_stays(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    assert may_write(path)
    path.write_text("mine")
    assert not may_write(path)
    path.write_text(f"{MARK}\n# barn")
    assert may_write(path)
