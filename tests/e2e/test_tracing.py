"""The spans of real runs, as a collector gets them: while a run works, across a resume, and without a collector."""

from __future__ import annotations

import re
import signal
import socket
import time
from itertools import pairwise
from pathlib import Path

import pytest

from barnraise.ledger import LedgerView, RunDirectory, VersionMade

from ..collector import FAILED, Collector, collecting, told

TRAINING = {"tokens": 50_000_000, "batch_size": 4, "local_steps": 5, "learning_rate": 0.003}
ORDER = ["train", "download", "training", "upload", "verdict", "buffer", "version"]


def require_sound(collector: Collector, began: float, run: RunDirectory) -> int:
    """Check each accepted contribution's trace, and return how many there are."""
    with LedgerView(run.ledger) as view:
        accepted = {row.assignment: row for row in view.assignments() if row.outcome == "accepted"}
        made = [found.version for _, found in view.find(VersionMade, "version > ?", 0)]
    seen = 0
    for root, *rest in collector.traces().values():
        assert root.parent_span_id == b""
        assert {span.parent_span_id for span in rest} <= {root.span_id}
        for span in (root, *rest):
            assert began * 1e9 <= root.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
            assert span.end_time_unix_nano <= root.end_time_unix_nano <= (time.time() + 1.0) * 1e9
        if told(root)["outcome"] != "accepted" or told(root)["task"] != "train":
            continue
        seen += 1
        row = accepted[told(root)["assignment"]]
        assert [span.name for span in (root, *rest)] == ORDER
        assert (told(root)["node"], told(rest[3])["verdict"]) == (row.node, "accepted")
        assert row.stop is not None
        judged = (rest[3].start_time_unix_nano - root.start_time_unix_nano) / 1e9
        assert judged == pytest.approx(row.stop - row.start, abs=0.01)
        for before, after in pairwise(rest):
            assert before.end_time_unix_nano == after.start_time_unix_nano, "no gap after the download"
        assert told(rest[2])["bytes"] > 0
        assert told(rest[5])["version"] in made
        assert not any(span.status.code == FAILED for span in (root, *rest))
    return seen


@pytest.mark.campaign
def test_a_collector_gets_a_run_and_its_resumption_each_trace_once(barnraise, run_file, tmp_path: Path) -> None:
    began = time.time()
    with collecting() as collector:
        path = run_file(tracing={"endpoint": collector.url}, training=TRAINING)
        train = barnraise("train", str(path), "--log", "plain")
        train.wait_for(lambda text: collector.spans)
        train.popen.send_signal(signal.SIGINT)
        assert train.wait() == 130, train.text()
        run = RunDirectory.open(next((tmp_path / "runs").iterdir()))
        before = require_sound(collector, began, run)
        assert before > 0
        resumed = barnraise("resume", str(run.path), "--log", "plain")
        seen = len(collector.spans)
        resumed.wait_for(lambda text: len(collector.spans) > seen)
        resumed.popen.send_signal(signal.SIGINT)
        assert resumed.wait() == 130, resumed.text()
        assert "spans are not exported" not in train.text() + resumed.text()
        spans = [(span.trace_id, span.span_id) for span in collector.spans]
    assert len(set(spans)) == len(spans)
    assert len({span.trace_id for span in collector.spans if span.name == "version"}) > before


@pytest.mark.campaign
def test_a_run_ends_as_usual_without_its_collector_and_says_so_once(barnraise, run_file) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    train = barnraise(
        "train", str(run_file(tracing={"endpoint": url}, training=TRAINING | {"tokens": 40_000})), "--log", "plain"
    )
    assert train.wait() == 0, train.text()
    assert len(re.findall("spans are not exported", train.text())) == 1, train.text()
    assert "refused" in train.text()


@pytest.mark.campaign
def test_a_run_without_the_extra_says_so_and_works(barnraise, run_file, tmp_path: Path) -> None:
    broken = tmp_path / "packages/opentelemetry"
    broken.mkdir(parents=True)
    (broken / "__init__.py").touch()  # it comes before the real one, and has nothing in it
    path = run_file(tracing={"enabled": True}, training=TRAINING | {"tokens": 20_000})
    train = barnraise("train", str(path), "--log", "plain", prefix=["env", f"PYTHONPATH={broken.parent}"])
    assert train.wait() == 0, train.text()
    told = "no tracing: OpenTelemetry's exporter is not installed (pip install 'barnraise[otel]')"
    assert train.text().count(told) == 1, train.text()
