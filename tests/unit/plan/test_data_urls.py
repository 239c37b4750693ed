"""The prefixes of a run's files: what is refused, and that no secret is repeated."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from barnraise.config.document import parse
from barnraise.core.errors import RunFileError, WireError
from barnraise.core.types import Blob
from barnraise.plan import Purpose
from barnraise.plan.data_urls import fault
from barnraise.plan.verify import verify
from barnraise.wire.manifest import Manifest

BLOB = Blob("a" * 64, 7)


@pytest.mark.parametrize("url", ["https://example.org/", "http://10.0.0.3:8000/run/data/", "s3://bucket/run/"])
def test_a_sound_prefix_travels_in_the_manifest(url: str) -> None:
    assert fault(url) is None
    assert Manifest.decode(Manifest({}, BLOB, 1, urls=(url,)).encode()).urls == (url,)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://ann:secret@example.org/", "'https://example.org/' has a user, a password or a query beside it"),
        ("https://example.org/?token=secret", "'https://example.org/' has a user"),
        ("https://example.org/run", "does not end in a slash"),
        ("/mnt/share/run/", "begins with none of https://, http://, s3://; a worker that has copies says so itself"),
        ("file:///mnt/share/", "join --base FOLDER"),
        ("ftp://example.org/", "begins with none of"),
        ("https:///run/", "names no server"),
        ("HTTPS://example.org/run/", "is not as workers take it"),
        ("https://example.org/run/?", "is not as workers take it"),
        ("https://example.org/run/#", "is not as workers take it"),
        (f"https://example.org/{'a' * 2000}/", "is not as workers take it"),
    ],
)
def test_a_prefix_that_cannot_work_is_refused(url: str, words: str) -> None:
    found = fault(url)
    assert found is not None
    assert words in found
    assert "secret" not in found
    with pytest.raises(WireError):
        Manifest.decode(msgspec.json.encode(Manifest({}, BLOB, 1, urls=(url,))))


def test_text_that_is_no_url_is_refused() -> None:
    assert "is no URL (Invalid IPv6 URL)" in str(fault("https://[::1/"))


def test_the_run_file_names_the_key(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("barn " * 2000)
    content = {
        "model": {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
        "data": {"kind": "text", "files": [str(tmp_path / "text.txt")], "urls": ["https://ann:secret@example.org/"]},
        "workers": [{"name": "one"}],
    }
    with pytest.raises(RunFileError, match=r"data\.urls\[0\]: 'https://example.org/' has a user") as refused:
        verify(parse(json.dumps(content).encode(), "run.yaml"), purpose=Purpose.TRAIN)
    assert "secret" not in str(refused.value)
