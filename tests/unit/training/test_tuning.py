"""The tuning of what a node sends and how often: exchanges hide behind computation where possible."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.controller.state import events as ev
from barnraise.core.types import SLOWEST_LINE, LinkReport, NodeProfile, ParameterRange
from barnraise.ledger.decisions import Assigned, Noted
from barnraise.training.tuning import CLIMB_SHARE, SHARE, MeasuredNode, TunedTask, TuningChoices, tune
from barnraise.wire.messages import RequestTask
from barnraise.worker import measure

from ...state_machine.engine import Engine, changed, engine_settings

RUNGS = (10_000, 20_000, 40_000, 80_000, 160_000)
CHOICES = TuningChoices(RUNGS, (1,), 20, 200)
FIRST = TunedTask(0, 20)


def test_nothing_changes_while_nothing_is_known() -> None:
    assert tune(MeasuredNode(0.1, 0.05, 0.0, 0.0), TunedTask(2, 30), CHOICES, 10_000) == TunedTask(2, 30)


def test_a_fast_link_carries_the_densest_payload() -> None:
    assert tune(MeasuredNode(0.1, 0.05, 1e6, 1e6), FIRST, CHOICES, 10_000) == TunedTask(4, 20)


def test_a_slow_link_gets_the_smallest_and_longer_tasks() -> None:
    # 10,050 ms up at the least, in tasks of 2 s: H must be 126 for it to be four fifths of a task
    assert tune(MeasuredNode(0.1, 0.05, 1e3, 1e6), TunedTask(3, 20), CHOICES, 10_000) == TunedTask(0, 126)
    assert tune(MeasuredNode(0.1, 0.05, 1e2, 1e6), TunedTask(3, 20), CHOICES, 10_000) == TunedTask(0, 200)


def test_a_slow_way_down_makes_longer_tasks_too() -> None:
    assert tune(MeasuredNode(0.1, 0.0, 1e6, 1e3), FIRST, CHOICES, 8_000) == TunedTask(4, 100)


def test_the_choice_goes_back_when_the_link_does() -> None:
    slow, fast = MeasuredNode(0.1, 0.05, 1e3, 1e6), MeasuredNode(0.1, 0.05, 1e6, 1e6)
    down = tune(slow, TunedTask(4, 20), CHOICES, 10_000)
    assert tune(fast, down, CHOICES, 10_000) == TunedTask(4, 20)


def test_a_link_that_wavers_does_not_make_the_choice_waver() -> None:
    now, seen = TunedTask(2, 20), set()
    for up in (30_000, 36_000, 31_000, 38_000) * 3:  # 40,000 bytes fit into 1.6 s, 80,000 do not into 1 s
        now = tune(MeasuredNode(0.1, 0.0, up, 1e6), now, CHOICES, 10_000)
        seen.add(now)
    assert seen == {TunedTask(2, 20)}


DIVIDED = replace(CHOICES, divisors=(1, 2, 4, 8))


def test_a_large_payload_is_divided_before_tasks_grow() -> None:
    # 10,000 bytes take 4 s at 2,500 bytes a second, a task 2 s; a quarter fits into four fifths of that
    narrow = MeasuredNode(0.1, 0.0, 2_500, 1e6)
    assert tune(narrow, FIRST, DIVIDED, 10_000) == TunedTask(0, 20, 2)
    # an eighth takes 10 s at 125 bytes a second, 4/5 of 12.5 s
    assert tune(narrow._replace(up=125), FIRST, DIVIDED, 10_000) == TunedTask(0, 125, 3)
    # to go back to halves, half of the payload must fit into half of a task
    quarters = TunedTask(0, 20, 2)
    assert tune(narrow._replace(up=4_900), quarters, DIVIDED, 10_000) == quarters
    assert tune(narrow._replace(up=5_100), quarters, DIVIDED, 10_000) == TunedTask(0, 20, 1)
    assert tune(narrow._replace(up=1e6), quarters, DIVIDED, 10_000) == TunedTask(4, 20, 0)


@given(
    st.floats(1e-3, 10), st.floats(0, 2), st.floats(1, 1e9), st.floats(0, 1e9), st.integers(0, 4), st.integers(1, 200)
)
def test_the_choice_is_within_bounds_and_hides_what_it_can(
    step: float, round_trip: float, up: float, down: float, rung: int, least: int
) -> None:
    found = tune(
        MeasuredNode(step, round_trip, up, down),
        TunedTask(rung, 20),
        TuningChoices(RUNGS, (1,), least, 10 * least),
        10_000,
    )
    assert 0 <= found.rung < len(RUNGS)
    assert least <= found.steps <= 10 * least
    seconds = round_trip + RUNGS[found.rung] / up
    if found.rung:
        assert seconds <= (CLIMB_SHARE if found.rung > rung else SHARE) * found.steps * step
    elif found.steps < 10 * least:
        assert seconds <= SHARE * found.steps * step * (1 + 1e-6)


def test_a_node_with_parts_hands_them_in_by_turns() -> None:
    halves = (ParameterRange(0, 40), ParameterRange(40, 100))
    partitions = ((ParameterRange(0, 100),), halves)
    engine = Engine(engine_settings(tune=True, rungs=(100,), partitions=partitions, max_local_steps=50, flush=True))
    engine.hello("a")
    settings = engine.settings
    step = settings.tasks.batch_size * settings.tasks.context / 100.0
    narrow = LinkReport(0.0, 75 / (settings.tasks.local_steps * step), 1e9)
    engine.handle(ev.Received("a", RequestTask(0, narrow)))
    (note,) = [d for d in engine.journal if isinstance(d, Noted) and d.kind == "tuned"]
    assert (note.note.partition, note.note.bytes) == (1, 50)
    assert engine.held["a"][1].parameters in halves
    engine.crash()
    assert engine.state.nodes["a"].tuning.partition == 1


def test_a_changed_choice_is_on_the_ledger_and_in_the_task() -> None:
    settings = engine_settings(tune=True, rungs=(100, 200, 400), most=400, max_local_steps=50)
    engine = Engine(settings)
    engine.hello("a")
    step = settings.tasks.batch_size * settings.tasks.context / 100.0  # the profile's 100 tokens a second
    fast = LinkReport(0.0, 1e9, 1e9)
    engine.handle(ev.Received("a", RequestTask(0, fast)))
    (note,) = [d for d in engine.journal if isinstance(d, Noted) and d.kind == "tuned"]
    assert (note.node, note.note.rung, note.note.bytes) == ("a", 2, 400)
    assert engine.held["a"][1].rung == 2
    assert [d.terms.rung for d in engine.journal if isinstance(d, Assigned)] == [2]
    engine.crash()
    assert engine.state.nodes["a"].tuning.rung == 2
    engine.hello("a", working=(1,), pending=())
    slow = LinkReport(0.0, 100 / (5 * settings.tasks.local_steps * step), 1e9)
    engine.handle(ev.Received("a", RequestTask(0, slow)))
    task = engine.held["a"][2]
    assert (task.rung, task.local_steps) == (0, min(50, -(-5 * settings.tasks.local_steps * 5 // 4)))


@pytest.mark.parametrize(("buffer_size", "versions"), [(4, 1), (2, 2), (1, 3)])
def test_tasks_are_as_long_as_all_versions_made_meanwhile_take_to_come_down(buffer_size: int, versions: int) -> None:
    """At K = 1 there are as many as nodes, until a snapshot (here: three deltas) is shorter."""
    settings = engine_settings(tune=True, buffer_size=buffer_size, max_local_steps=1000)
    settings = changed(settings, delta=settings.payloads.snapshot // 3)
    engine = Engine(settings)
    for name in "abcd":
        engine.hello(name)
    step = settings.tasks.batch_size * settings.tasks.context / 100.0
    task = settings.tasks.local_steps * step
    engine.handle(ev.Received("a", RequestTask(0, LinkReport(0.0, 1e9, settings.payloads.delta / task))))
    (note,) = [d for d in engine.journal if isinstance(d, Noted) and d.kind == "tuned"]
    assert note.note.local_steps == pytest.approx(versions * settings.tasks.local_steps / SHARE, abs=1)


def test_a_transfer_longer_than_a_round_trip_tells_the_rate() -> None:
    link = measure.round_trip(LinkReport(), 0.1)
    link = measure.uploaded(link, 100_000, 1.1)
    assert link.up == pytest.approx(100_000)
    assert measure.uploaded(link, 100_000, 2.1).up == pytest.approx(75_000)  # half way to 50,000


def test_a_transfer_within_a_round_trip_is_a_lower_bound() -> None:
    link = measure.uploaded(LinkReport(round_trip=0.1, up=1e8), 100_000, 0.12)
    assert link.up == 1e8
    assert measure.uploaded(LinkReport(round_trip=0.1), 100_000, 0.12).up == pytest.approx(5_000_000)


def test_round_trips_follow_the_shortest() -> None:
    link = LinkReport()
    for seconds in (0.3, 0.1, 0.9, -1.0):
        link = measure.round_trip(link, seconds)
    assert link.round_trip == pytest.approx(0.18)


def test_a_cached_download_does_not_change_the_measured_link() -> None:
    assert measure.downloaded(LinkReport(round_trip=0.1, down=1e6), 50_000, 0.001).down == 1e6


def test_a_few_bytes_say_only_that_the_line_is_as_fast_at_least() -> None:
    """They come at once however fast the line is, so that their time is the latency alone."""
    assert measure.uploaded(LinkReport(), 2000, 0.5).up == 4000.0
    assert measure.downloaded(LinkReport(), measure.FEWEST - 1, 7000.0).down == 0.0
    assert measure.uploaded(LinkReport(up=1e6), 400, 1.0).up == 1e6
    assert measure.downloaded(LinkReport(), measure.FEWEST, 1.0).down == measure.FEWEST


def test_a_line_slower_than_any_counts_as_not_known() -> None:
    assert LinkReport(0.1, up=0.117, down=0.117) == LinkReport(0.1)
    assert LinkReport(down=SLOWEST_LINE).down == SLOWEST_LINE
    assert NodeProfile(1.0, down_bytes_per_second=0.117).down_bytes_per_second == 0.0
