"""The real Prometheus scrapes a real run, and each query of the Grafana dashboard has data."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

TRAINING = {"tokens": 50_000_000, "batch_size": 4, "local_steps": 5, "learning_rate": 0.003}
OBSERVABILITY = Path(__file__).parents[2] / "deploy/observability"

pytestmark = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="Prometheus (Debian's package prometheus) is not installed",
)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Callable[[str], list[Any]]]:
    """Prometheus, which scrapes `target` each second by the project's own configuration; yields its queries."""
    port = free_port()
    text = (OBSERVABILITY / "prometheus.yml").read_text().replace("localhost:8710", target)
    text = re.sub(r"(scrape|evaluation)_interval: \d+s", r"\1_interval: 1s", text)
    (folder / "prometheus.yml").write_text(text)
    shutil.copy(OBSERVABILITY / "alerts.yml", folder)
    log = folder / "prometheus.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            ["prometheus", "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}",
             f"--storage.tsdb.path={folder / 'tsdb'}"],
            cwd=folder, stdout=out, stderr=out,
        )  # fmt: skip

    def query(expression: str) -> list[Any]:
        asked = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{asked}", timeout=10) as answer:
            told = json.load(answer)
        assert told["status"] == "success", told
        result: list[Any] = told["data"]["result"]
        return result

    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                query("1")
                break
            except OSError:
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield query
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


def expressions() -> list[str]:
    """The queries of the Grafana dashboard, with its variables filled in."""
    panels = json.loads((OBSERVABILITY / "grafana/dashboards/barnraise.json").read_text())["panels"]
    filled = {"$job": ".*", "$instance": ".*", "$__rate_interval": "10s"}
    found = [target["expr"] for panel in panels for target in panel["targets"]]
    for name, value in filled.items():
        found = [expression.replace(name, value) for expression in found]
    assert not any("$" in expression for expression in found)
    return found


@pytest.mark.timeout(300)
def test_prometheus_scrapes_a_run_and_each_query_of_the_dashboard_has_data(barnraise, run_file, tmp_path: Path) -> None:
    port = free_port()
    path = run_file(dashboard={"port": port}, training=TRAINING, controller={"evaluations": 2000, "evaluation_rows": 8})
    train = barnraise("train", str(path), "--log", "plain")
    train.wait_for(lambda text: f"metrics: http://127.0.0.1:{port}/metrics" in text)
    train.wait_for(lambda text: re.search(r"version [3-9]", text))
    with prometheus(tmp_path, f"127.0.0.1:{port}") as query:
        deadline = time.monotonic() + 120
        lacking = expressions()
        while lacking and time.monotonic() < deadline:
            time.sleep(1.0)
            lacking = [expression for expression in lacking if not query(expression)]
        assert not lacking
        tokens = float(query("barnraise_tokens_total")[0]["value"][1])
        while float(query("barnraise_tokens_total")[0]["value"][1]) == tokens:
            assert time.monotonic() < deadline + 60, "it follows the run"
            time.sleep(0.5)
        (state,) = query("barnraise_run_state == 1")
        assert state["metric"]["state"] in ("training", "waiting")
        assert query('up{job="barnraise"}')[0]["value"][1] == "1"
        train.popen.send_signal(signal.SIGINT)
        assert train.wait() == 130, train.text()
        deadline = time.monotonic() + 30
        while query('up{job="barnraise"}')[0]["value"][1] != "0":
            assert time.monotonic() < deadline
            time.sleep(0.5)


def test_the_alert_rules_are_sound_and_fire_as_they_should() -> None:
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(["promtool", *command], cwd=OBSERVABILITY, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
