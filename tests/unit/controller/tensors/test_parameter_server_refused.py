"""The parameter server refuses updates that cannot become a version, and stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from barnraise import aggregation, compression, training
from barnraise.compression.catalog import CATALOG
from barnraise.controller.state.actions import Held, Slot
from barnraise.controller.tensors.parameter_server import ParameterServer
from barnraise.core.errors import CorruptionError, InputError, VersionRefusedError
from barnraise.core.types import ParameterRange

from .test_parameter_server import SIZE, Uploads, advance, make_server, slot, vector

HUGE = 3.0e38
OUTER = ["sgd", "nesterov", "delayed_nesterov", "adam"]


def downlinks() -> list[str]:
    """The codecs that can write versions."""
    names = []
    for name in compression.names():
        try:
            compression.create(name)
        except InputError:
            continue
        if CATALOG.entry(name).declares.portable:
            names.append(name)
    return names


def everything(server: ParameterServer) -> dict[str, Any]:
    kept = {name: tensor.clone() for name, tensor in server.state().items()}
    return {"version": server.version, "digest": server.digest} | kept


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value) if isinstance(value, torch.Tensor) else found[name] == value


def refusal(
    server: ParameterServer, version: int, slots: list[Slot], read: Callable[[int], bytes], rate: float = 1.0
) -> VersionRefusedError | None:
    """Why the version is not made; None when it is."""
    try:
        server.aggregate(version, slots, read, rate)
    except VersionRefusedError as error:
        return error
    return None


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("downlink", ["none", "fp16", "int8", "topk"])
def test_huge_values_are_refused_and_leave_no_trace(outer: str, downlink: str) -> None:
    """Finite each, too far in all: after the refusal the next versions are those of a server that never saw them."""
    server, calm = make_server(outer=outer, downlink=(downlink, {})), make_server(outer=outer, downlink=(downlink, {}))
    advance(server, range(1, 4))
    advance(calm, range(1, 4))
    before, uploads = everything(server), Uploads(server)
    wild = torch.full((SIZE,), HUGE)
    wild[::2] *= -1
    for number in range(4):
        uploads.add(number, wild)
    slots = [slot("a", (0, 1.0), (1, 1e300)), slot("b", (2, 1.0), (3, 1.0))]
    for _ in range(2):
        refused = refusal(server, 4, slots, uploads.read, 8.0)
        assert refused is not None
        assert "finite" in refused.reason
        assert (refused.void, refused.lost) == ({}, {})
        assert_same(everything(server), before)
    advance(server, range(4, 9))
    advance(calm, range(4, 9))
    assert_same(everything(server), everything(calm))


@pytest.mark.parametrize("outer", ["sgd", "nesterov", "delayed_nesterov"])
def test_a_model_that_would_overflow_in_time_is_refused_in_time(outer: str) -> None:
    """Version after version of 1e38: each is finite, their sum is not; the last good version stays."""
    server = make_server(outer=outer)
    uploads = Uploads(server)
    uploads.add(1, torch.full((SIZE,), 1e38))
    refusals = [refusal(server, server.version + 1, [slot("a", (1, 1.0))], uploads.read) for _ in range(20)]
    assert refusals[0] is None
    assert refusals[-1] is not None
    assert bool(torch.isfinite(server.parameters).all())


@pytest.mark.parametrize("rule", [("trimmed_mean", {"f": 1}), ("median", {}), ("krum", {"f": 1})], ids=str)
def test_one_nodes_huge_values_stop_no_version_of_a_robust_rule(rule: tuple[str, dict[str, Any]]) -> None:
    server = make_server(rule=rule[0], **rule[1])
    uploads = Uploads(server)
    uploads.add(0, torch.full((SIZE,), HUGE))
    for number in range(1, 5):
        uploads.add(number, 0.01 * vector(number))
    server.aggregate(1, [slot(f"n{number}", (number, 1.0)) for number in range(5)], uploads.read)
    assert float(server.parameters.abs().max()) < 10.0


def test_all_that_cannot_be_used_is_named_at_once() -> None:
    server = make_server(outer="nesterov")
    advance(server, range(1, 3))
    before, uploads = everything(server), Uploads(server)
    for number in range(4):
        uploads.add(number, vector(number))
    uploads.payloads[1] = b"\0"
    uploads.payloads[2] = uploads.payloads[2][:-1]

    def read(number: int) -> bytes:
        if number == 3:
            raise CorruptionError("its checksum")
        return uploads.read(number)

    slots = [slot("a", (0, 1.0), (1, 1.0)), slot("b", (2, 1.0)), slot("c", (3, 1.0))]
    with pytest.raises(VersionRefusedError) as refusal:
        server.aggregate(3, slots, read)
    assert refusal.value.void.keys() == {1, 2}
    assert refusal.value.lost == {3: "its checksum"}
    assert_same(everything(server), before)


@pytest.mark.parametrize("weight", [0.0, float("inf"), float("nan")])
def test_weights_of_an_old_ledger_are_no_reason_to_die(weight: float) -> None:
    server = make_server()
    uploads = Uploads(server)
    uploads.add(1, vector(1))
    with pytest.raises(VersionRefusedError):
        server.aggregate(1, [slot("a", (1, weight), (1, weight)), slot("b", (1, weight))], uploads.read)


def test_slots_that_lost_their_contributions_keep_the_pieces_and_their_scales() -> None:
    server, start = make_server(), make_server().parameters
    uploads = Uploads(server)
    uploads.add(1, torch.ones(SIZE))
    slots = [slot("a", (1, 1.0)), slot("b", span=(0, 400)), slot("c", span=(700, SIZE))]
    server.aggregate(1, slots, uploads.read, 1.0, (0.5, 1.0, 0.25))
    moved = start - server.parameters
    torch.testing.assert_close(moved[:400], torch.full((400,), 0.5))
    torch.testing.assert_close(moved[400:700], torch.full((300,), 1.0))
    torch.testing.assert_close(moved[700:], torch.full((300,), 0.25))


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("downlink", downlinks())
def test_a_version_of_nothing_is_the_one_before(outer: str, downlink: str) -> None:
    """A replica follows it by its delta like any other; momentum and residual rest."""
    server, codec = make_server(outer=outer, downlink=(downlink, {})), compression.create(downlink)
    advance(server, range(1, 4))
    before = everything(server)
    replica = server.parameters.clone()
    made = server.aggregate(4, [slot("a"), slot("b", span=(0, 400))], Uploads(server).read)
    assert made.delta_bytes.nbytes < 1000
    assert made.parameters is not None
    span = slice(*made.parameters)
    replica[span] += codec.decode(bytes(made.delta_bytes), size=span.stop - span.start)
    assert torch.equal(replica, server.parameters)
    assert_same(everything(server), before | {"version": 4, "digest": made.digest})


def test_an_outer_optimizer_that_never_stepped_goes_back_to_that() -> None:
    server = ParameterServer(
        torch.zeros(4),
        0,
        rule=aggregation.create("mean"),
        codecs=[compression.create("none")],
        downlink=compression.create("none"),
        outer=training.create("delayed_nesterov", learning_rate=1000.0),
    )
    uploads = Uploads(server)
    uploads.add(1, torch.full((4,), HUGE))
    uploads.add(2, torch.ones(4))
    share = Slot("a", ParameterRange(0, 4), (Held(1, 1.0, 0),))
    with pytest.raises(VersionRefusedError):
        server.aggregate(1, [share], uploads.read)
    assert (server.outer.steps, server.outer.moments) == (0, {})
    server.aggregate(1, [Slot("a", ParameterRange(0, 4), (Held(2, 1.0, 0),))], uploads.read)
