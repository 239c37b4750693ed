"""A run's metrics: complete, conventional, bounded, and harmless whatever its nodes are called."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from barnraise.dashboard import metrics
from barnraise.dashboard.metrics import MOST_WORKERS, exposition
from barnraise.dashboard.source import FolderSource
from barnraise.ledger import Change, Decision, Ledger, NodeChanged, Noted, RunDirectory, notes

from ..cli.test_status import BEGINNING, END, make_run


def samples(run: RunDirectory) -> dict[tuple[str, ...], float]:
    """All samples of a run's metrics, by name and values of labels."""
    text = shown(run)
    families = text_string_to_metric_families(text)
    named = ((one, sorted(one.labels, reverse=True)) for family in families for one in family.samples)
    return {(one.name, *(one.labels[label] for label in labels)): one.value for one, labels in named}


def shown(run: RunDirectory) -> str:
    source = FolderSource(run)
    try:
        return exposition(source.look()).decode()
    finally:
        source.close()


def test_figures_are_the_ledgers(tmp_path: Path) -> None:
    more: list[Decision] = [
        Noted(8.5, notes.BufferSize(3, 4, "automatic")),
        NodeChanged(8.6, "b", Change.SILENT, "silent for 2 s"),
        Noted(8.7, notes.FrameDropped("no frame", 3), "b"),
        Noted(8.8, notes.CheckpointFailed(1, "disk full")),
    ]
    run = make_run(tmp_path, [*BEGINNING, *more])
    found = samples(run)
    expected = {
        ("barnraise_tokens_total",): 400, ("barnraise_budget_tokens",): 1000, ("barnraise_version",): 1,
        ("barnraise_version_age_seconds",): 8.8 - 6.5, ("barnraise_buffer_workers",): 3,
        ("barnraise_buffer_filled_workers",): 0, ("barnraise_held_out_loss_nats",): 3.25,
        ("barnraise_contributions_total", "accepted"): 1, ("barnraise_contributions_total", "refused"): 0,
        ("barnraise_transferred_bytes_total", "up"): 1000, ("barnraise_transferred_bytes_total", "down"): 2000,
        ("barnraise_departures_total", "silent"): 1, ("barnraise_malformed_frames_total",): 3,
        ("barnraise_events_total", "checkpoint_failed"): 1, ("barnraise_result_bytes_total", "train"): 40,
        ("barnraise_run_state", "interrupted"): 1, ("barnraise_run_state", "training"): 0,
        ("barnraise_worker_tokens_total", "a"): 400, ("barnraise_worker_contributions_total", "a", "accepted"): 1,
        ("barnraise_run_info", run.path.name): 1,
    }  # fmt: skip
    assert {key: found[key] for key in expected} == pytest.approx(expected)
    assert found["barnraise_disk_free_bytes",] > 0


def test_the_state_is_one_of_all(tmp_path: Path) -> None:
    run = make_run(tmp_path, BEGINNING)

    def state() -> list[str]:
        return [key[1] for key, value in samples(run).items() if key[0] == "barnraise_run_state" and value]

    assert state() == ["interrupted"]
    with run.lock():
        assert state() == ["training"]
        with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
            ledger.commit([Noted(8.5, notes.BufferSize(3, 4, "automatic")), Noted(99.0, notes.Traffic(9, 9))], {})
        assert state() == ["waiting"], "no version for long"
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        ledger.commit([Noted(100.0, notes.Finished("SIGINT"))], {})
    assert state() == ["finished"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian's package prometheus) is not installed")
@pytest.mark.parametrize("end", [[], END])
def test_prometheus_own_tool_finds_nothing_to_object_to(tmp_path: Path, end: list[Decision]) -> None:
    text = shown(make_run(tmp_path, [*BEGINNING, *end]))
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_a_hostile_name_stays_in_its_label(tmp_path: Path) -> None:
    names = ['"} 1\nbarnraise_tokens_total 9', "<script>", "\x1b[2J\u202e", "x" * 1_000_000, "back\\slash"]
    hostile: list[Decision] = [
        row
        for number, name in enumerate(names)
        for row in (
            NodeChanged(9.0, name, Change.ENROLLED, key=f"k{number}"),
            NodeChanged(9.0, name, Change.JOINED, session=1),
        )
    ]
    run = make_run(tmp_path, [*BEGINNING, *hostile])
    assert samples(run)["barnraise_tokens_total",] == 400
    text = shown(run)
    assert len(text) < 100_000
    assert text.replace("\n", "").isprintable()


def test_a_large_fleet_has_a_bounded_number_of_series(tmp_path: Path) -> None:
    many: list[Decision] = [
        row
        for number in range(MOST_WORKERS + 50)
        for row in (
            NodeChanged(9.0, f"n{number}", Change.ENROLLED, key=f"k{number}"),
            NodeChanged(9.0, f"n{number}", Change.JOINED, session=1),
        )
    ]
    run = make_run(tmp_path, [*BEGINNING, *many])
    workers = [key for key in samples(run) if key[0] == "barnraise_worker_tokens_total"]
    assert len(workers) == MOST_WORKERS
    assert metrics.CONTENT_TYPE.startswith("text/plain; version=0.0.4")
