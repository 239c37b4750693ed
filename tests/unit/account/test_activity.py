"""The activities of nodes over the time of a run, bin by bin."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from barnraise.account import activity
from barnraise.account.activity import ACTIVITIES, BINS, Activity
from barnraise.ledger import Change, Decision, NodeChanged, Noted, notes

from ...decisions import assigned, judged

COLUMNS = (*ACTIVITIES, "waiting", "away")


def folded(*decisions: Decision) -> Activity:
    found = Activity()
    for row, decision in enumerate(decisions, 1):
        found.add(row, decision, None)  # type: ignore[arg-type]
    return found


def seconds(found: Activity, node: str, end: float) -> dict[str, float]:
    """The seconds of a node in each activity, until `end`."""
    rows = [row for _, row in found.spans(node, end)]
    return {name: round(sum(row[place] for row in rows), 3) for place, name in enumerate(COLUMNS)}


def joined(time: float, node: str) -> NodeChanged:
    return NodeChanged(time, node, Change.JOINED, session=1)


def test_a_task_is_a_transfer_down_then_computing_then_a_transfer_up() -> None:
    found = folded(joined(10.0, "a"), assigned(10.0, 1, "a", fetch=2.0, send=3.0), judged(30.0, 1, "a", seconds=12.0))
    told = {"training": 12.0, "uploading": 3.0, "downloading": 2.0, "waiting": 3.0, "away": 0.0}
    assert seconds(found, "a", 30.0) == told | {"evaluating": 0.0, "auditing": 0.0}
    assert seconds(found, "a", 36.0)["waiting"] == 9.0


@pytest.mark.parametrize("claimed", [1e9, float("inf"), float("nan"), -5.0])
def test_a_claim_counts_no_more_than_the_time_of_its_task(claimed: float) -> None:
    found = folded(joined(10.0, "a"), assigned(10.0, 1, "a"), judged(30.0, 1, "a", seconds=claimed))
    assert seconds(found, "a", 30.0)["training"] == (20.0 if claimed > 0 else 0.0)
    assert seconds(found, "a", 30.0)["waiting"] >= 0.0


def test_tasks_that_overlap_count_once() -> None:
    works = [assigned(0.0, 1, "a"), assigned(1.0, 2, "a"), judged(10.0, 1, "a", seconds=10.0)]
    found = folded(joined(0.0, "a"), *works, judged(20.0, 2, "a", seconds=19.0))
    assert seconds(found, "a", 20.0)["training"] == 20.0


def test_kinds_of_work_are_told_apart() -> None:
    works: list[Decision] = [joined(0.0, "a")]
    for number, kind in enumerate(("train", "flush", "evaluate", "audit"), 1):
        start = 10.0 * number
        works += [assigned(start, number, "a", kind=kind), judged(start + 5.0, number, "a", seconds=4.0)]
    told = seconds(folded(*works), "a", 50.0)
    assert (told["training"], told["evaluating"], told["auditing"]) == (8.0, 4.0, 4.0)


def test_a_node_that_leaves_is_away_until_it_is_back() -> None:
    found = folded(joined(5.0, "a"), NodeChanged(8.0, "a", Change.SILENT, "x"), joined(20.0, "a"))
    assert seconds(found, "a", 30.0)["away"] == 12.0
    assert seconds(found, "a", 30.0)["waiting"] == 13.0
    again = folded(joined(5.0, "a"), NodeChanged(8.0, "a", Change.SILENT, "x"))
    assert seconds(again, "a", 30.0) == dict.fromkeys(COLUMNS, 0.0) | {"waiting": 3.0, "away": 22.0}
    assert not list(again.spans("unknown", 30.0))


def test_longer_runs_have_longer_bins_with_the_same_sums() -> None:
    rng, works = random.Random(1), [joined(0.0, "a"), joined(0.0, "b")]
    expected, tokens, now = 0.0, 0, {"a": 0.0, "b": 0.0}
    for number in range(1, 400):
        node = rng.choice("ab")
        start = now[node]
        stop = now[node] = start + rng.uniform(0.1, 60.0)
        works += [assigned(start, number, node), judged(stop, number, node, seconds=0.75 * (stop - start), tokens=7)]
        expected, tokens = expected + 0.75 * (stop - start), tokens + 7
    found = folded(*works, Noted(max(now.values()), notes.Traffic(1000, 5000)))
    assert found.width >= max(now.values()) / BINS
    assert sum(found.totals(activity.TOKENS)) == tokens
    assert sum(found.totals(activity.ACCEPTED)) == 399
    assert sum(found.totals(activity.TRAIN)) == pytest.approx(expected, rel=1e-4)
    assert (sum(found.up), sum(found.down)) == (1000, 5000)
    for node in "ab":
        for place, row in found.spans(node, max(now.values())):
            assert sum(row) <= found.width * 1.001, (place, row)


def test_results_are_counted_by_kind_staleness_and_verdict() -> None:
    works = [
        assigned(0.0, 1, "a"), judged(1.0, 1, "a", num_bytes=10, staleness=3, version=3),
        assigned(1.0, 2, "a", kind="audit"), judged(2.0, 2, "a", num_bytes=5, staleness=500, version=500),
        assigned(2.0, 3, "a"), judged(3.0, 3, "a", num_bytes=7, verdict="refused"),
        assigned(3.0, 4, "a"), Noted(4.0, notes.Released(4, "silent"), "a"),
    ]  # fmt: skip
    found = folded(joined(0.0, "a"), *works)
    assert found.sent == {"train": 17, "audit": 5}
    assert found.staleness == {3: 1, activity.LATEST: 1}
    assert sum(found.totals(activity.REFUSED)) == 1
    assert not found.open


def test_the_state_can_be_kept_in_a_file(tmp_path: Path) -> None:
    import msgspec

    found = folded(joined(10.0, "a"), assigned(10.0, 1, "a", send=3.0), judged(3000.0, 1, "a", seconds=12.0))
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Activity)
    assert kept == found
    kept.add(9, joined(5000.0, "b"), None)  # type: ignore[arg-type]
    assert seconds(kept, "b", 5001.0)["waiting"] == 1.0


@pytest.mark.parametrize("loss", [2.5, float("nan"), float("inf"), -1e30])
def test_the_loss_that_a_node_tells_is_weighed_by_its_tokens_where_it_is_a_number(loss: float) -> None:
    found = folded(joined(0.0, "a"), assigned(0.0, 1, "a"), judged(5.0, 1, "a", loss=loss))
    tokens = found.totals(activity.TOKENS)[5 // int(found.width)]
    assert sum(found.totals(activity.LOSS)) == (2.5 * tokens if loss == 2.5 else 0.0)
