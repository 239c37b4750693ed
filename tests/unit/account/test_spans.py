"""The way of an assignment as spans: their times, their order, and that each assignment has one trace."""

from __future__ import annotations

import math
import random
from collections import Counter

import msgspec
import pytest
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from barnraise.account import spans
from barnraise.account.spans import SpanRecord, Spans, ids_of
from barnraise.ledger import Decision, Noted, VersionClosed, VersionMade, notes

from ...decisions import assigned, judged

VIEW: object = None


def fed(rows: list[Decision], share: float = 1.0) -> Spans:
    found = Spans("barn", share)
    for number, row in enumerate(rows, 1):
        found.add(number, row, VIEW)  # type: ignore[arg-type]
    return found


def told(rows: list[Decision], share: float = 1.0) -> list[SpanRecord]:
    return fed(rows, share).take()


def closed(time: float, version: int, *contributions: int) -> VersionClosed:
    return VersionClosed(time, version, contributions, 1, 400, "full")


ACCEPTED = [
    assigned(10.0, 1, "ann", fetch=2.0, send=3.0),
    judged(30.0, 1, "ann", seconds=12.0, staleness=2),
    closed(34.0, 1, 1),
    VersionMade(35.0, 1, "ab" * 32, 77),
]


def test_an_accepted_contribution_has_a_span_for_each_part_of_its_way() -> None:
    found = told(ACCEPTED)
    assert [(one.name, one.start, one.stop) for one in found] == [
        ("train", 10.0, 35.0),
        ("download", 13.0, 15.0),
        ("training", 15.0, 27.0),
        ("upload", 27.0, 30.0),
        ("verdict", 30.0, 30.0),
        ("buffer", 30.0, 34.0),
        ("version", 34.0, 35.0),
    ]
    root = found[0]
    assert (root.trace, root.span, root.parent) == (*ids_of("barn", 1), 0)
    assert {one.parent for one in found[1:]} == {root.span}
    assert len({one.span for one in found}) == len(found)
    assert not any(one.failed for one in found)
    assert root.attributes["barnraise.node"] == "ann"
    assert root.attributes["barnraise.outcome"] == "accepted"
    assert found[3].attributes == {"barnraise.bytes": 40}
    assert found[4].attributes["barnraise.staleness"] == 2
    assert found[6].attributes["barnraise.bytes"] == 77


def test_a_trace_is_told_once_it_is_whole() -> None:
    assert told(ACCEPTED[:3]) == []


def test_a_refused_contribution_fails_with_its_reason() -> None:
    found = told([ACCEPTED[0], judged(30.0, 1, "ann", verdict="refused", reason="stale", digest="")])
    assert [one.name for one in found] == ["train", "download", "training", "upload", "verdict"]
    assert (found[0].failed, found[4].failed, found[2].failed) == ("stale", "stale", "")


def test_a_finding_ends_with_its_verdict() -> None:
    found = told([assigned(1.0, 4, "bob", kind="evaluate"), judged(3.0, 4, "bob", digest="", seconds=1.0)])
    assert [one.name for one in found] == ["evaluate", "download", "evaluating", "upload", "verdict"]
    assert found[0].stop == 3.0


def test_released_work_ends_when_another_node_takes_it_and_that_trace_links_to_it() -> None:
    released = Noted(15.0, notes.Released(1, "the node is gone"), "ann")
    assert told([ACCEPTED[0], released]) == [], "its node may return"
    (lost,) = told([ACCEPTED[0], released, assigned(20.0, 2, "bob", redo=1)])
    assert (lost.stop, lost.failed, lost.attributes["barnraise.outcome"]) == (15.0, "the node is gone", "released")
    again = told([ACCEPTED[0], released, assigned(20.0, 2, "bob", redo=1), Noted(30.0, notes.Finished("enough"))])
    assert again[1].link == ids_of("barn", 1)


def test_reopened_work_continues_its_trace() -> None:
    rows = [ACCEPTED[0], Noted(15.0, notes.Released(1, "gone"), "ann"), Noted(16.0, notes.Reopened(1), "ann")]
    assert told([*rows, *ACCEPTED[1:]]) == told(ACCEPTED)


def test_released_work_is_not_kept_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "MOST_RELEASED", 2)
    rows: list[Decision] = []
    for number in range(1, 4):
        rows += [assigned(1.0, number, "ann"), Noted(2.0, notes.Released(number, "gone"), "ann")]
    assert [one.trace for one in told(rows)] == [ids_of("barn", 1)[0]]


@pytest.mark.parametrize(
    "note", [notes.Voided(1, 1, "damaged", judged=True), notes.VersionRefused(1, "damaged", (1, 5))]
)
def test_a_contribution_that_cannot_be_used_fails(note: notes.Note) -> None:
    found = told([*ACCEPTED[:3], Noted(34.5, note, "ann"), ACCEPTED[3]])
    assert (found[0].failed, found[0].stop, found[0].attributes["barnraise.outcome"]) == ("damaged", 34.5, "void")
    assert (found[-1].name, found[-1].failed) == ("buffer", "damaged")


def test_a_share_of_assignments_has_spans_and_it_is_opentelemetrys() -> None:
    rows = [one for number in range(1, 2001) for one in (
        assigned(1.0, number, "ann"), judged(2.0, number, "ann", verdict="refused", reason="x", digest="")
    )]  # fmt: skip
    some = {one.trace for one in told(rows, 0.25)}
    assert 400 < len(some) < 600
    assert some <= {one.trace for one in told(rows, 0.5)}
    bound = TraceIdRatioBased.get_bound_for_rate(0.25)
    assert some == {trace for number in range(1, 2001) if (trace := ids_of("barn", number)[0]) % (1 << 64) < bound}
    assert told(rows, 0.0) == []


def test_hostile_texts_are_short_and_printable() -> None:
    evil = "\x1b[2J\u202e\ud800\n" * 1000
    (root, *_) = told([assigned(1.0, 1, evil, kind=evil), judged(2.0, 1, evil, verdict="refused", reason=evil)])
    for text in (root.name, root.failed, *(one for one in root.attributes.values() if isinstance(one, str))):
        assert text.isprintable()
        assert len(text) <= 160
        text.encode()


def test_claims_that_are_no_numbers_make_sound_times() -> None:
    for seconds in (math.nan, -5.0, math.inf, 1e300):
        found = told([ACCEPTED[0], judged(30.0, 1, "ann", seconds=seconds), *ACCEPTED[2:]])
        assert all(10.0 <= one.start <= one.stop <= 35.0 for one in found)


def history(rng: random.Random) -> list[Decision]:
    """Rows of a run with every outcome."""
    rows: list[Decision] = []
    open_: list[int] = []
    buffer: list[int] = []
    time, version = 0.0, 0
    for number in range(1, 200):
        time += rng.random()
        rows.append(assigned(time, number, rng.choice("abc"), fetch=rng.random(), send=rng.random()))
        open_.append(number)
        while open_ and rng.random() < 0.5:
            one, time = open_.pop(rng.randrange(len(open_))), time + rng.random()
            fate = rng.random()
            if fate < 0.6:
                rows.append(judged(time, one, "a", seconds=rng.random()))
                buffer.append(one)
            elif fate < 0.8:
                rows.append(judged(time, one, "a", verdict="refused", reason="no", digest=""))
            else:
                rows.append(Noted(time, notes.Released(one, "gone"), "a"))
                if rng.random() < 0.5:
                    rows.append(Noted(time, notes.Reopened(one), "a"))
                    open_.append(one)
        if len(buffer) > 3:
            version += 1
            rows.append(closed(time, version, *buffer))
            if rng.random() < 0.3:
                rows.append(Noted(time, notes.Voided(buffer[0], version, "bad", judged=False), "a"))
            rows.append(VersionMade(time + 0.1, version, "ab" * 32, 1))
            buffer.clear()
    return [*rows, Noted(time + 1.0, notes.Finished("enough"))]


@pytest.mark.parametrize("seed", range(20))
def test_each_assignment_has_one_trace_wherever_the_reading_is_cut(seed: int) -> None:
    rows = history(random.Random(seed))
    whole = fed(rows)
    found = whole.take()
    roots = Counter(one.trace for one in found if not one.parent)
    assert roots == dict.fromkeys((ids_of("barn", number)[0] for number in range(1, 200)), 1)
    by_trace = {one.trace: one for one in found if not one.parent}
    assert all(by_trace[one.trace].start <= one.start <= one.stop <= by_trace[one.trace].stop for one in found)
    assert (whole.open, whole.released, whole.kept, whole.closed) == ({}, {}, {}, {})
    cut, parts = random.Random(seed).randrange(len(rows)), list[SpanRecord]()
    first = fed(rows[:cut])
    parts += first.take()
    second = msgspec.msgpack.decode(msgspec.msgpack.encode(first), type=Spans)
    for row in rows[cut:]:
        second.add(0, row, VIEW)  # type: ignore[arg-type]
    assert parts + second.take() == found
