"""Rules that look at whose updates they are given, and at what they kept of earlier versions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from barnraise import aggregation, compression, training
from barnraise.aggregation.base import Rule
from barnraise.aggregation.chain import Chain
from barnraise.aggregation.context import Context
from barnraise.aggregation.nnm import NearestNeighbourMixing
from barnraise.controller.state.actions import Held, Slot
from barnraise.controller.tensors.parameter_server import ParameterServer
from barnraise.controller.tensors.stages.reducing import FORGOTTEN
from barnraise.core.errors import VersionRefusedError
from barnraise.core.types import ParameterRange

from ..controller.tensors.test_recovery import Run

SIZE = 20_000


class Momentum(Rule):
    """The mean of the nodes' momenta, m <- (m + x) / 2. Counts their updates, and how far these were behind in all."""

    name = "median"  # its declaration fits: unweighted, for any number of updates
    keeps = ("momentum of {node}",)

    def mix_knowing(self, gram: Any, shares: Any, context: Context) -> Any:
        for node, age in zip(context.nodes, context.ages, strict=True):
            count, behind = context.values.get(node, (0, 0))
            context.values[node] = (count + 1, behind + age)
        n = len(context.nodes)
        return np.full((1, 2 * n), 0.5 / n)

    def keep(self, context: Context, read: Callable[[int, Any], None], out: Any) -> None:
        for row, momentum in enumerate(context.kept.values()):
            piece = np.empty_like(momentum)
            read(row, piece)
            momentum += piece
            momentum *= np.float32(0.5)

    def bound_kept(self, largest: Any, out: float) -> float:
        return float(largest.sum())


def make_server(
    threads: int = 1, chunk: int = 1 << 18, rule: Rule | None = None, outer: str = "sgd"
) -> ParameterServer:
    return ParameterServer(
        torch.zeros(SIZE),
        0,
        rule=rule or Momentum(),
        codecs=[compression.create("none")],
        downlink=compression.create("none"),
        outer=training.create("sgd"),
        threads=threads,
        chunk=chunk,
    )


def update(number: int, size: int = SIZE) -> torch.Tensor:
    return 0.01 * torch.randn(size, generator=torch.Generator().manual_seed(number))


def advance(server: ParameterServer, last: int, span: tuple[int, int] = (0, SIZE)) -> list[str]:
    """Versions of two or three of four nodes, the second of which is stale; what they send depends on the version."""
    codec, digests = server.codecs[0], []
    for version in range(server.version + 1, last + 1):
        names = [name for place, name in enumerate("abcd") if place != version % 4 and (place or version % 3)]
        slots, payloads = [], {}
        for place, name in enumerate(names):
            number = 10 * version + place
            payloads[number] = codec.encode(update(number, span[1] - span[0])).to_bytes()
            slots.append(Slot(name, ParameterRange(*span), (Held(number, 1.0, 0, 2 * (place == 1)),)))
        digests.append(server.aggregate(version, slots, payloads.__getitem__).digest)
    return digests


def snapshot(server: ParameterServer) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in server.state().items()}


def same(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> bool:
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_rule_keeps_vectors_and_values_by_the_node() -> None:
    server = make_server()
    advance(server, 6)
    momenta, counts = {name: np.zeros(SIZE, np.float32) for name in "abcd"}, dict[str, list[int]]()
    moved = np.zeros(SIZE)
    for version in range(1, 7):
        names = [name for place, name in enumerate("abcd") if place != version % 4 and (place or version % 3)]
        for place, name in enumerate(names):
            momenta[name] = (momenta[name] + update(10 * version + place).numpy()) * np.float32(0.5)
            count = counts.setdefault(name, [0, 0])
            count[0] += 1
            count[1] += 2 * (place == 1)
        moved -= np.mean([momenta[name] for name in names], axis=0)
    np.testing.assert_allclose(server.parameters.numpy(), moved, rtol=1e-4, atol=1e-7)
    state = server.state()
    for name in "abcd":
        np.testing.assert_allclose(state[f"rule.vector.momentum of {name}"].numpy(), momenta[name], rtol=1e-5)
    assert msgspec.msgpack.decode(state["rule.values"].numpy().tobytes()) == counts


def test_threads_and_chunks_leave_what_is_kept_as_it_is() -> None:
    expected = make_server()
    digests = advance(expected, 5)
    for threads, chunk in itertools.product((1, 2, 3), (1 << 12, 5000, SIZE)):
        server = make_server(threads, chunk)
        assert advance(server, 5) == digests
        assert same(server.state(), expected.state())


def test_the_memory_of_a_rule_is_checkpointed_and_restored() -> None:
    whole, first, second = make_server(), make_server(), make_server()
    digests = advance(whole, 9)
    assert advance(first, 4) == digests[:4]
    second.load(snapshot(first), 4)
    assert advance(second, 9) == digests[4:]
    assert same(second.state(), whole.state())


def test_a_refused_version_leaves_nothing_behind() -> None:
    server = make_server()
    advance(server, 3)
    before, codec = snapshot(server), server.codecs[0]
    payloads = {node: codec.encode(torch.full((SIZE,), 3e38)).to_bytes() for node in (1, 2)}
    slots = [Slot(name, ParameterRange(0, SIZE), (Held(n, 1.0, 0),)) for n, name in ((1, "a"), (2, "new"))]
    for _ in range(2):
        with pytest.raises(VersionRefusedError, match="finite"):
            server.aggregate(4, slots, payloads.__getitem__)
        assert same(server.state(), before)
    calm = make_server()
    assert advance(calm, 6)[3:] == advance(server, 6)


def test_a_fragment_moves_its_own_part_of_what_is_kept() -> None:
    server = make_server()
    advance(server, 4)
    before = snapshot(server)
    advance(server, 5, span=(4096, 8192))
    for name, vector in server.state().items():
        if name.startswith("rule.vector."):
            changed = (vector != before[name]).nonzero()
            assert not len(changed) or 4096 <= int(changed.min()) <= int(changed.max()) < 8192


def test_a_pre_aggregation_before_a_stateful_rule_sees_only_the_updates() -> None:
    chain = Chain([NearestNeighbourMixing(f=1), Momentum()])
    x = torch.randn(5, 50, generator=torch.Generator().manual_seed(0))
    context = Context.first(chain.keeps, 5, 50, np.dtype(np.float32))
    mixed = aggregation.create(["nnm", "mean"], f=1)(x)
    first = chain(x, context=context)
    torch.testing.assert_close(first, mixed / 2)
    kept = np.mean(list(context.kept.values()), axis=0)
    torch.testing.assert_close(chain(x, context=context), mixed / 2 + torch.from_numpy(kept) / 2)


def test_the_memory_of_departed_nodes_is_dropped() -> None:
    """Neither a node that is in a version now and then nor one that came last is forgotten, after a load as well."""
    server, codec = make_server(), compression.create("none")
    payload = codec.encode(update(1)).to_bytes()

    def take(server: ParameterServer, names: str) -> str:
        slots = [Slot(name, ParameterRange(0, SIZE), (Held(1, 1.0, 0),)) for name in names]
        return server.aggregate(server.version + 1, slots, lambda number: payload).digest

    def kept(server: ParameterServer) -> tuple[set[str], set[str]]:
        state = server.state()
        vectors = {name[-1] for name in state if name.startswith("rule.vector.")}
        return vectors, set(msgspec.msgpack.decode(state["rule.values"].numpy().tobytes()))

    take(server, "abc")
    for _ in range(FORGOTTEN - 1):
        take(server, "a")
    again = make_server()
    again.load(snapshot(server), server.version)
    for each in (server, again):
        take(each, "ab")
        assert kept(each) == (set("abc"), set("abc"))
        take(each, "a")
        assert kept(each) == (set("ab"), set("ab"))
    assert take(server, "c") == take(again, "c")
    assert same(server.state(), again.state())


def test_other_rules_keep_nothing() -> None:
    for name in ("mean", "median"):
        server = make_server(rule=aggregation.create(name))
        advance(server, 3)
        assert not [name for name in server.state() if name.startswith("rule.")]


class WithMomentum(Run):
    buffer_size = 2

    def make_rule(self) -> Rule:
        return Momentum()


def test_a_run_with_crashes_keeps_what_the_run_without_keeps(tmp_path: Path) -> None:
    """From a checkpoint, the versions after it are made again with what was kept then."""
    (tmp_path / "whole").mkdir()
    (tmp_path / "broken").mkdir()
    whole = WithMomentum(tmp_path / "whole")
    expected = whole.to_the_end()
    broken, again = WithMomentum(tmp_path / "broken"), 0
    for _ in range(100):
        broken.go_on(3)
        if broken.finished:
            break
        broken.kill()
        broken = WithMomentum(tmp_path / "broken", broken.workers)
        again += len(broken.made)
    assert again > 3
    assert broken.to_the_end() == expected
    assert same(broken.server.state(), whole.server.state())
    assert "rule.vector.momentum of a" in broken.server.state()
    broken.kill()
    whole.kill()
