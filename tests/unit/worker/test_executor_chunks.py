"""A worker's exchange in chunks: as it would be with whole vectors, bit for bit, with any number of threads."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from barnraise import compression
from barnraise.core.types import Blob, News, ParameterRange, Update
from barnraise.models.exchange.layout import Layout
from barnraise.models.vectors import digest, raw
from barnraise.training.transfers import DONE
from barnraise.worker.executor import WorkerExecutor

from ...state_machine.engine import told

SIZE = 600_001
LERP, SHARE, KEEP, DECAY = 0.4, 0.3, 0.9, 0.8


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def vector(seed: int, size: int = SIZE) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def make(compressed: str, downlink: str) -> WorkerExecutor:
    settings = told(
        uplink={"codec": compressed, "decay": DECAY, "keep": KEEP},
        downlink={"codec": downlink, "merge_lerp": LERP, "version_momentum": 1.0},
        fragments=2,
    )
    trainer: Any = SimpleNamespace(
        flat=SimpleNamespace(layout=Layout.of([("w", (SIZE,))])),
        exchanges_on_device=False,
        device=torch.device("cpu"),
    )
    return WorkerExecutor(trainer, cast("Any", None), settings)


def exchanged(compressed: str, downlink: str) -> list[Tensor]:
    """Make two contributions, the second with the first's residual, then take in and merge a version."""
    executor, down = make(compressed, downlink), compression.create(downlink)
    span, start, course = slice(4096, 500_000), vector(1), cast("Any", executor.course)
    for number in (1, 2):
        course.unmerged[number] = executor.path.send(
            start.clone(), vector(number + 1), version=3, covered=(span.start, span.stop)
        )
    encoded = down.encode(vector(9, span.stop - span.start), 1)
    replica = torch.zeros(SIZE)
    replica[span] += down.decode(encoded)
    blob = Blob(hashlib.sha256(encoded.payload).hexdigest(), encoded.num_bytes)
    update = Update("delta", 1, blob, digest(replica), ParameterRange(span.start, span.stop))
    assert executor.update(News((update,), 1, SHARE), lambda _: encoded.payload) == 1
    reached: Tensor = vector(5)
    task: Any = SimpleNamespace(local_steps=0, learning_rate=0.1)
    payload, residual = course.unmerged[2], executor.path.feedback and executor.path.feedback.residual
    assert residual is not None
    expected = replica.add(reached - start, alpha=SHARE).sub_(residual, alpha=KEEP)
    expected.sub_(reached).mul_(1.0 - LERP)
    payload.codec.decode_add(payload.encoded, expected[span], -SHARE * (1.0 - LERP))
    offset = course._offset(start, reached, DONE, task)
    assert offset.vector is reached
    assert torch.equal(offset.movement, replica)
    assert torch.equal(executor.replica, replica)
    if torch.get_num_threads() == 1:  # else torch's own pieces round otherwise where they end
        assert torch.equal(reached, expected)
    total = start - vector(2)
    sent = payload.codec.encode(total[span], 3)
    payload.codec.decode_add(sent, total[span], -1.0)
    total = (start - vector(3)) + total * DECAY
    assert payload.codec.encode(total[span], 3).to_bytes() == payload.encoded.to_bytes()
    payload.codec.decode_add(payload.encoded, total[span], -1.0)
    assert torch.equal(residual, total)
    return [executor.replica, reached, residual]


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("downlink", ["int4", "sparse_loco"])
@pytest.mark.parametrize("compressed", ["sparse_loco", "int8", "topk"])
def test_any_number_of_threads_makes_the_same_exchange(compressed: str, downlink: str) -> None:
    found = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        found.append(exchanged(compressed, downlink))
    for others in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found[0], others, strict=True))


def test_a_snapshot_that_was_downloaded_is_the_replica_and_one_that_came_along_is_not() -> None:
    version = vector(5)
    update = Update("snapshot", 3, Blob(digest(version), version.nbytes), digest(version))
    downloaded, came_along = bytearray(raw(version)), memoryview(bytes(raw(version)))
    for content in (downloaded, came_along):
        executor = make("int8", "int4")
        assert executor.update(News((update,), 0, 1.0), lambda _: content) == 3  # noqa: B023
        assert torch.equal(executor.replica, version)
        shared = np.shares_memory(executor.replica.numpy(), np.frombuffer(content, np.float32))
        assert shared is (content is downloaded)
    downloaded[5] ^= 1
    assert executor.update(News((update,), 0, 1.0), lambda _: downloaded) == -1
