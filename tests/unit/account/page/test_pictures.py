"""The pictures of a run for its page: complete, small, harmless, and without names where they are hidden."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from barnraise.account.account import AccountReader
from barnraise.account.moment import RunMoment
from barnraise.account.page.pictures import COLUMNS, VIEWS, joining, lanes, own
from barnraise.account.page.report_page import page_of
from barnraise.account.page.veil import Hiding, Veil
from barnraise.account.why import why_resting
from barnraise.ledger import Change, Decision, NodeChanged, Noted, Simulation, notes

from ....decisions import assigned, judged
from ...cli.test_status import BEGINNING, END, make_run

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[2J\u202e\x00" + "A" * 1_000_000


def moment(folder: Path, *more: Decision, works: bool = True) -> RunMoment:
    with AccountReader(make_run(folder, [*BEGINNING, *more])) as reader:
        return RunMoment(reader.read(), reader.over_time, 1000, works)


def test_each_view_is_json_and_names_the_figures_of_the_ledger(tmp_path: Path) -> None:
    seen = moment(tmp_path)
    views = {name: json.loads(msgspec.json.encode(make(seen, Veil()))) for name, make in VIEWS.items()}
    assert views["overview"]["loss"] == [[0, 0, 5, 0, 0], [400, 6.5, 3.25, 1, 0]]
    assert (views["overview"]["run"]["tokens"], views["overview"]["run"]["state"]) == (400, "training")
    row = dict(zip(COLUMNS, views["workers"]["rows"]["a"], strict=True))
    assert (row["tokens"], row["tasks"], row["payload"], row["bound"]) == (400, 1, 40, 50)
    assert sum(views["time"]["tokens"]) == 400
    assert views["checks"]["staleness"] == [[0, 1]]
    assert views["matching"]["doing"] == [["a", "train", 8]]


def test_a_finished_run_and_an_empty_one_have_all_views(tmp_path: Path) -> None:
    over = moment(tmp_path / "over", *END, works=False)
    assert VIEWS["overview"](over, Veil())["run"]["state"] == "finished"
    with AccountReader(make_run(tmp_path / "empty", [])) as reader:
        empty = RunMoment(reader.read(), reader.over_time, 1000, True)
        for make in VIEWS.values():
            assert msgspec.json.encode(make(empty, Veil()))


def test_an_observer_sees_numbers_in_place_of_names_and_no_addresses(tmp_path: Path) -> None:
    more: list[Decision] = [
        NodeChanged(8.0, "lab-of-ann", Change.ENROLLED, key="k"),
        NodeChanged(8.1, "lab-of-ann", Change.JOINED, session=1),
        assigned(8.2, 5, "lab-of-ann"),
        judged(8.4, 5, "lab-of-ann", digest=""),
        NodeChanged(8.6, "lab-of-ann", Change.SILENT, "lab-of-ann at 192.168.7.9 was silent for 2 s"),
        Noted(8.7, notes.HeldOff(60.0, "lab-of-ann lost work"), "lab-of-ann"),
    ]
    more += [
        Noted(8.8, notes.StandbyFollows("bobs-spare", "tcp://192.168.7.10:4")),
        Noted(8.9, notes.CheckpointFailed(1, "/srv/carol/runs is full")),
        Noted(8.9, notes.Disputed(1, 0, 4, ("lab-of-ann", "a"), (9.25, 4.125), (8.0, 8.0))),
        Noted(9.0, notes.Measured(1, 400, {}, (notes.TextSample("dear lab-of-ann", "hello"),))),
    ]
    seen = moment(tmp_path, *more)
    told = json.dumps([make(seen, Hiding(one.node for one in seen.account.nodes)) for make in VIEWS.values()])
    for secret in ("lab-of-ann", "192.168", "bobs-spare", "/srv/carol", "9.25", "4.125", "lost work", "cuda"):
        assert secret not in told, secret
    assert '"worker 3: left"' in told
    assert '"the run: checkpoint failed"' in told
    assert VIEWS["time"](seen, Hiding(["a"]))["sites"] == {}
    open_to_all = json.dumps([make(seen, Veil()) for make in VIEWS.values()])
    assert all(secret in open_to_all for secret in ("lab-of-ann", "192.168", "bobs-spare", "/srv/carol", "cuda"))
    assert "192.168" not in json.dumps(own(seen, "a", Veil())), "nor does the page of a node tell of others"


def test_hostile_names_and_events_are_short_and_stay_text(tmp_path: Path) -> None:
    more: list[Decision] = [
        NodeChanged(8.0, "b", Change.LEFT, HOSTILE),
        Noted(8.5, notes.Measured(1, 400, {HOSTILE: 1.0}, (notes.TextSample(HOSTILE, HOSTILE),))),
        judged(8.6, 2, "a", verdict="refused", reason=HOSTILE, digest=""),
    ]
    seen = moment(tmp_path, *more)
    for name, make in VIEWS.items():
        told = msgspec.json.encode(make(seen, Veil())).decode()
        assert len(told) < 20_000, name
        assert not any(mark in told for mark in ("\\u001b", "\x1b", "\u202e", "\\u0000", "A" * 5000))
    page = page_of(seen)
    assert page.count("</script") == page.count("<script"), "no text ends the script that holds it"
    assert "<img src=x" not in page


def test_losses_of_a_simulation_of_costs_are_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path, BEGINNING)
    run.simulation_file.write_bytes(Simulation(nodes=2, seed=0, snapshot_bytes=40).encode())
    with AccountReader(run) as reader:
        seen = RunMoment(reader.read(), reader.over_time, 1000, works=False)
    views = {name: make(seen, Veil()) for name, make in VIEWS.items()}
    assert views["overview"]["run"]["simulated"]
    assert views["overview"]["loss"] == []
    assert (set(views["time"]["training"]), views["time"]["sites"]) == ({0.0}, {})


def test_the_page_of_a_node_tells_what_it_did(tmp_path: Path) -> None:
    found = own(moment(tmp_path), "a", Veil())
    assert (found["steps"], found["tokens"], found["bytes"], found["rank"], found["of"]) == (4, 400, 40, 1, 2)
    assert own(moment(tmp_path / "again"), "nobody", Veil()) == {"known": False}


def test_the_join_page_tells_what_a_task_takes(tmp_path: Path) -> None:
    found = joining(moment(tmp_path))
    assert (found["local_steps"], found["payload"], found["share"]) == (4, 40, 0.4)


def test_a_lane_has_seven_letters_a_bin_from_when_its_node_came(tmp_path: Path) -> None:
    first, letters = lanes(moment(tmp_path), ["a"], Veil())["a"]
    assert first == 1
    assert len(letters) % 7 == 0
    assert set(letters) <= set("0123456789abcdefghijklmnopqrstuvwxyz")
    assert letters[-7:] == "z000000", "it has a task now"


@pytest.mark.parametrize(
    ("more", "node", "told"),
    [
        ([], "a", "a has 1 task; the newest (train) for"),
        ([], "b", "b proved its key and never joined"),
        ([NodeChanged(9.0, "a", Change.SILENT, "silent for 2 s")], "a", "a is away since"),
        ([Noted(8.5, notes.Released(2, "lost"), "a"), Noted(9.0, notes.HeldOff(60.0, "it lost work"), "a")], "a",
         "a gets no task: it lost work"),
        ([Noted(8.5, notes.Released(2, "lost"), "a")], "a", "a is between two tasks"),
        ([*END], "a", "the run is finished: no node has a task"),
    ],
)  # fmt: skip
def test_a_sentence_says_why_a_node_rests(tmp_path: Path, more: list[Decision], node: str, told: str) -> None:
    assert why_resting(moment(tmp_path, *more), node).startswith(told)
    assert why_resting(moment(tmp_path / "again", *more), "nobody") == ""
