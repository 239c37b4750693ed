"""`barnraise status` on runs that work, are finished, were killed, or are none."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barnraise.account.nodes import living
from barnraise.cli.main import main
from barnraise.config.load import dump, load
from barnraise.controller.state.fold import apply
from barnraise.controller.state.state import State
from barnraise.core.types import Blob, NodeProfile, ParameterRange, RowRange
from barnraise.ledger import (
    Decision,
    Judged,
    Ledger,
    LedgerView,
    NodeChanged,
    Noted,
    RunDirectory,
    VersionClosed,
    VersionMade,
    notes,
)
from barnraise.wire.manifest import Manifest

from ...decisions import assigned, judged

RUN_FILE = {
    "run": {"name": "barn"},
    "model": {"architecture": "gpt2", "config": {"hidden_size": 8, "num_layers": 1, "num_heads": 1}},
    "data": {"kind": "text", "files": ["*.txt"]},
    "workers": [{"name": "a"}],
    "training": {"tokens": 1000},
}
SPAN = ParameterRange(0, 10)
BEGINNING: list[Decision] = [
    Noted(0.0, notes.Started(digest="ab" * 32, run="barn")),
    Noted(0.5, notes.Evaluated(version=0, loss=5.0, tokens=0)),
    NodeChanged(1.0, "a", "enrolled", key="a"),
    NodeChanged(1.0, "b", "enrolled", key="b"),
    NodeChanged(1.5, "a", "joined", session=1, profile=NodeProfile(device="cuda:0 \x1b[2J")),
    assigned(2.0, 1, "a"),
    judged(6.0, 1, "a"),
    VersionClosed(6.0, 1, (1,), 1, 400, "full"),
    VersionMade(6.5, 1, "cd" * 32, 40),
    Noted(7.0, notes.Evaluated(version=1, loss=3.25, tokens=400)),
    Noted(7.5, notes.Traffic(up=1000, down=2000)),
    assigned(8.0, 2, "a", base=1, rows=(RowRange(0, 4, 8),), cursor=8),
]
END = [Noted(9.0, notes.Stopping(reason="SIGINT")), Noted(10.0, notes.Finished(reason="SIGINT"))]


def make_run(folder: Path, decisions: list[Decision]) -> RunDirectory:
    run = RunDirectory.create("barn", folder)
    run.run_file.write_text(dump(load(RUN_FILE)))
    (run.path / "manifest.json").write_bytes(Manifest({"model_type": "gpt2"}, Blob("ab" * 32, 1), 10).encode())
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        ledger.commit(decisions, {1: b"payload"} if decisions else {})
    return run


def status_of(run: RunDirectory, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["status", str(run.path), *options])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_how_work_found_its_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    works: list[Decision] = []
    for number in range(2, 14):
        works += [
            assigned(10.0 * number, number, "a", compute=9.0),
            judged(10.0 * number + 10.0, number, "a", verdict="refused" if number == 2 else "accepted"),
        ]
    early = notes.Matched(2, 3, 7, 3, 0.5, 0.75, 0.2, regret=0.091, priced=0.9)
    matched = notes.Matched(2, 3, 9, 4, 1.0, 1.0, 0.0, regret=0.031, rematches=2, priced=1.0)
    told = [
        Noted(90.0, early),
        Noted(120.0, matched),
        Noted(150.0, notes.Employed(idle=0.125, conflicts=0.25, offers=8, refused=2)),
    ]
    run = RunDirectory.create("barn", tmp_path)
    run.run_file.write_text(dump(load(RUN_FILE)))
    (run.path / "manifest.json").write_bytes(Manifest({"model_type": "gpt2"}, Blob("ab" * 32, 1), 10).encode())
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        ledger.commit([*BEGINNING[:6], *works, *told], dict.fromkeys(range(3, 14), b"payload"))
    text = " ".join(status_of(run, capsys).split())
    assert "4 moves in 9 events, 2 from one node to another; stability by time alone 1.00 (1.00 but for" in text
    assert "for gains below a tenth), at the prices in use 1.00, 0.0% of pairs block" in text
    assert "3.1% above the least cost; over the time 0.75 (0.88), at the prices in use 0.95, 10.0%, 6.1%" in text
    assert "without a task 12.5% of their time; 25.0% of 8 tasks given back, lost or refused" in text
    assert "tasks take 10.0% more or less than expected in the median (of 1 task, after 10 a node)" in text
    told_as_json = json.loads(status_of(run, capsys, "--json"))
    assert (told_as_json["idle"], told_as_json["conflicts"]) == (0.125, 0.25)
    assert told_as_json["prediction_error"] == pytest.approx(0.1)
    counts = "market_events", "moves", "rematches"
    assert [told_as_json[name] for name in counts] == [9, 4, 2]
    shares = "stability", "nearly_stable", "blocking_density", "regret"
    assert [told_as_json[name] for name in shares] == [1.0, 1.0, 0.0, 0.031]
    means = [told_as_json[f"mean_{name}"] for name in shares]  # half of the time from 90 s to the end each
    assert means == pytest.approx([0.75, 0.875, 0.1, 0.061])


def test_why_no_market_of_nodes_and_tasks_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stood = notes.Matched(2, 3, 9, 4, 1.0, 1.0, 0.0)
    gone = [Noted(90.0, stood), Noted(150.0, notes.NoMarket("one lane of rows is on offer"))]
    back = [*gone, Noted(210.0, stood)]
    for index, (told, stands) in enumerate([(gone, False), (back, True)]):
        run = make_run(tmp_path / str(index), [*BEGINNING, *told])
        said = "no market stands: one lane of rows is on offer"
        assert (said in " ".join(status_of(run, capsys).split())) is not stands
        assert bool(json.loads(status_of(run, capsys, "--json"))["no_market"]) is not stands


def merged(*rules: dict[str, Any], voided: tuple[int, ...] = ()) -> list[Decision]:
    """A run of ten nodes, which are all in its one version but for those that were voided out of it."""
    works: list[Decision] = []
    for number in range(1, 11):
        works += [assigned(2.0, number, f"n{number}"), judged(6.0, number, f"n{number}")]
    told = [Noted(0.1, notes.RunFile("", {"training": rule})) for rule in rules]
    void = [Noted(6.2, notes.Voided(number, 1, "lost", False), f"n{number}") for number in voided]
    closed = VersionClosed(6.1, 1, tuple(range(1, 11)), 10, 4000, "full")
    made = VersionMade(6.5, 1, "cd" * 32, 40)
    return [*told, *works, Noted(2.0, notes.BufferSize(9, 12, "automatic")), closed, *void, made]


def figures(decisions: list[Decision], folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, list[Any]]:
    """The line of the versions, and what programs are told of it."""
    run = RunDirectory.create("barn", folder)
    run.run_file.write_text(dump(load(RUN_FILE)))
    (run.path / "manifest.json").write_bytes(Manifest({"model_type": "gpt2"}, Blob("ab" * 32, 1), 10).encode())
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        ledger.commit(decisions, dict.fromkeys(range(1, 11), b"payload"))
    told = json.loads(status_of(run, capsys, "--json"))
    (line,) = [line for line in status_of(run, capsys).splitlines() if line.startswith("  versions ")]
    return " ".join(line.split()), [told["buffer_size"], told["version_nodes"], told["f"]]


@pytest.mark.parametrize(
    ("rule", "f"),
    [
        ({"aggregation_rule": "krum", "aggregation_f": 0.2}, 2),
        ({"aggregation_rule": "krum", "aggregation_f": 3}, 3),
        ({"aggregation_rule": ["nnm", "bulyan"], "aggregation_f": 0.3}, 1),
        ({"aggregation_rule": "trimmed_mean", "aggregation_f": None, "trim_ratio": 0.25}, 2),
        ({"aggregation_rule": "multi_krum", "aggregation_options": {"f": 0.35}}, 3),
    ],
)
def test_f_and_k_of_the_newest_version(
    rule: dict[str, Any], f: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, told = figures(merged(rule), tmp_path, capsys)
    assert line == f"versions 1; the newest of 10 nodes, f {f}; K 9"
    assert told == [9, 10, f]


@pytest.mark.parametrize(("f", "holds"), [(1, True), (2, False)])
def test_a_version_past_the_guarantee_is_told_as_such(
    f: int, holds: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten nodes: Bulyan needs 4f+3."""
    rule = {"aggregation_rule": "bulyan", "aggregation_f": f, "unguaranteed": True}
    line, told = figures(merged(rule), tmp_path, capsys)
    assert line == f"versions 1; the newest of 10 nodes, f {f}{'' if holds else ' UNGUARANTEED'}; K 9"
    assert told == [9, 10, f]
    (run,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert json.loads(status_of(RunDirectory.open(run), capsys, "--json"))["guaranteed"] is holds


def test_how_likely_more_lie_than_the_rule_is_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three of twelve live nodes lie: all three are among the ten in C(9,7) of C(12,10) draws."""
    rule = {"aggregation_rule": "krum", "aggregation_f": 2, "believed_liars": 0.25}
    line, _ = figures(merged(rule), tmp_path, capsys)
    chance = math.comb(9, 7) / math.comb(12, 10)
    assert f"f 2; more liars than that with probability {chance:.2g}; K 9" in line


def test_f_is_of_those_whose_contributions_were_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rule = {"aggregation_rule": "krum", "aggregation_f": 0.25}
    line, told = figures(merged(rule, voided=(2, 3, 7)), tmp_path, capsys)
    assert line == "versions 1; the newest of 7 nodes, f 1; K 9"
    assert told == [9, 7, 1]


def test_where_nodes_send_several_parts_the_one_that_fewest_sent_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decisions = merged({"aggregation_rule": "krum", "aggregation_f": 0.2})
    parts = [ParameterRange(0, 5), ParameterRange(5, 10)]
    decisions = [
        msgspec.structs.replace(d, parameters=parts[d.assignment <= 6], node=d.node if d.assignment != 7 else "n1")
        if isinstance(d, Judged)
        else d
        for d in decisions
    ]
    line, _ = figures(decisions, tmp_path, capsys)
    assert line == "versions 1; the newest of 4 nodes; K 9"


@pytest.mark.parametrize(
    "rules", [(), ({"aggregation_rule": "mean"},), ({"tokens": 1000},), ({"aggregation_rule": "of another time"},)]
)
def test_a_rule_without_such_a_number_or_that_is_not_told_has_no_f(
    rules: tuple[dict[str, Any], ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, told = figures(merged(*rules), tmp_path, capsys)
    assert line == "versions 1; the newest of 10 nodes; K 9"
    assert told == [9, 10, None]


def test_an_interrupted_run_says_how_to_continue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path, BEGINNING)
    text = status_of(run, capsys)
    facts = [
        "interrupted",
        "40.0% of 1,000 tokens",
        "3.250 at version 1",
        f"barnraise resume {run.path}",
        "never came",
        "cut off",
    ]
    assert [fact for fact in facts if fact not in text] == []
    assert "\x1b" not in text


def test_running_run_names_its_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path, BEGINNING)
    with run.lock():
        text, told = status_of(run, capsys), json.loads(status_of(run, capsys, "--json"))
    assert f"running (process {told['pid']})" in text
    assert "resume" not in text
    assert told["state"] == "running"
    assert {node["name"]: node["state"] for node in told["nodes"]} == {"a": "training", "b": "starting"}


@pytest.mark.parametrize(
    "found", [notes.Discredited(1, 9.3, until=609.0), notes.Offended(1, 10, "claims 99 steps", until=609.0)]
)
def test_quarantined_and_banned_nodes_are_shown_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], found: notes.Sentence
) -> None:
    guilty: list[Decision] = [
        NodeChanged(8.5, "b", "joined", session=2),
        Noted(9.0, found, "a"),
        NodeChanged(9.0, "a", "dismissed", "found out"),
        Noted(10.0, notes.Convicted(2, (3, 4), until=None), "b"),
        NodeChanged(10.0, "b", "dismissed", "found out"),
    ]
    run = make_run(tmp_path, [*BEGINNING, *guilty])
    told = json.loads(status_of(run, capsys, "--json"))
    assert {node["name"]: node["state"] for node in told["nodes"]} == {"a": "quarantined", "b": "banned"}
    assert "quarantined" in status_of(run, capsys)
    state = State()
    for decision in [*BEGINNING, *guilty]:
        apply(state, decision)
    assert [row.state for row in living(state, {}, 20.0)] == ["quarantined", "banned"]
    assert [row.state for row in living(state, {}, 700.0)] == ["left", "banned"]


def test_status_shows_held_off_nodes_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reason = "it was lost and came back 4 times lately"
    held, over = notes.HeldOff(seconds=20.0, reason=reason), notes.HeldOff(seconds=5.0, reason=reason)
    later = Noted(16.0, notes.Traffic(up=1, down=2))
    run = make_run(tmp_path, [*BEGINNING, Noted(9.0, held, "a"), Noted(9.0, over, "b"), later])
    with run.lock():
        text, told = status_of(run, capsys), json.loads(status_of(run, capsys, "--json"))
    assert {node["name"]: node["state"] for node in told["nodes"]} == {"a": "held off", "b": "starting"}
    assert f"a gets no tasks for 20 s: {reason}" in text
    assert " ".join(text.split()).count(f"waiting a: {reason}, 13 s more") == 1
    assert "held off" in text


def test_finished_run_says_why_and_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path, [*BEGINNING, *END])
    text = status_of(run, capsys)
    assert "finished: SIGINT" in text
    assert f"not written: barnraise export {run.path}" in " ".join(text.split())
    assert "resume" not in text
    run.model.mkdir()
    assert str(run.model) in status_of(run, capsys)


def test_json_is_one_line_with_the_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path, BEGINNING)
    out = status_of(run, capsys, "--json")
    assert out.count("\n") == 1
    told = json.loads(out)
    expected = {
        "state": "interrupted", "pid": None, "finished": None, "budget": 1000, "progress": 0.4, "versions": 1,
        "tokens": 400, "first_loss": 5.0, "final_loss": 3.25, "accepted": 1, "refused": 0, "bytes_up": 1000,
        "bytes_down": 2000, "snapshot_bytes": 40, "workers": 1, "seconds": 8.0, "run_dir": str(run.path),
    }  # fmt: skip
    assert {key: told[key] for key in expected} == expected
    assert [event["kind"] for event in told["events"]] == ["evaluated", "joined", "evaluated"]
    assert told["nodes"][0]["tokens"] == 400
    with LedgerView(run.ledger) as view:
        assert (told["rows"], told["head"]) == view.head
    assert told["head"] in "".join(status_of(run, capsys).split())


def test_run_without_any_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = status_of(make_run(tmp_path, []), capsys)
    assert "never measured" in text
    assert "0.0% of 1,000 tokens" in text


@pytest.mark.parametrize("missing", ["ledger.sqlite", "run.yaml", "manifest.json", ""])
def test_a_folder_that_is_no_run_is_refused(missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path, BEGINNING)
    path = run.path / missing if missing else tmp_path / "nowhere"
    path.unlink(missing_ok=True)
    assert main(["status", str(run.path if missing else path)]) == 2
    captured = capsys.readouterr()
    assert (missing or "no run directory") in captured.err
    assert captured.out == ""


def test_status_needs_no_torch(tmp_path: Path) -> None:
    run = make_run(tmp_path, BEGINNING)
    code = (
        "import sys\nfrom barnraise.cli.main import main\n"
        f"try:\n    main(['status', {str(run.path)!r}])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'torch', 'transformers', 'matplotlib'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "interrupted" in out
    assert out.splitlines()[-1] == "[]"


def test_a_watcher_is_told_of_each_change_until_the_run_ends(tmp_path: Path) -> None:
    run = make_run(tmp_path, BEGINNING)
    command = [sys.executable, "-m", "barnraise.cli.main", "status", str(run.path), "--watch"]
    with run.lock(), Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        watcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert watcher.stdout is not None
        first = watcher.stdout.readline()
        assert first.split()[1:7] == ["running", "40.0%", "loss", "3.250", "version", "1"]
        ledger.commit([NodeChanged(20.0, "a", "killed", "signal 9")], {})
        assert watcher.stdout.readline().rstrip().endswith("a is gone: signal 9")
        ledger.commit(END, {})
    rest = watcher.communicate(timeout=30)[0]
    assert watcher.returncode == 0
    assert "finished: SIGINT" in rest


def test_a_working_run_says_what_its_next_version_waits_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long_ago = [Noted(1.0, notes.BufferSize(3, 4, "automatic")), Noted(100.0, notes.Traffic(up=1, down=2))]
    run = make_run(tmp_path, [*BEGINNING, *long_ago])
    waits = "waiting no version for 1 min 34 s: version 2 waits for contributions of 3 more nodes"
    with run.lock():
        assert waits in " ".join(status_of(run, capsys).split())
    assert "waits for" not in status_of(run, capsys), "a run that was interrupted waits for nobody"
