"""Malformed files of a run directory raise the package's own error, or count as missing.

The decoder's error never reaches the caller.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from barnraise.account import links
from barnraise.assembly import addresses
from barnraise.assembly.fencing import predecessors
from barnraise.assembly.invites import open_book
from barnraise.controller.state import saved
from barnraise.controller.state.state import State
from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import CorruptionError, DataError, RunDirectoryError, WireError
from barnraise.data.meta import Meta
from barnraise.ledger import Checkpoints, Noted, RunDirectory, notes, seal
from barnraise.ledger.rows import FORMATS
from barnraise.wire.following import decode_rows
from barnraise.wire.manifest import Manifest

DEEP = b"[" * 100_000 + b"]" * 100_000
HURT = pytest.mark.parametrize(
    "content", [b'{"a\xff": "\xff"}', b'["\xff"]', DEEP, b'{"a": [' + DEEP + b"]}", b"{", b""]
)


@pytest.mark.parametrize("content", [b'["\xff"]', DEEP, b"{"])
def test_all_that_a_decoder_raises_is_known(content: bytes) -> None:
    with pytest.raises(MALFORMED):
        msgspec.json.decode(content)


@HURT
def test_a_checkpoint_without_a_manifest_that_can_be_read_is_passed_over(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "v000001").mkdir()
    (tmp_path / "v000001" / "manifest.json").write_bytes(content)
    latest = Checkpoints(tmp_path).load_latest()
    assert latest.checkpoint is None
    assert ["manifest.json is damaged" in rejected.reason for rejected in latest.rejected] == [True]


@HURT
def test_files_of_a_run_directory(tmp_path: Path, content: bytes) -> None:
    run = RunDirectory.create("barn", tmp_path)
    for name in ("predecessors.json", "links.json", "keys/invites.json", addresses.FILE, "seal.json"):
        (run.path / name).write_bytes(content)
    assert predecessors(run) == []
    assert links.recorded(run) is None
    with pytest.raises(CorruptionError, match="the book of invites is damaged"), open_book(run):
        pass
    with pytest.raises(RunDirectoryError):
        addresses.recorded_mode(run)
    with pytest.raises(CorruptionError):
        seal.read(run)


@HURT
def test_an_invalid_description_of_a_dataset_or_model_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "meta.json").write_bytes(content)
    with pytest.raises(DataError):
        Meta.read(tmp_path / "meta.json")
    with pytest.raises(WireError):
        Manifest.decode(content)


@HURT
def test_rows_of_the_ledger(content: bytes) -> None:
    """SQLite gives no text that is not UTF-8."""
    text = content.decode("utf-8", "replace")
    with pytest.raises(CorruptionError, match="row 7 of the ledger's table events is damaged"):
        FORMATS[Noted].from_row((7, 1.0, notes.kind_of(notes.Paused), "", text))


def test_the_state_of_a_checkpoint() -> None:
    """Another version's, for all that is known: the ledger says the same."""
    content = saved.encode(State(), 1.0)
    assert saved.decode(content) is not None
    for place in range(len(content)):
        hurt = bytearray(content)
        hurt[place] ^= 0x80
        saved.decode(bytes(hurt))  # the decoded values do not matter, but it must not raise


@pytest.mark.parametrize("content", [b"\x91\x92\xa1\xff\x01", b"\x91" * 100_000 + b"\x90", b"\x91\x01", b"\x91"])
def test_rows_that_a_standby_is_sent(content: bytes) -> None:
    with pytest.raises(MALFORMED):
        decode_rows(memoryview(content))
