"""Measure a scrape of a run's metrics, over HTTP, by the number of its workers.

    python benchmarks/scrape.py [--workers 64 1000] [--contributions 20000] [--quick]

The run is a ledger that its real writer wrote, as in `account.py`, and the dashboard's server reads it in this process.
`first` folds all rows; then 20 scrapes find nothing new, and 20 find a commit of 16 contributions each: seconds of the
client, medians (least to most). `memory` is by how much the process grew from before the server was made to the end.
The target is 0.1 s for 1,000 workers.
"""

from __future__ import annotations

import argparse
import http.client
import os
import statistics
import tempfile
import time
import urllib.parse
from pathlib import Path

import account
import psutil
from _machine import look

from barnraise.core.units import bytes_text
from barnraise.dashboard.server import Dashboard
from barnraise.dashboard.source import FolderSource
from barnraise.ledger import Judged, Ledger, RunDirectory

REPEATS, MORE = 20, 16


def scraped(port: int) -> tuple[float, int]:
    """The seconds of one scrape, and its bytes."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    assert answer.status == 200, content
    return time.perf_counter() - began, len(content)


def told(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.3f} s ({min(seconds):.3f} to {max(seconds):.3f})"


def measure(folder: Path, workers: int, contributions: int) -> None:
    """One line of the table."""
    account.NODES = workers
    run = RunDirectory.create(f"scrape-{workers}", folder)
    account.write(run, contributions)
    before = psutil.Process().memory_info().rss
    with Dashboard(FolderSource(run), "127.0.0.1", 0) as dashboard:
        port = urllib.parse.urlparse(dashboard.url).port or 0
        first, size = scraped(port)
        same = [scraped(port)[0] for _ in range(REPEATS)]
        new = []
        with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
            for turn in range(REPEATS):
                start = contributions + 1 + MORE * turn
                rows = [row for number in range(start, start + MORE) for row in account.work(number)]
                ledger.commit(rows, {row.assignment: b"p" for row in rows if isinstance(row, Judged) and row.brings})
                new.append(scraped(port)[0])
    grown = psutil.Process().memory_info().rss - before
    print(f"{workers:>8,}{first:>9.2f} s  {told(same):>26}  {told(new):>26}{bytes_text(size):>9}{bytes_text(grown):>9}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[64, 1000])
    parser.add_argument("--contributions", type=int, default=20_000)
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if options.quick:
        options.workers, options.contributions = [8], 200
    print(look())
    print(f"{'workers':>8}{'first':>11}  {'nothing new':>26}  {'16 contributions new':>26}{'bytes':>9}{'memory':>9}")
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        for workers in options.workers:
            measure(Path(folder), workers, options.contributions)


if __name__ == "__main__":
    main()
