"""Versions made in chunks: the same with any number of threads, and as they would be made of whole vectors."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from barnraise import aggregation, compression, training
from barnraise.controller.state.actions import Held, Slot
from barnraise.controller.tensors import blobs
from barnraise.controller.tensors.blobs import BlobStore
from barnraise.controller.tensors.parameter_server import Made, ParameterServer
from barnraise.core.types import ParameterRange
from barnraise.models.vectors import digest, raw

SIZE = 70_001
CODECS = ["sparse_loco", "int8", "topk", "random_blocks", "low_rank"]


def vector(seed: int, size: int = SIZE) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def make(
    downlink: str,
    outer: str,
    rule: Any = "mean",
    *,
    threads: int = 1,
    codecs: Sequence[str] = CODECS,
    parameters: Tensor | None = None,
    **options: Any,
) -> ParameterServer:
    return ParameterServer(
        vector(0) if parameters is None else parameters,
        0,
        rule=aggregation.create(rule, **options),
        codecs=[compression.create(name) for name in codecs],
        downlink=compression.create(downlink),
        outer=training.create(outer),
        average=0.3,
        threads=threads,
        chunk=5000,
    )


def advance(server: ParameterServer, last: int) -> list[Made]:
    """Versions of five nodes, in other codecs each, some of which have a part alone and some two contributions."""
    made = []
    for version in range(server.version + 1, last + 1):
        payloads, slots = {}, []
        for node, name in enumerate(CODECS):
            span = ((0, SIZE), (0, SIZE), (4096, SIZE), (0, 40_960), (4096, 40_960))[(node + version) % 5]
            numbers = [10 * version + node] + [1000 + 10 * version + node] * (node == 2)
            for number in numbers:
                update = 0.01 * vector(number, span[1] - span[0])
                payloads[number] = compression.create(name).encode(update).to_bytes()
            slots.append(Slot(str(node), ParameterRange(*span), tuple(Held(n, 1.0 + node, node) for n in numbers)))
        made.append(server.aggregate(version, slots, payloads.__getitem__, 0.9, (1.0, 0.5, 0.25)))
    return made


def state(server: ParameterServer) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in server.state().items()}


@pytest.mark.parametrize("outer", training.names())
@pytest.mark.parametrize("downlink", ["none", "int4", "sparse_loco", "topk", "fp16", "bf16"])
def test_the_same_bits_with_any_number_of_threads(downlink: str, outer: str) -> None:
    expected = make(downlink, outer)
    made = [(each.digest, bytes(each.delta_bytes)) for each in advance(expected, 3)]
    assert expected.digest == digest(expected.parameters)
    for threads in (2, 3):
        server = make(downlink, outer, threads=threads)
        assert [(each.digest, bytes(each.delta_bytes)) for each in advance(server, 3)] == made
        assert state(server) == state(expected)


@pytest.mark.parametrize(
    ("rule", "options"),
    [("trimmed_mean", {"f": 1}), ("median", {}), ("krum", {"f": 1}), (["nnm", "trimmed_mean"], {"f": 1})],
    ids=str,
)
def test_chunks_are_combined_as_whole_vectors_are(rule: Any, options: dict[str, Any]) -> None:
    expected = aggregation.create(rule, **options)([vector(number) for number in range(1, 6)])
    codec, slots, payloads = compression.create("none"), [], {}
    for number in range(1, 6):
        payloads[number] = codec.encode(vector(number)).to_bytes()
        slots.append(Slot(str(number), ParameterRange(0, SIZE), (Held(number, 1.0, 0),)))
    server = make("none", "sgd", rule, threads=2, codecs=["none"], **options)
    server.aggregate(1, slots, payloads.__getitem__)
    assert torch.equal(server.parameters, vector(0) - expected)


def test_a_held_version_does_not_change_while_later_ones_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "SMALL_BYTES", 0)
    dataset: Any = SimpleNamespace(folder=None, files=list)
    store, server = BlobStore(dataset, "manifest", b"m"), make("int4", "nesterov", threads=2)
    store.publish(server.parameters, server.digest, server.leaves)
    stop, wrong = threading.Event(), list[str]()

    def fetch() -> None:
        """As the event loop does: hold what is newest, then read it in pieces."""
        while not stop.is_set():
            name = server.digest
            store.hold("node", [name])
            pieces = [store.read(name, offset, 9999) for offset in range(0, 4 * SIZE, 9999)]
            if all(piece is not None for piece in pieces):
                content = b"".join(piece for piece in pieces if piece is not None)
                if digest(torch.from_numpy(np.frombuffer(content, np.float32).copy())) != name:
                    wrong.append(name)

    reader = threading.Thread(target=fetch)
    reader.start()
    for version in range(1, 9):
        store.freeze(server.watch)
        advance(server, version)
        store.publish(server.parameters, server.digest, server.leaves)
    stop.set()
    reader.join()
    assert not wrong
    name, before = server.digest, bytes(raw(server.parameters))
    store.hold("node", [name])
    store.freeze(server.watch)
    advance(server, 9)
    store.publish(server.parameters, server.digest, server.leaves)
    assert bytes(store.read(name, 0, 4 * SIZE) or b"") == before
    assert bytes(store.read(server.digest, 0, 4 * SIZE) or b"") == bytes(raw(server.parameters)) != before


def test_without_a_node_that_wants_it_a_large_snapshot_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "SMALL_BYTES", 0)
    dataset: Any = SimpleNamespace(folder=None, files=list)
    store, server = BlobStore(dataset, "manifest", b"m"), make("int4", "sgd")
    store.publish(server.parameters, server.digest, server.leaves)
    name = server.digest
    assert store.read(name, 0, 4) is not None
    store.freeze(server.watch)
    assert store.read(name, 0, 4) is None
    store.hold("node", [name])
    advance(server, 1)
    store.publish(server.parameters, server.digest, server.leaves)
    assert store.read(name, 0, 4) is None
    assert store.read(server.digest, 0, 4) is not None


def test_bounds_that_have_grown_are_measured_before_a_version_is_refused() -> None:
    """Without being looked at they double each time, as if what is left out added up."""
    server = make("int4", "sgd")
    for _ in range(40):
        advance(server, server.version + 4)
    assert float(server.parameters.abs().max()) < 100.0


@pytest.mark.parametrize("downlink", ["none", "int4", "topk"])
@pytest.mark.parametrize("outer", ["sgd", "nesterov", "adam"])
@pytest.mark.parametrize("rule", ["mean", "centered_clipping"])
def test_a_server_that_gets_its_parameters_later_makes_the_same_versions(downlink: str, outer: str, rule: str) -> None:
    """As a host has it, which knows the model's size only once the first checkpoint is read."""
    expected, later = make(downlink, outer, rule), make(downlink, outer, rule, parameters=torch.zeros(1))
    later.load(make(downlink, outer, rule).state(), 0)
    assert [each.digest for each in advance(later, 3)] == [each.digest for each in advance(expected, 3)]
    assert state(later) == state(expected)
