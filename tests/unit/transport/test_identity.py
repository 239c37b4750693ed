from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from barnraise.core.errors import InputError
from barnraise.transport import Keys, identity


def test_keys_are_made_once_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "keys.json"
    keys = Keys.load_or_create(path)
    assert Keys.load_or_create(path) == keys
    assert Keys.generate() != keys
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["keys.json"]


def test_the_mode_does_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Keys.load_or_create(tmp_path / "keys.json")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "keys.json").stat().st_mode) == 0o600


def test_a_second_process_takes_an_identity_of_its_own(tmp_path: Path) -> None:
    with identity.claimed(tmp_path, "guest") as (first, folder):
        assert (first, folder) == ("guest", tmp_path / "guest")
        with identity.claimed(tmp_path, "guest") as (second, other), identity.claimed(tmp_path, "guest") as (third, _):
            assert (second, third) == ("guest-2", "guest-3")
            assert other == tmp_path / "guest-2"
            assert stat.S_IMODE(other.stat().st_mode) == 0o700
    with identity.claimed(tmp_path, "guest") as (again, _):
        assert again == "guest"


def test_a_long_name_leaves_room_for_a_number(tmp_path: Path) -> None:
    with identity.claimed(tmp_path, "x" * 64), identity.claimed(tmp_path, "x" * 64) as (second, _):
        assert len(second) <= 64


def test_an_error_while_an_identity_is_claimed_is_raised(tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError), identity.claimed(tmp_path, "guest"):
        raise BlockingIOError


def test_the_secret_is_not_shown() -> None:
    keys = Keys.generate()
    assert keys.secret not in repr(keys)
    assert keys.public in repr(keys)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_secret_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "keys.json"
    Keys.load_or_create(path)
    path.chmod(mode)
    with pytest.raises(InputError, match=f"mode {mode:04o}.*chmod 600"):
        Keys.load_or_create(path)


KEYS = Keys.generate()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"public": 1, "secret": 2}',
        json.dumps({"public": KEYS.public, "secret": Keys.generate().secret}),
        json.dumps({"public": KEYS.public, "secret": KEYS.secret[:-1]}),
        json.dumps({"public": KEYS.public, "secret": "~" * 40}),
        json.dumps({"public": KEYS.public, "secret": "\u00e9" * 40}),
        "\xff",
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content, encoding="latin-1")
    path.chmod(0o600)
    with pytest.raises(InputError, match=r"damaged.*delete it"):
        Keys.load_or_create(path)
    assert path.read_text(encoding="latin-1") == content


def test_a_path_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"keys\.json cannot be"):
        Keys.load_or_create(tmp_path / "file" / "keys.json")
    with pytest.raises(InputError, match="cannot be read"):
        Keys.load_or_create(tmp_path)
