"""The published parameters: every replica and every replay agrees bit for bit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from barnraise import aggregation, compression, training
from barnraise.aggregation import chain, fallback
from barnraise.aggregation.base import Rule
from barnraise.aggregation.catalog import resolve
from barnraise.controller.state.actions import Held, Slot
from barnraise.controller.tensors.parameter_server import Made, ParameterServer
from barnraise.core.errors import VersionRefusedError
from barnraise.core.ranges import pieces
from barnraise.core.types import Blob, Contribution, ParameterRange
from barnraise.models.vectors import digest

SIZE = 1000
CODECS: list[tuple[str, dict[str, Any]]] = [
    ("none", {}),
    ("fp16", {}),
    ("bf16", {}),
    ("int8", {}),
    ("topk", {"ratio": 0.1}),
    ("topk", {"ratio": 0.1, "half_values": True}),
]


def vector(seed: int, size: int = SIZE) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def make_server(
    size: int = SIZE,
    downlink: tuple[str, dict[str, Any]] = ("none", {}),
    rule: str = "mean",
    outer: str = "sgd",
    codec: tuple[str, dict[str, Any]] = ("none", {}),
    last: Sequence[str] = (),
    alike: bool = False,
    average: float = 0.0,
    **options: Any,
) -> ParameterServer:
    return ParameterServer(
        vector(0, size),
        0,
        rule=aggregation.create(rule, **options),
        codecs=[compression.create(codec[0], **codec[1]), *map(compression.create, last)],
        downlink=compression.create(downlink[0], **downlink[1]),
        outer=training.create(outer),
        alike=alike,
        average=average,
    )


class Uploads:
    """The payloads of a test, by assignment."""

    def __init__(self, server: ParameterServer) -> None:
        self.server = server
        self.payloads: dict[int, bytes] = {}

    def add(self, number: int, update: Tensor) -> None:
        self.payloads[number] = bytes(self.server.codecs[0].encode(update).payload)

    def read(self, number: int) -> bytes:
        return self.payloads[number]


def slot(node: str, *contributions: tuple[Any, ...], span: tuple[int, int] = (0, SIZE)) -> Slot:
    """Contributions are (number, weight), or (number, weight, codec)."""
    held = tuple(Held(number, weight, *codec or (0,)) for number, weight, *codec in contributions)
    return Slot(node, ParameterRange(*span), held)


def offer(codec: int = 0, size: int = SIZE) -> Contribution:
    return Contribution(
        assignment=1,
        base=0,
        parameters=ParameterRange(0, size),
        payload=Blob("0" * 64, 1),
        steps=1,
        loss=1.0,
        seconds=1.0,
        codec=codec,
    )


def advance(server: ParameterServer, versions: range, size: int = SIZE) -> list[Made]:
    """Some versions of five nodes each; what they contribute depends on the version alone."""
    uploads, made = Uploads(server), []
    for version in versions:
        slots = []
        for node in range(5):
            number = 10 * version + node
            uploads.add(number, 0.01 * vector(number, size))
            slots.append(slot(f"n{node}", (number, 1.0 + node), span=(0, size)))
        made.append(server.aggregate(version, slots, uploads.read))
    return made


@pytest.mark.parametrize("codec", [("none", {}), ("topk", {"ratio": 0.1})])
@pytest.mark.parametrize("others", [0, 1], ids=["alone in its slot", "beside another"])
def test_a_shortened_update_is_the_same_as_one_that_was_sent_shorter(
    codec: tuple[str, dict[str, Any]], others: int
) -> None:
    made = []
    for sent, scale in ((1.0, 0.25), (0.25, 1.0)):
        server = make_server(codec=codec)
        uploads = Uploads(server)
        uploads.add(1, sent * vector(1))
        uploads.add(2, vector(2))
        uploads.add(3, vector(3))
        both = (Held(1, 2.0, 0, scale=scale), *[Held(2, 1.0, 0)] * others)
        slots = [Slot("a", ParameterRange(0, SIZE), both), slot("b", (3, 1.0))]
        server.aggregate(1, slots, uploads.read)
        made.append(server.parameters)
    torch.testing.assert_close(*made, rtol=1e-6, atol=1e-7)
    assert others or torch.equal(*made), "a factor that is a power of two rounds nothing"


def test_a_version_is_named_by_the_tree_of_hashes_of_its_float32_bytes() -> None:
    server = make_server()
    (made,) = advance(server, range(1, 2))
    leaf = hashlib.sha256(server.parameters.numpy().astype("<f4").tobytes())
    expected = hashlib.sha256(leaf.digest() + (4 * SIZE).to_bytes(8, "little")).hexdigest()
    assert made.digest == server.digest == expected
    assert made.delta.digest == hashlib.sha256(made.delta_bytes).hexdigest()
    assert made.delta.num_bytes == len(made.delta_bytes)


@pytest.mark.parametrize("downlink", CODECS, ids=str)
def test_a_replica_that_applies_the_deltas_agrees_bit_for_bit(downlink: tuple[str, dict[str, Any]]) -> None:
    server = make_server(downlink=downlink)
    codec = compression.create(downlink[0], **downlink[1])
    replica = server.parameters.clone()
    for version in range(1, 6):
        (made,) = advance(server, range(version, version + 1))
        replica += codec.decode(bytes(made.delta_bytes), size=SIZE)
        assert torch.equal(replica, server.parameters)
        assert digest(replica) == made.digest


def test_an_average_weights_versions_by_a_power_of_their_number_and_moves_none_of_them() -> None:
    server, plain = make_server(average=0.25), make_server()
    versions = [server.parameters.clone()]
    for version in range(1, 9):
        (made,) = advance(server, range(version, version + 1))
        (expected,) = advance(plain, range(version, version + 1))
        assert made.digest == expected.digest
        versions.append(server.parameters.clone())
    weights = [1.0]
    for version in range(1, 9):
        new = 1 / (1 + version / 4)
        weights = [*(weight * (1 - new) for weight in weights), new]
    wanted = torch.stack([weight * each for weight, each in zip(weights, versions, strict=True)]).sum(0)
    torch.testing.assert_close(server.average, wanted)
    assert torch.equal(plain.average, plain.parameters)


@pytest.mark.parametrize("downlink", CODECS[1:], ids=str)
def test_the_residual_of_a_lossy_downlink_is_sent_later(downlink: tuple[str, dict[str, Any]]) -> None:
    lossless, lossy = make_server(), make_server(downlink=downlink)
    advance(lossless, range(1, 6))
    advance(lossy, range(1, 6))
    assert "residual" not in lossless.state()
    torch.testing.assert_close(lossy.parameters + lossy.state()["residual"], lossless.parameters, rtol=0, atol=1e-5)
    behind = torch.linalg.vector_norm(lossless.parameters - lossy.parameters)
    uploads = Uploads(lossy)
    uploads.add(1, torch.zeros(SIZE))
    for version in range(6, 26):  # nothing new: the rest trickles out
        lossy.aggregate(version, [slot("a", (1, 1.0))], uploads.read)
    assert torch.linalg.vector_norm(lossless.parameters - lossy.parameters) < 0.02 * behind + 1e-5


def test_a_slot_is_the_weighted_mean_of_a_nodes_contributions() -> None:
    server = make_server()
    start, uploads = server.parameters.clone(), Uploads(server)
    for number in (1, 2, 3):
        uploads.add(number, vector(number))
    server.aggregate(1, [slot("a", (1, 300.0), (2, 100.0)), slot("b", (3, 400.0))], uploads.read)
    expected = start - (300 * vector(1) + 100 * vector(2) + 400 * vector(3)) / 800
    torch.testing.assert_close(server.parameters, expected)


def test_nodes_that_weigh_alike_pull_no_harder_for_more_steps() -> None:
    """The version scales updates to equal steps, whatever tokens and tasks they took (FedNova, Wang et al., 2020)."""
    server = make_server(alike=True)
    start, uploads = server.parameters.clone(), Uploads(server)
    for number, update in ((1, vector(1)), (2, vector(1)), (3, -vector(1))):
        uploads.add(number, update)
    server.aggregate(1, [slot("a", (1, 5120.0), (2, 5120.0)), slot("b", (3, 512.0))], uploads.read)
    torch.testing.assert_close(server.parameters, start)
    stale = Slot("b", ParameterRange(0, SIZE), (Held(3, 256.0, 0),), fresh_weight=512.0)
    server.aggregate(2, [slot("a", (1, 5120.0)), stale], uploads.read)
    torch.testing.assert_close(server.parameters, start - vector(1) / 3)


def test_robust_rules_count_slots_alike() -> None:
    server = make_server(rule="median")
    start, uploads = server.parameters.clone(), Uploads(server)
    for number in (1, 2, 3):
        uploads.add(number, vector(number))
    server.aggregate(1, [slot(f"n{n}", (n, 10.0**n)) for n in (1, 2, 3)], uploads.read)
    expected = torch.stack([vector(n) for n in (1, 2, 3)]).median(0).values
    torch.testing.assert_close(server.parameters, start - expected)


def doubted(node: str, number: int, trust: float) -> Slot:
    return Slot(node, ParameterRange(0, SIZE), (Held(number, 100.0 * trust, 0, 0, trust),), 100.0 * trust)


CHAIN = resolve(["clip_median", "nnm", "trimmed_mean"], {"f": 0.3})


@pytest.mark.parametrize(
    ("rule", "trusted", "left_out"),
    [
        (lambda: aggregation.create("median"), 3, True),
        (lambda: aggregation.create("krum", f=1), 5, True),
        (lambda: aggregation.create("krum", f=1), 4, False),  # which is too few for it
        (lambda: chain.build(CHAIN), 5, True),
        (lambda: fallback.build(CHAIN, "mean"), 5, True),
        (lambda: fallback.build(CHAIN, "mean"), 3, False),  # without the fourth a mean would be made of them
    ],
)
def test_a_hardly_trusted_node_has_no_vote_in_an_unweighted_rule(
    rule: Callable[[], Rule], trusted: int, left_out: bool
) -> None:
    """The version is made of the others, if they are enough for the rule; `trust` of a half or more has a vote."""

    def made(*slots: Slot) -> Tensor:
        server = ParameterServer(
            vector(0),
            0,
            rule=rule(),
            codecs=[compression.create("none")],
            downlink=compression.create("none"),
            outer=training.create("sgd"),
        )
        uploads = Uploads(server)
        for number in range(9):
            uploads.add(number, vector(number) * (0.1 if number == 0 else 1.0))
        server.aggregate(1, slots, uploads.read)
        return server.parameters.clone()

    others = [slot(f"n{number}", (number, 100.0)) for number in range(1, 1 + trusted)]
    both = made(*others, slot("x", (0, 100.0)))
    found = made(*others, doubted("x", 0, 0.4))
    assert torch.equal(found, both) is not left_out
    assert not left_out or torch.equal(found, made(*others))
    assert torch.equal(made(*others, doubted("x", 0, 0.6)), both)


def test_a_less_trusted_node_weighs_less_among_equal_weights() -> None:
    server = make_server(alike=True)
    start, uploads = server.parameters.clone(), Uploads(server)
    for number in (1, 2):
        uploads.add(number, vector(number))
    server.aggregate(1, [slot("a", (1, 100.0)), doubted("b", 2, 0.25)], uploads.read)
    torch.testing.assert_close(server.parameters, start - (vector(1) + 0.25 * vector(2)) / 1.25)


def test_each_range_of_the_parameters_is_aggregated_by_itself() -> None:
    server = make_server()
    start, uploads = server.parameters.clone(), Uploads(server)
    for number, size in ((1, 400), (2, 400), (3, 100)):
        uploads.add(number, vector(number, size))
    slots = [
        slot("a", (1, 1.0), span=(0, 400)),
        slot("c", (3, 1.0), span=(600, 700)),
        slot("b", (2, 3.0), span=(0, 400)),
    ]
    server.aggregate(1, slots, uploads.read)
    expected = start.clone()
    expected[:400] -= (vector(1, 400) + 3 * vector(2, 400)) / 4
    expected[600:700] -= vector(3, 100)
    torch.testing.assert_close(server.parameters, expected)
    assert torch.equal(server.parameters[400:600], start[400:600])


def test_the_rate_scales_the_step() -> None:
    server = make_server()
    start, uploads = server.parameters.clone(), Uploads(server)
    uploads.add(1, vector(1))
    server.aggregate(1, [slot("a", (1, 1.0))], uploads.read, 0.25)
    torch.testing.assert_close(server.parameters, start - 0.25 * vector(1))


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("outer", ["sgd", "nesterov", "delayed_nesterov", "adam"])
@pytest.mark.parametrize("rule", ["mean", "trimmed_mean", "krum"])
def test_a_replay_from_a_checkpoint_makes_the_same_versions_with_any_number_of_threads(outer: str, rule: str) -> None:
    size = 100_000
    options: dict[str, Any] = {"trimmed_mean": {"trim_ratio": 0.2}, "krum": {"f": 1}}.get(rule, {})

    def server() -> ParameterServer:
        return make_server(size, ("int8", {}), rule, outer, ("topk", {"ratio": 0.05}), **options)

    torch.set_num_threads(1)
    first = server()
    advance(first, range(1, 3), size)
    saved = {name: tensor.clone() for name, tensor in first.state().items()}
    expected = [made.digest for made in advance(first, range(3, 6), size)]
    for count in (1, 2):
        torch.set_num_threads(count)
        again = server()
        again.load({name: tensor.clone() for name, tensor in saved.items()}, 2)
        assert [made.digest for made in advance(again, range(3, 6), size)] == expected


def test_a_share_of_attackers_is_of_those_in_the_version() -> None:
    """Two of ten nodes lie, and one of five: with a share of a fifth both versions are those of a whole f."""

    def made(*wholes: Any) -> list[Tensor]:
        found = []
        for f, count in zip(wholes, (10, 5), strict=True):
            server = make_server(rule="trimmed_mean", f=f)
            uploads = Uploads(server)
            for node in range(count):
                lie = 1e6 if node < count // 5 else 0.0
                uploads.add(node, 0.01 * vector(node) + lie)
            server.aggregate(1, [slot(f"n{node}", (node, 1.0)) for node in range(count)], uploads.read)
            found.append(server.parameters.clone())
        return found

    by_share, whole = made(0.2, 0.2), made(2, 1)
    assert all(map(torch.equal, by_share, whole))
    assert all(float(parameters.abs().max()) < 10.0 for parameters in by_share)


def test_a_chain_keeps_the_same_memory_with_a_share_as_with_a_count() -> None:
    def state(f: float) -> dict[str, Tensor]:
        server = make_server(rule=["nnm", "centered_clipping"], f=f)  # type: ignore[arg-type]
        advance(server, range(1, 4))
        return server.state() | {"parameters": server.parameters}

    by_share, whole = state(0.2), state(1)
    assert "rule.vector.previous" in by_share
    assert by_share.keys() == whole.keys()
    assert all(torch.equal(by_share[name], whole[name]) for name in whole)


def test_inspection_measures_and_refuses() -> None:
    server = make_server(codec=("topk", {"ratio": 0.1}))
    update = torch.zeros(SIZE)
    update[[3, 70]] = torch.tensor([3.0, -4.0])
    payload = bytes(server.codecs[0].encode(update).payload)
    assert server.inspect(payload, offer()) == (5.0, "")
    for bad in (payload[:-1], b"", b"tk32", compression.create("none").encode(update).payload):
        norm, reason = server.inspect(bad, offer())
        assert norm == 0.0
        assert reason
    assert server.inspect(payload, offer(size=SIZE - 1))[1]
    spoiled = bytearray(payload)
    spoiled[-4:] = b"\x00\x00\xc0\x7f"  # NaN
    assert server.inspect(bytes(spoiled), offer())[1]


def test_inspection_looks_as_deep_as_the_kind_of_task_says() -> None:
    server = make_server(codec=("topk", {"ratio": 0.1}))
    payload = bytes(server.codecs[0].encode(vector(1)).payload)
    numbers, header = bytearray(payload), bytearray(payload)
    numbers[-4:], header[:4] = b"\x00\x00\xc0\x7f", b"none"
    found = {
        depth: [server.inspect(bytes(each), offer(), depth) for each in (payload, numbers, header)]
        for depth in ("none", "header", "full")
    }
    assert found["none"] == [(0.0, "")] * 3
    assert found["header"][:2] == [(0.0, "")] * 2
    assert "the payload says" in found["header"][2][1]
    assert found["full"][0][0] > 0.0
    assert all(reason for _, reason in found["full"][1:])


@pytest.mark.parametrize("known", [True, False])
def test_a_payload_is_opened_by_the_codec_that_its_contribution_names(known: bool) -> None:
    """Or, where a ledger does not say, by the one that wrote it."""
    server = make_server(codec=("topk", {"ratio": 0.1}), last=["fp16"])
    usual, last = server.codecs
    start, codecs = server.parameters.clone(), (1, 0) if known else (-1, -1)
    payloads = {1: bytes(last.encode(vector(1)).payload), 2: bytes(usual.encode(vector(2)).payload)}
    assert [server.inspect(payloads[number + 1], offer(codecs[number]))[1] for number in (0, 1)] == ["", ""]
    decoded = last.decode(payloads[1], SIZE), usual.decode(payloads[2], SIZE)
    server.aggregate(1, [slot("a", (1, 1.0, codecs[0]), (2, 1.0, codecs[1]))], payloads.__getitem__)
    torch.testing.assert_close(server.parameters, start - (decoded[0] + decoded[1]) / 2)


def test_a_payload_in_another_codec_than_its_contribution_names_is_none() -> None:
    server = make_server(codec=("topk", {"ratio": 0.1}), last=["fp16"])
    payload, before = bytes(server.codecs[1].encode(vector(1)).payload), server.parameters.clone()
    assert "codec 'topk': a payload of" in server.inspect(payload, offer(0))[1]
    for codec in (0, 2, 2**53, -2):
        with pytest.raises(VersionRefusedError) as refused:
            server.aggregate(1, [slot("a", (1, 1.0, codec))], lambda number: payload)
        assert refused.value.void.keys() == {1}
        assert torch.equal(server.parameters, before)
    assert "codec 2, but this run has 2" in server.inspect(payload, offer(2))[1]


@pytest.mark.parametrize("downlink", [("none", {}), ("int8", {}), ("topk", {"ratio": 0.1})], ids=str)
def test_a_fragment_moves_alone_and_replicas_follow_by_its_delta(downlink: tuple[str, dict[str, Any]]) -> None:
    server, codec = make_server(downlink=downlink), compression.create(downlink[0], **downlink[1])
    uploads, replica = Uploads(server), server.parameters.clone()
    for version in range(1, 7):
        span = (0, 400) if version % 2 else (400, SIZE)
        uploads.add(version, 0.1 * vector(version, span[1] - span[0]))
        before = server.parameters.clone()
        made = server.aggregate(version, [slot("a", (version, 1.0), span=span)], uploads.read)
        assert made.parameters == ParameterRange(*span)
        changed = server.parameters != before
        assert bool(changed[span[0] : span[1]].any())
        assert int(changed.sum()) == int(changed[span[0] : span[1]].sum())
        replica[span[0] : span[1]] += codec.decode(bytes(made.delta_bytes), size=span[1] - span[0])
        assert torch.equal(replica, server.parameters)


def test_fragments_of_one_version_move_by_their_own_shares() -> None:
    server = make_server()
    uploads, start = Uploads(server), server.parameters.clone()
    for number, size in ((1, 400), (2, 600)):
        uploads.add(number, torch.ones(size))
    slots = [slot("b", (2, 1.0), span=(400, SIZE)), slot("a", (1, 1.0), span=(0, 400))]
    made = server.aggregate(1, slots, uploads.read, 0.5, (1.0, 0.5))
    assert made.parameters is None  # together they are all
    moved = start - server.parameters
    torch.testing.assert_close(moved[:400], torch.full((400,), 0.5))
    torch.testing.assert_close(moved[400:], torch.full((600,), 0.25))


def test_ranges_that_overlap_are_averaged_piece_by_piece() -> None:
    """One node submits all, one the first half, one the second: each element is the mean of those that have it."""
    server = make_server()
    uploads, start = Uploads(server), server.parameters.clone()
    for number, size, value in ((1, SIZE, 1.0), (2, 400, 3.0), (3, 300, 5.0)):
        uploads.add(number, torch.full((size,), value))
    slots = [
        slot("a", (1, 1.0), span=(0, SIZE)),
        slot("b", (2, 1.0), span=(0, 400)),
        slot("c", (3, 3.0), span=(700, SIZE)),
    ]
    made = server.aggregate(1, slots, uploads.read, 1.0, (1.0, 1.0, 0.5))
    assert made.parameters is None
    moved = start - server.parameters
    torch.testing.assert_close(moved[:400], torch.full((400,), 2.0))
    torch.testing.assert_close(moved[400:700], torch.full((300,), 1.0))
    torch.testing.assert_close(moved[700:], torch.full((300,), 2.0))


@pytest.mark.parametrize("downlink", [("none", {}), ("int8", {}), ("topk", {"ratio": 0.1})], ids=str)
@pytest.mark.parametrize("outer", ["sgd", "nesterov"])
def test_several_ranges_move_as_if_they_were_a_vector_of_their_own(
    downlink: tuple[str, dict[str, Any]], outer: str
) -> None:
    """The result is that of a model of the ranges alone; elements in the gaps rest, and no delta has them."""
    covered, codec = (3, 300, 301, 620, 900, SIZE), compression.create(downlink[0], **downlink[1])
    inside = torch.cat([torch.arange(start, stop) for start, stop in pieces(covered)])
    server, alone = (
        make_server(downlink=downlink, outer=outer),
        make_server(len(inside), downlink=downlink, outer=outer),
    )
    alone.parameters[:] = server.parameters[inside]
    uploads, replica, before = Uploads(server), server.parameters.clone(), server.parameters.clone()
    for version in range(1, 4):
        uploads.add(1, vector(version, len(inside)))
        uploads.add(2, vector(-version, len(inside)))
        held = (Held(1, 2.0, 0, scale=0.5),), (Held(2, 1.0, 0),)
        made = server.aggregate(version, [Slot(f"n{n}", covered, h) for n, h in enumerate(held)], uploads.read)
        alone.aggregate(version, [Slot(f"n{n}", (0, len(inside)), h) for n, h in enumerate(held)], uploads.read)
        assert made.parameters == covered
        assert torch.equal(server.parameters[inside], alone.parameters)
        assert made.delta == alone.made.delta if alone.made else False
        replica[inside] += codec.decode(bytes(made.delta_bytes), size=len(inside))
    rest = torch.ones(SIZE, dtype=torch.bool)
    rest[inside] = False
    assert torch.equal(server.parameters[rest], before[rest])
    assert torch.equal(replica, server.parameters)
    assert made.digest == digest(server.parameters)
    found = server.movement(made)
    assert (found.where, found.update.size) == (covered, len(inside))


def test_a_whole_update_and_one_of_several_ranges_are_averaged_piece_by_piece() -> None:
    server = make_server()
    uploads, start = Uploads(server), server.parameters.clone()
    uploads.add(1, torch.full((SIZE,), 1.0))
    uploads.add(2, torch.cat([torch.full((100,), 3.0), torch.full((50,), 5.0)]))
    made = server.aggregate(
        1,
        [slot("a", (1, 1.0)), Slot("b", (0, 100, 500, 550), (Held(2, 1.0, 0),))],
        uploads.read,
        1.0,
        (1.0, 1.0, 0.5, 1.0),
    )
    assert made.parameters is None
    moved = start - server.parameters
    for span, value in (((0, 100), 2.0), ((100, 500), 1.0), ((500, 550), 1.5), ((550, SIZE), 1.0)):
        torch.testing.assert_close(moved[slice(*span)], torch.full((span[1] - span[0],), value))


def test_momentum_of_a_fragment_rests_while_others_move() -> None:
    alone, turns = make_server(size=400, outer="nesterov"), make_server(outer="nesterov")
    turns.parameters[:400] = alone.parameters
    for version in range(1, 4):
        update = vector(version, 400)
        single, several = Uploads(alone), Uploads(turns)
        single.add(1, update)
        alone.aggregate(version, [slot("a", (1, 1.0), span=(0, 400))], single.read)
        several.add(1, update)
        several.add(2, vector(version, 600))
        turns.aggregate(2 * version - 1, [slot("a", (1, 1.0), span=(0, 400))], several.read)
        turns.aggregate(2 * version, [slot("a", (2, 1.0), span=(400, SIZE))], several.read)
        assert torch.equal(turns.parameters[:400], alone.parameters)
