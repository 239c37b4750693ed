"""Link models: presets, figures in words, and how long messages take."""

from __future__ import annotations

import random

import pytest

from barnraise.config import load
from barnraise.core.errors import InputError, OptionError, RunFileError, UnknownNameError
from barnraise.plan import resolve
from barnraise.plan.links import link_of, live_link
from barnraise.transport.links.link import BrownOuts, Link, LinkDirection
from barnraise.transport.links.presets import LINKS, MBIT, REGIONS, SUMMARIES, described, link, parse

RUN = {"model": {"architecture": "gpt2"}, "data": {"kind": "text", "files": ["x"]}}


def states(found: Link, seed: int = 0):
    return found.states(random.Random(seed))


def test_every_preset_has_a_summary_and_can_be_read() -> None:
    assert LINKS.keys() == SUMMARIES.keys()
    for name in LINKS:
        assert parse(name) == link(name)


def test_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'cellular'"):
        parse("celular")


@pytest.mark.parametrize("text", ["10mbt", "10mbit/50", "10mbit/1mbit/3mbit", "good/50ms/1ms/2ms", "1%/2%", "good/"])
def test_an_unreadable_link_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="10mbit/50ms"):
        parse(text)


@pytest.mark.parametrize("text", ["0kbit/50ms", "900gbit/1ms", "1mbit/90s", "1mbit/1ms/60%"])
def test_figures_have_limits(text: str) -> None:
    with pytest.raises(OptionError, match="is not between"):
        parse(text)


def test_figures() -> None:
    found = parse("2mbit, 10mbit, 50ms, 5ms, 0.1%")
    assert found.up == LinkDirection(2 * MBIT, 0.05, 0.005, 0.001)
    assert found.down == LinkDirection(10 * MBIT, 0.05, 0.005, 0.001)
    assert parse("500kbit/1s").up == LinkDirection(0.5 * MBIT, 1.0)
    assert parse("satellite/1%").up == LinkDirection(5 * MBIT, 0.3, 0.01, 0.01)
    assert described(LINKS["brownout"]).endswith("dark for 8 s every 120 s")


def test_ten_regions_go_round() -> None:
    found = [parse("ten-regions", index) for index in range(11)]
    assert len(set(found)) == 10
    assert found[0] == found[10]
    assert [round(1000 * each.round_trip) for each in found[:10]] == [ms for _, ms, _ in REGIONS]
    assert (min(ms for _, ms, _ in REGIONS), max(ms for _, ms, _ in REGIONS)) == (11, 265)


def test_bulk_takes_its_turn_and_small_messages_do_not_wait() -> None:
    up, _ = states(parse("8mbit/100ms"))  # 1 MB/s
    assert up.send(0.0, 500_000, small=False) == (0.6,)
    assert up.send(0.0, 500_000, small=False) == (1.1,)
    assert up.send(0.0, 1000, small=True) == (0.101,)
    assert up.send(0.0, 500_000, small=False) == (pytest.approx(1.601),)  # the line carried the small one too
    assert up.send(9.0, 1000, small=False) == (pytest.approx(9.101),)


def test_bulk_does_not_overtake_a_small_message_sent_before() -> None:
    found = Link(LinkDirection(1e6, 0.1), LinkDirection(1e6, 0.1), small_up=LinkDirection(1e6, 3.0))
    up, _ = states(found)
    small = up.small(0.0, 100)
    assert up.bulk(0.0, 100) >= small


def test_loss_costs_bulk_its_rate_by_mathis() -> None:
    found = parse("100mbit/50ms/1%".replace("/1%", "/0ms/1%"))
    assert found.throughput(found.up) == pytest.approx(1.22 * 1448 / (0.1 * 0.1))
    up, _ = states(found)
    assert up.bulk(0.0, 1_000_000) == pytest.approx(1_000_000 / found.throughput(found.up) + 0.05)
    assert parse("1mbit/1ms/0ms/0.01%").throughput(parse("1mbit/1ms/0ms/0.01%").up) == 1 * MBIT


def test_loss_costs_small_messages_timeouts_that_double() -> None:
    up, _ = states(parse("100mbit/50ms/0ms/50%"))
    waits = set()
    for number in range(2000):
        now = number * 1000.0
        waits.add(round(up.small(now, 100) - now - 0.05, 3))
    assert {0.0, 0.3, 0.9, 2.1} <= waits  # a round trip and 0.2 s, then twice that


def test_only_small_messages_may_fare_badly() -> None:
    run = load({**RUN, "network": {"profile": "good", "small_loss": 0.5}})
    up, _ = states(link_of(run, 0))
    plain, _ = states(LINKS["good"])
    assert up.bulk(0.0, 10_000) == plain.bulk(0.0, 10_000)
    assert not up.steady
    assert any(up.small(now * 100.0, 100) > now * 100.0 + 0.1 for now in range(1, 20))


def test_duplicates_follow_the_first() -> None:
    found = LINKS["good"].changed(duplication=0.5)
    up, _ = states(found)
    counts = [len(up.send(float(now), 100, small=True)) for now in range(1000)]
    assert 400 < counts.count(2) < 600
    first, second = next(times for now in range(9) if len(times := up.send(1e4 + now, 100, small=True)) == 2)
    assert first == second
    assert len(up.send(2e4, 100, small=False)) == 1


def test_brown_outs_stall_both_ways_at_the_same_time() -> None:
    found = Link(LinkDirection(1e6, 0.0), LinkDirection(1e6, 0.0), BrownOuts(10.0, 4.0))
    up, down = states(found, 3)
    assert up._dark is down._dark
    dark = up._dark
    assert dark is not None
    dark.first = 6.0
    assert up.bulk(5.5, 1_000_000) == pytest.approx(10.5)  # half before, half after
    assert down.small(7.0, 1000) == pytest.approx(10.001)
    assert [dark.dark(now) for now in (5.9, 6.1, 9.9, 10.1, 16.1)] == [False, True, True, False, True]


def test_run_file_figures_count_instead_of_the_profile() -> None:
    network = {"profile": "cellular", "rate_mbps": 3, "delay_ms": 7, "jitter_ms": 0, "loss": 0, "duplication": 0.1}
    run = load({**RUN, "network": network})
    assert link_of(run, 0).up == LinkDirection(3 * MBIT, 0.007, 0.0, 0.0, 0.1)
    assert live_link(run, 0) == link_of(run, 0)
    assert live_link(load(RUN), 0) is None


def test_worker_link_counts_instead_of_the_network() -> None:
    workers = [{"name": "a"}, {"name": "b", "link": "1mbit/9ms"}]
    run = load({**RUN, "network": {"profile": "good", "loss": 0.1}, "workers": workers})
    assert link_of(run, 0, run.workers[0]).up.loss == 0.1
    assert link_of(run, 1, run.workers[1]).up == parse("1mbit/9ms").up


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"network": {"profile": "celular"}}, "did you mean 'cellular'"),
        ({"workers": [{"name": "a", "link": "10 mbit"}]}, "workers\\[0\\].link"),
        ({"network": {"controller_link": "10mbt"}}, "network.controller_link"),
        ({"network": {"brownout_every": 10}}, "brownout_seconds"),
        ({"network": {"brownout_every": 10, "brownout_seconds": 9.5}}, "at most 90% of brownout_every"),
        ({"network": {"loss": 0.7}}, "from 0 to 0.5"),
    ],
)
def test_run_files_that_cannot_work(sections: dict[str, object], said: str) -> None:
    with pytest.raises((InputError, RunFileError), match=said):
        resolve(load({**RUN, **sections}))
