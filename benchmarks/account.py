"""Measure the cost of a run's account: cold, with the cache file, again in one process, and as `barnraise status`.

    python benchmarks/account.py [--counts 0 10000 40000 1000000] [--quick]

Each run is a ledger of as many contributions as `--counts` says, which the ledger's real writer writes: tasks,
verdicts, versions of eight contributions, evaluations, figures once a minute, and some nodes that come and go. The
ledger holds no tensor, and each payload is one byte. `cold` folds all rows, `cached` begins with the cache file, and
`again` finds no new rows. Figures are processor seconds, the least of three (`cold`: once). `status` is the process of
`barnraise status`, which finds the cache file; in brackets stand the seconds that its user waits. The line of no
contributions shows the share of starting Python.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from _machine import look

from barnraise.account.account import AccountReader, read
from barnraise.config.load import dump, load
from barnraise.core.types import Blob, NodeProfile, ParameterRange, RowRange
from barnraise.core.units import bytes_text
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

NODES, BUFFER, PARAMETERS, TOKENS = 200, 8, ParameterRange(0, 10_000_000), 2048
COMMIT = 256
"""Contributions in a commit."""

RUN = {
    "run": {"name": "account"},
    "model": {"architecture": "gpt2", "config": {"hidden_size": 8, "num_layers": 1, "num_heads": 1}},
    "data": {"kind": "text", "files": ["*.txt"]},
    "workers": [{"name": "a"}],
    "training": {"tokens": 10**12},
}


def beginning() -> Iterator[Decision]:
    """The rows before the first task."""
    yield Noted(0.0, notes.Started("ab" * 32, "account"))
    yield Noted(0.0, notes.RunFile("", {"training": {"aggregation_rule": "krum", "aggregation_f": 2}}))
    yield Noted(0.0, notes.BufferSize(BUFFER, NODES, "automatic"))
    for number in range(NODES):
        yield NodeChanged(0.0, f"node-{number}", Change.ENROLLED, key="k")
        yield NodeChanged(0.0, f"node-{number}", Change.JOINED, session=1, profile=NodeProfile(device="cpu"))


def work(number: int) -> Iterator[Decision]:
    """The rows of contribution `number`: its task, its verdict, and what follows from it now and then."""
    time, node, version = 0.1 * number, f"node-{number % NODES}", number // BUFFER
    terms = Terms(50, 1e-3, PARAMETERS, compute=15.0, fetch=1.0, send=3.0, compute_spread=0.1, link_spread=0.2)
    rows = (RowRange(number % 64, 16 * number, 16 * (number + 1)),)
    yield Assigned(time, number, node, "train", version, TOKENS, 4, rows, 16 * number, terms)
    refused = number % 50 == 49
    claim = Claim(version, 4, 3.0, 17.0 + number % 5, 4000, "cd" * 32, 0, None, "ef" * 64)
    yield Judged(
        time + 19.0, number, node, "refused" if refused else "accepted", "stale" if refused else "", claim,
        version=version, staleness=number % 7, tokens=TOKENS, norm=0.1, parameters=PARAMETERS, weighing=Weighing(1.0),
    )  # fmt: skip
    if number % BUFFER == 0:
        made_of = tuple(one for one in range(number - BUFFER + 1, number + 1) if one % 50 != 49)
        yield VersionClosed(time + 19.0, version, made_of, len(made_of), TOKENS * len(made_of), "full", 1.0, (1.0,))
        yield VersionMade(time + 19.5, version, "ab" * 32, 4000)
    if number % 400 == 0:
        yield Noted(time + 20.0, notes.Evaluated(version, 3.0 + 1.0 / number, TOKENS * number))
        yield NodeChanged(time + 20.0, node, Change.LEFT, "silent for 5.0 s")
        yield NodeChanged(time + 21.0, node, Change.JOINED, session=1, profile=NodeProfile(device="cpu"))
    if number % 600 == 0:
        yield Noted(time + 20.0, notes.Traffic(4000 * number, 4000 * number))
        yield Noted(time + 20.0, notes.Matched(NODES, 64, number, number // 2, 0.9, 1.0, 0.01))
        yield Noted(time + 20.0, notes.Employed(0.1, 0.02, number, number // 50))


def write(run: RunDirectory, count: int) -> int:
    """Write a ledger with the given number of contributions, and return how many rows it has."""
    run.run_file.write_text(dump(load(RUN)))
    (run.path / "manifest.json").write_bytes(Manifest({"model_type": "gpt2"}, Blob("ab" * 32, 1), 10).encode())
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        ledger.commit(list(beginning()))
        for start in range(1, count + 1, COMMIT):
            rows = [row for number in range(start, min(start + COMMIT, count + 1)) for row in work(number)]
            ledger.commit(rows, {row.assignment: b"p" for row in rows if isinstance(row, Judged) and row.brings})
        return ledger.last_id


def spent(action: Callable[[], object]) -> float:
    """The processor seconds of an action, the least of three."""
    found = []
    for _ in range(3):
        began = time.process_time()
        action()
        found.append(time.process_time() - began)
    return min(found)


def status(run: RunDirectory) -> tuple[float, float]:
    """The processor seconds of `barnraise status`, and the seconds that its user waits: the least of three each."""
    spans = []
    for _ in range(3):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        command = [sys.executable, "-m", "barnraise.cli.main", "status", str(run.path)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after, waited = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
        spans.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, waited))
    return min(cpu for cpu, _ in spans), min(waited for _, waited in spans)


def measure(folder: Path, count: int) -> None:
    """One line of the table."""
    run = RunDirectory.create(f"account-{count}", folder)
    rows = write(run, count)
    began = time.process_time()
    read(run)
    cold = time.process_time() - began
    with AccountReader(run) as reader:
        reader.advance()
        reader.keep()
        warm, again = spent(lambda: read(run)), spent(reader.read)
    cpu, waited = status(run)
    size = run.account_cache.stat().st_size
    print(
        f"{count:>13,}{rows:>12,}{cold:>10.2f}{warm:>10.3f}{again:>10.3f}{cpu:>10.2f}{f'({waited:.2f})':>9}"
        f"{bytes_text(size):>12}{bytes_text(run.ledger.stat().st_size):>12}",
        flush=True,
    )
    shutil.rmtree(run.path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[0, 10_000, 40_000, 1_000_000])
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    print(look())
    print(
        f"{'contributions':>13}{'rows':>12}{'cold':>10}{'cached':>10}{'again':>10}{'status':>10}{'':>9}{'cache':>12}"
        f"{'ledger':>12}"
    )
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        for count in [0, 500] if options.quick else options.counts:
            measure(Path(folder), count)


if __name__ == "__main__":
    main()
