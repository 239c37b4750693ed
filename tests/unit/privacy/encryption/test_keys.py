"""Key files: private, checked, and never replaced."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest

from barnraise.core.errors import InputError
from barnraise.privacy.encryption import keys


@pytest.fixture(scope="module")
def key() -> keys.SecretKey:
    return keys.make("barn")


def test_a_key_file_is_private_and_gives_the_same_key(key: keys.SecretKey, tmp_path: Path) -> None:
    path = tmp_path / "run.key"
    keys.save(key, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = keys.load(path)
    assert (found.run, found.id) == ("barn", key.id)
    assert found.context.has_secret_key()
    assert "context" not in repr(found)


def test_two_keys_have_two_ids(key: keys.SecretKey) -> None:
    assert keys.make("barn").id != key.id


def test_a_key_file_is_never_replaced(key: keys.SecretKey, tmp_path: Path) -> None:
    path = tmp_path / "run.key"
    path.write_bytes(b"other")
    with pytest.raises(InputError, match="exists, and a key that is replaced cannot be restored"):
        keys.save(key, path)
    assert path.read_bytes() == b"other"


def test_a_key_file_that_others_can_read_is_refused(key: keys.SecretKey, tmp_path: Path) -> None:
    path = tmp_path / "run.key"
    keys.save(key, path)
    path.chmod(0o640)
    with pytest.raises(InputError, match=f"has mode 0640, so others can read it; chmod 600 {path}"):
        keys.load(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has 0 bytes"),
        (b"no key at all", "is no key file"),
        (b"[1]\nx", "is no key file"),
        (b'{"format": 2, "run": "a", "scheme": "ckks-8192-48", "key": "b"}\nx', "has the format 2"),
        (b'{"format": 1, "run": "a", "scheme": "bfv", "key": "b"}\nx', "the scheme bfv"),
        (b'{"format": 1, "run": "a", "scheme": "ckks-8192-48", "key": "b"}\nx', "is damaged"),
        (bytes(keys.KEY_FILE_LIMIT + 1), f"has {keys.KEY_FILE_LIMIT + 1} bytes"),
    ],
)
def test_a_file_that_is_no_key_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "run.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(InputError, match=said):
        keys.load(path)


def test_a_missing_key_file_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file or directory; ask a member"):
        keys.load(tmp_path / "none.key")


def test_a_secret_that_the_library_cannot_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.key"
    head = {"format": 1, "run": "barn", "scheme": "ckks-8192-48", "key": keys._id("barn", b"junk")}
    path.write_bytes(json.dumps(head).encode() + b"\njunk")
    path.chmod(0o600)
    with pytest.raises(InputError, match="cannot be read by TenSEAL"):
        keys.load(path)


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tenseal", None)
    with pytest.raises(InputError, match=r"pip install 'barnraise\[privacy\]'"):
        keys.make("barn")
