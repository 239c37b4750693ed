"""Measure the cost of exporting a run's spans, by the share of assignments that get them.

    python benchmarks/tracing.py [--contributions 20000] [--shares 0 0.1 1] [--repeats 3] [--quick]

The run is a ledger that its real writer wrote, as in `account.py`. The exporter runs in a process of its own, as in a
controller, and sends to a collector in another process, which throws away what it gets. `cpu` is processor time a
contribution, `memory` by how much the process grew from before the exporter was imported: medians of the repeats (least
to most). `sent` is bytes a contribution. A share of 0 shows the cost of reading the ledger.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.connection import Connection
from pathlib import Path

import account
import psutil
from _machine import look

from barnraise.account.spans import Spans
from barnraise.assembly.tracing import Otlp, Tracing
from barnraise.core.units import bytes_text
from barnraise.ledger import RunDirectory

PATIENCE = 600.0


class Discard(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    got = 0

    def do_POST(self) -> None:
        Discard.got += len(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        told = str(Discard.got).encode()
        Discard.got = 0
        self.send_response(200)
        self.send_header("content-length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, format: str, *arguments: object) -> None: ...


def collect(told: Connection) -> None:
    """Serve a collector until the process is ended."""
    server = HTTPServer(("127.0.0.1", 0), Discard)
    told.send(server.server_port)
    server.serve_forever()


def export(path: Path, url: str, share: float, told: Connection) -> None:
    """Export a whole ledger once, and tell the processor seconds and how much memory it took."""
    run, warned = RunDirectory(path), list[str]()
    before, began = psutil.Process().memory_info().rss, time.process_time()
    made = Tracing(run, Spans("bench", share), lambda: Otlp(url, "bench", 0.0), warned.append)
    made.start()
    made.finish(PATIENCE)
    assert not warned, warned
    told.send((time.process_time() - began, psutil.Process().memory_info().rss - before))


def measured(run: RunDirectory, port: int, share: float) -> tuple[float, int, int]:
    """Processor seconds, bytes of memory, and bytes sent, of one export."""
    import urllib.request

    (run.path / "tracking" / "spans.msgpack").unlink(missing_ok=True)
    here, there = multiprocessing.Pipe()
    url = f"http://127.0.0.1:{port}"
    process = multiprocessing.get_context("spawn").Process(target=export, args=(run.path, url, share, there))
    process.start()
    seconds, memory = here.recv()
    process.join()
    with urllib.request.urlopen(url, timeout=60) as answer:
        return seconds, memory, int(answer.read())


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contributions", type=int, default=20_000)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.0, 0.1, 1.0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if options.quick:
        options.contributions, options.shares, options.repeats = 300, [1.0], 1
    print(look())
    print(f"{'share':>6}{'cpu, microseconds':>24}{'memory, MB':>20}{'sent':>12}")
    here, there = multiprocessing.Pipe()
    collector = multiprocessing.get_context("spawn").Process(target=collect, args=(there,), daemon=True)
    collector.start()
    port = here.recv()
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        run = RunDirectory.create("tracing", Path(folder))
        account.write(run, options.contributions)
        for share in options.shares:
            found = [measured(run, port, share) for _ in range(options.repeats)]
            cpu = [1e6 * seconds / options.contributions for seconds, _, _ in found]
            memory = [grown / 1e6 for _, grown, _ in found]
            sent = bytes_text(found[0][2] // options.contributions)
            print(f"{share:>6g}{spread(cpu):>24}{spread(memory):>20}{sent:>12}")
    collector.terminate()


if __name__ == "__main__":
    main()
