"""Digests of what changes in parts: the same from bytes that arrive, from a vector, and from what of it has changed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from barnraise.controller.tensors.recovery import Replayed, replay
from barnraise.core.digests import DIGEST_BYTES, LEAF_BYTES, TreeHash
from barnraise.core.threads import Crew
from barnraise.core.types import Blob, ParameterRange
from barnraise.ledger import Checkpoints, Ledger
from barnraise.models.vectors import Leaves, bears, digest, raw
from barnraise.wire.downloads import SnapshotDownload, WrongDigestError

from ..controller.tensors import test_recovery

LEAF = LEAF_BYTES // 4


@pytest.mark.parametrize("size", [1, LEAF - 1, LEAF, LEAF + 1, 3 * LEAF + 7])
def test_a_vector_hashes_like_its_bytes_with_any_number_of_threads(size: int) -> None:
    vector = torch.randn(size, generator=torch.Generator().manual_seed(size))
    data = bytes(raw(vector))
    leaves = b"".join(
        hashlib.sha256(data[start : start + LEAF_BYTES]).digest() for start in range(0, len(data), LEAF_BYTES)
    )
    expected = hashlib.sha256(leaves + len(data).to_bytes(8, "little")).hexdigest()
    assert {digest(vector, Crew(threads)) for threads in (1, 2, 3)} == {expected}
    tree = TreeHash()
    for start in range(0, len(data), 300_001):
        tree.update(data[start : start + 300_001])
    assert tree.hexdigest() == expected


def test_only_changed_leaves_are_hashed_again() -> None:
    vector, leaves = torch.zeros(5 * LEAF + 9), Leaves()
    leaves.digest(vector, [ParameterRange(0, 4)])  # the first time, all is
    for changed in (slice(LEAF, LEAF + 1), slice(LEAF - 1, 3 * LEAF), slice(5 * LEAF, 5 * LEAF + 9), slice(0, 0)):
        vector[changed] += 1.0
        assert leaves.digest(vector, [ParameterRange(changed.start, changed.stop)]) == digest(vector)
    vector[:1], vector[-1:] = 3.0, 3.0
    assert leaves.digest(vector, [ParameterRange(0, 1), ParameterRange(5 * LEAF + 8, 5 * LEAF + 9)]) == digest(vector)
    vector[0] = 7.0
    wrong = leaves.digest(vector, [ParameterRange(LEAF, 2 * LEAF)])
    assert wrong != digest(vector), "what did not change is not looked at"


def test_the_plain_hash_of_an_older_ledger_is_known() -> None:
    vector = torch.ones(5)
    plain = hashlib.sha256(raw(vector)).hexdigest()
    assert plain != digest(vector)
    assert bears(vector, plain)
    assert bears(vector, digest(vector))
    assert not bears(torch.zeros(5), plain)


def test_a_snapshot_is_checked_by_its_leaves_as_they_arrive() -> None:
    vector, leaves = torch.arange(LEAF + 100, dtype=torch.float32), Leaves()
    blob = Blob(leaves.digest(vector), raw(vector).nbytes)
    assert len(leaves.listed) == 2 * DIGEST_BYTES
    for spoiled in (False, True):
        download = SnapshotDownload(blob, limit=blob.num_bytes)
        data = bytearray(raw(vector))
        data[LEAF_BYTES + 5] ^= spoiled
        ((offset, size),) = download.requests(0.0)
        assert not download.add(offset, leaves.listed[:size], 0.0)
        for offset, size in reversed(download.requests(0.0)):
            if spoiled and offset >= LEAF_BYTES:
                with pytest.raises(WrongDigestError, match="leaf 1 hashes to"):
                    download.add(offset, data[offset : offset + size], 0.0)
            else:
                download.add(offset, data[offset : offset + size], 0.0)
        assert download.complete is not spoiled


def test_a_run_from_before_there_were_leaves_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ledger holds plain hashes, and the versions made again are compared with these."""
    run = test_recovery.Run(tmp_path)
    run.get_ahead()
    version, newest = run.server.version, run.server.parameters.clone()
    run.kill()
    plain = hashlib.sha256(raw(newest)).hexdigest()

    def older(ledger: Ledger, checkpoints: Checkpoints) -> Replayed:
        found = replay(ledger, checkpoints)
        found.digests[version] = found.state.newest.digest = plain
        return found

    monkeypatch.setattr(test_recovery, "replay", older)
    again = test_recovery.Run(tmp_path)
    assert torch.equal(again.server.parameters, newest)
    assert again.machine.state.newest.digest == again.server.digest == digest(newest), (
        "it goes by its new name from here on"
    )
    again.kill()
