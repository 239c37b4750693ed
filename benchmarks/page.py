"""Measure what an open page of a run costs: bytes, processor time of the server, memory, and time in the browser.

    python benchmarks/page.py [--pages 100] [--seconds 20] [--big DIR]

The run has 64 workers and ten contributions a second, made up and committed as a controller does. Its page is served by
a process of its own (`barnraise view`), so that the figures are the page's alone; without a page, with one, and with
`--pages` of them, each of which follows two views. `--big` is a run with a million contributions
(`benchmarks/big_ledger.py --out DIR`): how soon its page is there in Chromium, cold and warm, and the longest task of
the browser while its workers are scrolled. The weight of the page is beside that of bokeh, where it is installed.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
from _machine import look

from barnraise.account.page.assets import LAST, STYLES, content, page
from barnraise.config.load import dump, load
from barnraise.core.types import Blob, ParameterRange, RowRange
from barnraise.ledger import (
    Assigned,
    Change,
    Claim,
    Decision,
    Judged,
    Ledger,
    NodeChanged,
    Noted,
    RunDirectory,
    Terms,
    VersionClosed,
    VersionMade,
    Weighing,
    notes,
)
from barnraise.wire.manifest import Manifest

SPAN = ParameterRange(0, 10)
RUN = {
    "run": {"name": "page"},
    "model": {"architecture": "gpt2", "config": {"hidden_size": 8, "num_layers": 1, "num_heads": 1}},
    "data": {"kind": "text", "files": ["*.txt"]},
    "workers": [{"name": "a"}],
    "training": {"tokens": 1_000_000_000},
}
RATE = 10.0
"""Contributions a second."""


REDRAWN = """(async () => {
  const series = [{label: "a"}, {label: "b"}];
  const chart = barn.chart({title: "t", x: String, y: String, xlabel: "x", ylabel: "y", series: series});
  document.body.append(chart.element);
  const places = Array.from({length: 500}, (_, at) => at);
  const values = turn => [places, places.map(x => Math.sin(x / 50 + turn)), places.map(x => Math.cos(x / 50 + turn))];
  chart.update(values(0), "");
  chart.show();
  let spent = 0;
  for (let turn = 1; turn <= 200; turn++) {
    const next = values(turn), began = performance.now();
    chart.update(next, "");
    await new Promise(done => queueMicrotask(() => queueMicrotask(done)));  // uPlot draws in a microtask
    spent += performance.now() - began;
    await new Promise(requestAnimationFrame);
  }
  return spent / 200;
})()"""
"""A script that draws a chart again and again; it returns the milliseconds of one time."""


def contribution(number: int, node: str, time: float) -> list[Decision]:
    """The rows of one contribution, and of the version that it makes."""
    claim = Claim(number - 1, 4, 2.0, 0.9, 40, "ab" * 32)
    return [
        Assigned(time, number, node, "train", number - 1, 400, 4, (RowRange(0, 0, 4),), 4, Terms(50, 0.1, SPAN)),
        Judged(time + 1.0, number, node, "accepted", "", claim, number - 1, 0, 400, 0.1, SPAN, Weighing(1.0)),
        VersionClosed(time + 1.0, number, (number,), 1, 400, "full"),
        VersionMade(time + 1.1, number, "cd" * 32, 40),
    ]


@contextmanager
def growing(folder: Path, nodes: int) -> Iterator[RunDirectory]:
    """A run whose ledger grows while the context is open."""
    run = RunDirectory.create("page", folder)
    run.run_file.write_text(dump(load(RUN)))
    (run.path / "manifest.json").write_bytes(Manifest({"model_type": "gpt2"}, Blob("ab" * 32, 1), 10).encode())
    over = threading.Event()

    def grow() -> None:
        with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
            names = [f"node-{number:02}" for number in range(nodes)]
            ledger.commit([NodeChanged(0.1, name, Change.JOINED, session=1) for name in names], {})
            ready.set()
            began, number = time.monotonic(), 0
            while not over.is_set():
                number += 1
                ledger.commit(
                    contribution(number, names[number % nodes], time.monotonic() - began), {number: b"x" * 40}
                )
                over.wait(max(0.0, began + number / RATE - time.monotonic()))

    ready = threading.Event()
    writer = threading.Thread(target=grow)
    with run.lock():
        writer.start()
        ready.wait()
        yield run
        over.set()
        writer.join()


@contextmanager
def viewed(run: Path) -> Iterator[tuple[psutil.Process, str]]:
    """The process that serves a run's page, and the page's address."""
    command = [sys.executable, "-m", "barnraise.cli.main", "view", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield psutil.Process(process.pid), process.stdout.readline().split()[-1]
        finally:
            process.terminate()


async def follow(url: str, view: str, until: float) -> int:
    """Follow a view as a page does, after it came as a whole; return the bytes of its changes."""
    host, port = re.match(r"http://([^:/]+):(\d+)/", url).groups()  # type: ignore[union-attr]
    whole = await asyncio.to_thread(urllib.request.urlopen, f"http://{host}:{port}/data/{view}")
    number = json.loads(gzip.decompress(whole.read()))["id"]
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /stream/{view}?after={number} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    size = 0
    while (left := until - time.monotonic()) > 0:
        try:
            part = await asyncio.wait_for(reader.read(65536), left)
        except TimeoutError:
            break
        size += len(part)
    writer.close()
    return size


async def opened(url: str, pages: int, seconds: float) -> int:
    until = time.monotonic() + seconds
    views = ("overview", "time")
    return sum(await asyncio.gather(*(follow(url, view, until) for view in views for _ in range(pages))))


def server(pages: int, seconds: float) -> None:
    """Print the cost of the server without a page, with one, and with many."""
    print("\n| pages | processor, share of a core | memory, MB | bytes a second a page |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, growing(Path(folder), 64) as run, viewed(run.path) as (process, url):
        asyncio.run(opened(url, 1, min(5.0, seconds)))
        for number in dict.fromkeys((0, 1, pages)):
            before, began = process.cpu_times(), time.monotonic()
            size = asyncio.run(opened(url, number, seconds)) if number else time.sleep(seconds) or 0
            took, after = time.monotonic() - began, process.cpu_times()
            share = (after.user + after.system - before.user - before.system) / took
            memory = process.memory_info().rss / 1e6
            print(f"| {number} | {share:.2%} | {memory:.0f} | {size / took / max(1, number):,.0f} |")


def weight() -> None:
    """Print the weight of the page, and of another library."""
    files = [*STYLES, *LAST["run"]]
    whole = page("run").encode() + b"".join(content(name).encode() for name in files)
    charts = content("uPlot.iife.min.js").encode()
    print("\n| what | bytes | gzip |\n|---|---|---|")
    print(f"| the page, {len(files) + 1} files | {len(whole):,} | {len(gzip.compress(whole)):,} |")
    print(f"| of which uPlot | {len(charts):,} | {len(gzip.compress(charts)):,} |")
    if (found := find_spec("bokeh")) is not None and found.origin is not None:
        other = (Path(found.origin).parent / "server/static/js/bokeh.min.js").read_bytes()
        print(f"| bokeh.min.js | {len(other):,} | {len(gzip.compress(other)):,} |")


def latency(turns: int) -> None:
    """Print how soon an event that is committed is on an open page."""
    from playwright.sync_api import sync_playwright

    took = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        with growing(Path(folder), 64) as run:
            time.sleep(5.0 if turns > 1 else 1.0)
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with run.lock(), viewed(run.path) as (_, url), Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
            tab = browser.new_page()
            tab.goto(url)
            tab.wait_for_selector(".bar")
            tab.wait_for_timeout(3000)
            for number in range(turns):
                ledger.commit([Noted(100.0 + number, notes.Advice(f"advice {number};"))], {})
                began = time.monotonic()
                while f"advice {number};" not in tab.inner_text("main"):
                    tab.wait_for_timeout(10)
                took.append(time.monotonic() - began)
                tab.wait_for_timeout(700 + 90 * number)
        browser.close()
    told = f"{statistics.median(took):.2f} s ({min(took):.2f} to {max(took):.2f})"
    print(f"\nan event is on an open page after {told}, of {turns}")


def big(run: Path) -> None:
    """Print how soon the page of a large run is there, and the longest task while its workers are scrolled."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    print(
        "\n| large run | seconds until the loss is there | longest task in scrolling, ms | workers |\n|---|---|---|---|"
    )
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name in ("cold", "warm"):
            if name == "cold":
                (run / "account.cache").unlink(missing_ok=True)
            began = time.monotonic()
            with viewed(run) as (_, url):
                listening = time.monotonic() - began
                tab: Any = browser.new_page()
                began = time.monotonic()
                tab.goto(url)
                tab.wait_for_selector(".bar")
                there = time.monotonic() - began
                longest, workers = _scrolled(tab)
                redrawn = tab.evaluate(REDRAWN)
                tab.close()
            print(f"| {name} | {listening:.1f} until it is served, then {there:.2f} | {longest:.0f} | {workers} |")
        print(f"\na chart of 500 points is drawn again in {redrawn:.2f} ms, in the mean of 200 times")
        browser.close()


def _scrolled(tab: Any) -> tuple[float, int]:
    """Scroll through all workers; return the longest task in milliseconds, and their number."""
    tab.evaluate("location.hash = 'workers'")
    tab.wait_for_selector("tr[data-name]")
    tab.wait_for_timeout(1000)
    watch = "window.tasks = []; new PerformanceObserver(list => list.getEntries().forEach(one => "
    tab.evaluate(watch + "window.tasks.push(one.duration))).observe({entryTypes: ['longtask']})")
    for step in range(60):
        tab.evaluate(f"document.querySelector('.fleet').scrollTop = {step * 600}")
        tab.wait_for_timeout(30)
    return max(tab.evaluate("window.tasks"), default=0.0), int(
        tab.evaluate("document.querySelector('table').ariaRowCount")
    ) - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--big", type=Path, metavar="DIR", help="a run with a large ledger")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if options.quick:
        options.pages, options.seconds = 5, 1.0
    print(json.dumps(look(), default=str))
    weight()
    server(options.pages, options.seconds)
    if shutil.which("chromium") is not None:
        latency(1 if options.quick else 10)
    if options.big is not None:
        big(options.big)


if __name__ == "__main__":
    main()
