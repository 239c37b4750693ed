"""A link keeps the order inside a class and its rate for all messages, and the seed decides the rest."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from barnraise.transport.links.link import BrownOuts, Link, LinkDirection

SHARES = st.sampled_from([0.0, 0.001, 0.05, 0.5])
WAYS = st.builds(
    LinkDirection, st.floats(1e3, 1e9), st.floats(0.0, 2.0), st.sampled_from([0.0, 0.01, 1.0]), SHARES, SHARES
)
DARK = st.none() | st.floats(1.0, 100.0).flatmap(
    lambda every: st.builds(BrownOuts, st.just(every), st.floats(0.01 * every, 0.9 * every))
)
LINKS = st.builds(Link, WAYS, WAYS, DARK, st.none() | WAYS, st.none() | WAYS)
SENDS = st.lists(st.tuples(st.floats(0.0, 10.0), st.integers(1, 1 << 20), st.booleans()), max_size=40)


def play(link: Link, sends: list[tuple[float, int, bool]], seed: int = 0) -> list[tuple[float, ...]]:
    up, _ = link.states(random.Random(seed))
    now, arrivals = 0.0, []
    for pause, size, small in sends:
        now += pause
        arrivals.append(up.send(now, size, small=small))
    return arrivals


@given(LINKS, SENDS)
def test_arrivals_never_go_back_in_a_class_and_never_precede_the_delay(link: Link, sends: list) -> None:
    last = {True: 0.0, False: 0.0}
    now = 0.0
    for (pause, _, small), times in zip(sends, play(link, sends), strict=True):
        now += pause
        delay = (link.small_up or link.up).delay if small else link.up.delay
        assert times[0] >= now + delay
        assert times[0] >= last[small]
        if not small:
            assert times[0] >= last[True]
        last[small] = times[-1]


@given(LINKS, SENDS)
def test_bulk_never_exceeds_the_rate(link: Link, sends: list) -> None:
    """From any time on, the link takes at least the time that its rate gives for the bytes that arrive."""
    bulk = [(pause, size, False) for pause, size, _ in sends]
    times = [arrival[0] - link.up.delay for arrival in play(link, bulk)]
    now, total = 0.0, 0
    for index, (pause, size, _) in enumerate(bulk):
        now += pause
        total += size
        if index == 0:
            first = now
        assert times[index] - first >= total / link.up.rate * (1 - 1e-9) - 1e-6


@given(LINKS, SENDS)
def test_small_messages_count_too(link: Link, sends: list) -> None:
    """A message that follows a crowd of small messages starts after their bytes."""
    up, _ = link.states(random.Random(0))
    for _, size, small in sends:
        up.send(0.0, size, small=small)
    total = sum(size for _, size, _ in sends)
    assert up.free >= total / link.up.rate * (1 - 1e-9) - 1e-6


@given(LINKS, SENDS, st.integers(0, 3))
def test_the_seed_decides(link: Link, sends: list, seed: int) -> None:
    assert play(link, sends, seed) == play(link, sends, seed)
