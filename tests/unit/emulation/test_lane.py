"""The packet emulator's lanes: order, rate, queue, loss, brown-outs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.emulation.lane import DROPPED, LOST, SHORTEST_QUEUE, Lane
from barnraise.transport.links.link import BrownOuts, LinkDirection, Outages

WAYS = st.builds(
    LinkDirection, st.floats(1e3, 1e9), st.floats(0.0, 1.0), st.sampled_from([0.0, 0.1]), st.sampled_from([0.0, 0.1])
)
PACKETS = st.lists(st.tuples(st.floats(0.0, 0.5), st.integers(20, 1500)), max_size=60)
DARK = st.none() | st.builds(BrownOuts, st.just(10.0), st.floats(0.1, 9.0))


def play(
    way: LinkDirection, packets: list[tuple[float, int]], dark: BrownOuts | None, seed: int = 0
) -> list[tuple[float, float]]:
    rng = random.Random(seed)
    lane = Lane(way, 0.1, Outages(dark, rng) if dark else None, rng)
    now, found = 0.0, []
    for pause, size in packets:
        now += pause
        found.append((now, lane.send(now, size)))
    assert lane.packets + lane.dropped == len(packets)
    return found


@given(WAYS, PACKETS, DARK)
def test_packets_leave_in_order_and_not_before_their_delay(
    way: LinkDirection, packets: list, dark: BrownOuts | None
) -> None:
    through = [(now, out) for now, out in play(way, packets, dark) if out >= 0.0]
    assert all(out >= now + way.delay for now, out in through)
    assert [out for _, out in through] == sorted(out for _, out in through)


@given(WAYS, PACKETS)
def test_the_rate_is_never_exceeded(way: LinkDirection, packets: list) -> None:
    together = [(0.0, size) for _, size in packets]
    total = 0
    for (_, size), (_, out) in zip(packets, play(way, together, None), strict=True):
        if out == DROPPED:
            continue
        total += size
        assert out == LOST or out >= way.delay + total / way.rate * (1 - 1e-9) - 1e-12


@given(WAYS, PACKETS, DARK)
def test_the_seed_decides(way: LinkDirection, packets: list, dark: BrownOuts | None) -> None:
    assert play(way, packets, dark, 7) == play(way, packets, dark, 7)


def test_a_full_queue_drops() -> None:
    lane = Lane(LinkDirection(1e6, 0.01), 0.1, None, random.Random(0))
    sent = [lane.send(0.0, 1500) for _ in range(1000)]
    taken = sum(out != DROPPED for out in sent) * 1500
    assert SHORTEST_QUEUE <= taken <= SHORTEST_QUEUE + 3000
    assert lane.dropped == sent.count(DROPPED)
    long = Lane(LinkDirection(1e7, 0.3), 0.6, None, random.Random(0))  # a round trip holds more
    taken = sum(long.send(0.0, 1500) != DROPPED for _ in range(10_000)) * 1500
    assert 6e6 <= taken <= 6e6 + 3000


def test_loss_is_as_often_as_asked() -> None:
    lane = Lane(LinkDirection(1e9, 0.0, loss=0.05), 0.0, None, random.Random(1))
    lost = sum(lane.send(now / 1000, 100) == LOST for now in range(20_000))
    assert lost == lane.lost
    assert lost / 20_000 == pytest.approx(0.05, rel=0.1)


def test_a_brown_out_holds_packets_back() -> None:
    rng = random.Random(0)
    dark = Outages(BrownOuts(10.0, 4.0), rng)
    dark.first = 2.0
    lane = Lane(LinkDirection(1e6, 0.05), 0.1, dark, rng)
    assert lane.send(1.0, 1000) == pytest.approx(1.051)
    assert lane.send(3.0, 1000) == pytest.approx(6.051)
    assert lane.send(5.0, 1000) == pytest.approx(6.052)
    full = [lane.send(5.5, 1500) for _ in range(300)]
    assert DROPPED in full, "the queue holds no more in the dark"
