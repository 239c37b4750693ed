"""Measure masked runs of real processes: processor time and bytes of an update beside runs without masks.

    python benchmarks/masking_run.py [--parts overhead,many] [--repeats 3] [--updates 4]

*overhead*: `barnraise train` with eight workers and, for masks, trustees (m, t), on a GPT-2 of 0.85M parameters that
trains on the bytes of this repository's documentation. Each side plays the same number of updates of 4,096 and of
12,800 tokens, in turn with the others. The benchmark reads the processor time of all processes from the system, from
when each worker has sent its first update until the run has counted its last one, and divides it by the updates. So
start and end of processes do not count, and other processes disturb it little. *of training* is what masks add over the
training time of an update: the time of all trustees, what the controller takes more than without masks, and a worker's
stage of masks, measured by itself on as many values. Targets: at most 20% at 4,096 tokens, 3% at 12,800; bytes at most
1.6 times those of the values without masks.

*many*: 64 workers and 8 trustees, of whom 2 may collude, on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import _machine
import numpy as np
import psutil

from barnraise.core.errors import RunDirectoryError
from barnraise.ledger import notes
from barnraise.ledger.decisions import Judged, Noted, VersionClosed
from barnraise.ledger.view import LedgerView
from barnraise.privacy.masking.committee import Committee, TrusteeKeys
from barnraise.privacy.masking.payload import UpdateOrigin, mask
from barnraise.privacy.masking.ring import Ring
from barnraise.privacy.masking.sealing import SealingKey
from barnraise.privacy.masking.terms import MaskTerms
from barnraise.trust.signatures import RunId, Signer

ROOT = Path(__file__).parents[1]
CONTEXT, BATCH = 64, 8
WORKERS = 8
STEPS = {4096: 8, 12_800: 25}
MODEL = {"hidden_size": 128, "num_layers": 4, "num_heads": 4}
TINY = {"hidden_size": 32, "num_layers": 2, "num_heads": 2}
AUTOMATIC = {"aggregation_rule": ["clip_median", "nnm", "trimmed_mean"], "aggregation_f": 1}
SIDES: dict[str, dict[str, Any]] = {
    "float32, no masks": {},
    "int8, no masks": {"training": {"compression": "int8"}},
    "masks 4, 1": {"masks": {"trustees": 4, "colluding": 1, "most": WORKERS}},
    "masks 4, 1, groups of 2": {"masks": {"trustees": 4, "colluding": 1, "group": 2}, "training": AUTOMATIC},
    "masks 8, 2": {"masks": {"trustees": 8, "colluding": 2, "most": WORKERS}},
}
BASE = "float32, no masks"


@dataclass
class Seen:
    """The outcome of one run: seconds of processors for an update by role, and the bytes of an update."""

    processors: dict[str, float] = field(default_factory=dict)
    wall: float = 0.0  # seconds of an update, all workers together
    payload: float = 0.0
    sums: Counter[int] = field(default_factory=Counter)  # bytes of sums of masks by version
    masks: float = 0.0  # bytes of sums of masks, for an update of a version that has all of them
    versions: int = 0
    version_seconds: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)
    memory: dict[str, float] = field(default_factory=dict)
    tasks: dict[str, list[float]] = field(default_factory=dict)  # seconds of trustees' tasks, by kind

    @property
    def total(self) -> float:
        return sum(self.processors.values())


def run_file(folder: Path, side: dict[str, Any], model: dict[str, Any], workers: int, training: dict[str, Any]) -> Path:
    content: dict[str, Any] = {
        "run": {"name": "masks", "dir": str(folder / "runs")},
        "model": {"architecture": "gpt2", "config": model},
        "data": {"kind": "text", "files": [str(ROOT / "docs/**/*.md")], "tokenizer": "bytes", "context": CONTEXT},
        "workers": [{"name": f"w{number}"} for number in range(workers)],
        "controller": {"evaluations": 1, "evaluation_rows": 8, "buffer_size": workers, "checkpoint_seconds": 1e6},
        "training": {"learning_rate": 0.002, "compression": "none", "auto_tune": False, "batch_size": BATCH}
        | training
        | side.get("training", {}),
    }
    if masks := side.get("masks"):
        content["privacy"] = {"secure_aggregation": masks, "overhead_limit": 1000}
    content |= side.get("sections", {})
    path = folder / "run.yaml"
    path.write_text(json.dumps(content))
    return path


@contextmanager
def training_run(path: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "barnraise.cli.main", "train", str(path), "--json"]
    with (folder / "log").open("wb") as log:
        run = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        yield run
    except BaseException:
        print((folder / "log").read_text("utf-8", "replace"), file=sys.stderr)
        raise
    finally:
        if run.poll() is None:
            run.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            run.wait(60)
        run.kill()
        run.wait()


class Tree:
    """Processor time and memory of a run's processes by role, which a process's log names."""

    def __init__(self, pid: int) -> None:
        self._root, self._roles = psutil.Process(pid), dict[int, str]()

    def look(self) -> Iterator[tuple[str, psutil.Process]]:
        yield "controller", self._root
        for process in self._root.children(recursive=True):
            with suppress(psutil.Error, OSError):
                if self._roles.get(process.pid, "other") == "other":
                    self._roles[process.pid] = role_of(process.pid)
                yield self._roles[process.pid], process

    def processors(self) -> Counter[str]:
        found = Counter[str]()
        for role, process in self.look():
            with suppress(psutil.Error):
                found[role] += sum(process.cpu_times()[:2])  # type: ignore[assignment]
        return found

    def memory(self) -> dict[str, float]:
        """Return MiB by role: a process's share, with what it shares divided by those that do."""
        found = Counter[str]()
        for role, process in self.look():
            with suppress(psutil.Error):
                found[role] += process.memory_full_info().pss / 2**20  # type: ignore[assignment]
        return dict(found)


def role_of(pid: int) -> str:
    name = Path(os.readlink(f"/proc/{pid}/fd/2")).name
    if name.startswith("worker-"):
        return "trustees" if name.startswith("worker-trustee") else "workers"
    return "other"


def play(
    side: dict[str, Any],
    model: dict[str, Any],
    workers: int,
    training: dict[str, Any],
    updates: int,
    look: Callable[[Path], None] = lambda run: None,
) -> Seen:
    """Play a run until its workers have sent `updates` updates each after their first ones; `look` sees its folder."""
    with tempfile.TemporaryDirectory() as name:
        folder, found, last = Path(name), Seen(), 0
        path = run_file(folder, side, model, workers, {"tokens": 10**12, **training})
        judged, closed = list[Judged](), list[VersionClosed]()
        with training_run(path, folder) as run:
            tree, first, began = Tree(run.pid), None, None
            while True:
                time.sleep(0.25)
                if run.poll() is not None:
                    raise SystemExit("the run ended before its time")
                ledgers = list((folder / "runs").glob("masks-*/ledger.sqlite"))
                with suppress(RunDirectoryError):
                    for number, decision in (item for one in ledgers for item in read(one, last)):
                        last = number
                        take(decision, found, judged, closed)
                came = Counter(one.node for one in judged)
                if first is None and len(came) == workers and closed:
                    first, began = tree.processors(), len(judged)
                    since, known = time.monotonic(), len(closed)
                if first is not None and began is not None and len(judged) >= began + workers * updates:
                    break
            count, used = len(judged) - began, tree.processors()
            found.wall = (time.monotonic() - since) / count
            found.memory = tree.memory()
        look(next((folder / "runs").glob("masks-*")))
        found.processors = {role: (used[role] - first[role]) / count for role in used}
        found.versions = len(closed) - known
        found.version_seconds = (closed[-1].time - closed[known - 1].time) / max(1, found.versions)
        summarise(found, judged, closed)
    return found


def read(path: Path, last: int) -> list[tuple[int, Any]]:
    with LedgerView(path) as view:
        return list(view.replay(last))


def take(decision: Any, found: Seen, judged: list[Judged], closed: list[VersionClosed]) -> None:
    if isinstance(decision, VersionClosed):
        closed.append(decision)
    elif isinstance(decision, Noted) and isinstance(decision.note, notes.VersionRefused):
        found.refused["version"] += 1
    elif isinstance(decision, Judged):
        if decision.verdict != "accepted":
            found.refused[decision.verdict] += 1
        elif decision.tokens:
            judged.append(decision)
        else:
            found.tasks.setdefault(decision.claim.result, []).append(decision.claim.seconds)
            found.sums[decision.unmasks] += decision.claim.num_bytes


def summarise(found: Seen, judged: Sequence[Judged], closed: Sequence[VersionClosed]) -> None:
    """Read medians of the updates. The newest version may lack some sums of masks, so it is left out of their mean."""
    found.payload = statistics.median(one.claim.num_bytes for one in judged)
    whole = [one for one in closed[:-1] if one.version in found.sums]
    found.masks = sum(found.sums[one.version] for one in whole) / max(1, sum(len(one.contributions) for one in whole))


def stage_seconds(size: int, m: int, t: int, most: int, repeats: int) -> float:
    """Return the median seconds of a worker's stage of masks: it rounds, masks, seals and signs `size` values."""
    keys = [(Signer(bytes([1, *[n] * 31])), SealingKey(bytes([2, *[n] * 31]))) for n in range(m)]
    trustees = tuple(TrusteeKeys(f"t{n}", one.public, two.public) for n, (one, two) in enumerate(keys))
    terms = MaskTerms(RunId("bench", "k" * 40), Ring(12, most, 0.1), size, Committee(trustees, t))
    values, signer = np.random.default_rng(0).normal(0, 0.01, size).astype(np.float32), Signer(bytes([3] * 32))
    taken = list[float]()
    for number in range(repeats):
        began = time.thread_time()
        words = terms.ring.quantise(values, terms.ring.most_weight)
        terms.ring.decode(words, 1)
        mask(terms, UpdateOrigin("n", number, 0, "00" * 32), words, signer)
        taken.append(time.thread_time() - began)
    return statistics.median(taken)


def parameters_of(model: dict[str, Any]) -> int:
    from barnraise.models import memory
    from barnraise.models.config import describe

    return memory.model_size(describe({"architecture": "gpt2", "config": model}, 258, CONTEXT))


def told(values: Sequence[float], factor: float = 1.0, digits: int = 1) -> str:
    """Return the median with the least and the most."""
    low, middle, high = (f"{factor * each(values):.{digits}f}" for each in (min, statistics.median, max))
    return f"{middle} ({low} to {high})"


def overhead(
    sides: Sequence[str], model: dict[str, Any], tokens: Sequence[int], repeats: int, updates: int, workers: int
) -> None:
    size = parameters_of(model)
    print(f"{size:,} values, {workers} workers, {repeats} repeats; ms of processors an update, bytes of an update")
    print("| tokens | side | all | workers | trustees | controller | other | of all without | of training | bytes |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for wanted in tokens:
        runs: dict[str, list[Seen]] = {name: [] for name in sides}
        for _ in range(repeats):
            for name in sides:
                runs[name].append(play(SIDES[name], model, workers, {"local_steps": STEPS[wanted]}, updates))
        base = runs[BASE]
        for name in sides:
            some, masks = runs[name], SIDES[name].get("masks")
            parts = [
                told([one.processors.get(role, 0.0) for one in some], 1000.0)
                for role in ("workers", "trustees", "controller", "other")
            ]
            ratio = told([one.total / other.total for one, other in zip(some, base, strict=True)], digits=3)
            share = "-"
            if masks:
                m, t = masks["trustees"], masks["colluding"]
                stage = stage_seconds(size, m, t, masks.get("most", 3), 5)
                share = told([added(one, other, stage) for one, other in zip(some, base, strict=True)], 100.0) + "%"
            sent = f"{some[0].payload:,.0f} + {some[0].masks:,.0f}" if masks else f"{some[0].payload:,.0f}"
            whole = told([one.total for one in some], 1000.0)
            print(f"| {wanted:,} | {name} | {whole} | {' | '.join(parts)} | {ratio} | {share} | {sent} |", flush=True)
            if trouble := sum((one.refused for one in some), Counter()):
                print(f"  {dict(trouble)}")


def added(masked: Seen, base: Seen, stage: float) -> float:
    """Return the time that masks add to an update, over the processor time of its workers without masks."""
    controller = masked.processors["controller"] - base.processors["controller"]
    return (stage + masked.processors.get("trustees", 0.0) + controller) / base.processors["workers"]


def many(workers: int, m: int, t: int, updates: int) -> None:
    side = {"masks": {"trustees": m, "colluding": t, "most": max(2, workers)}}
    began = time.monotonic()
    found = play(side, TINY, workers, {"local_steps": 8}, updates)
    print(
        f"{workers} workers and {m} trustees ({t} may collude), {parameters_of(TINY):,} values, "
        f"{time.monotonic() - began:.0f} s: {found.versions} versions, {found.version_seconds:.1f} s a version, "
        f"not accepted: {dict(found.refused)}"
    )
    print(f"  an update: {found.payload:,.0f} bytes, and {found.masks:,.0f} bytes of sums of masks")
    spent = ", ".join(f"{role} {1000 * seconds:.1f}" for role, seconds in found.processors.items())
    print(f"  ms of processors an update: {spent}; {1000 * found.wall:.0f} ms of the clock")
    print(f"  MiB: {', '.join(f'{role} {size:,.0f}' for role, size in found.memory.items())}")
    for kind, seconds in sorted(found.tasks.items()):
        print(f"  {kind}: {len(seconds)} answers, ms {told(seconds, 1000.0)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="overhead,many")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--updates", type=int, default=4, help="measured updates of each worker in a run")
    parser.add_argument("--tokens", default="4096,12800", help="tokens of an update, with commas between")
    parser.add_argument("--sides", default="", help="some of the sides, with ; between; the first one is always played")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    names = [name for name in SIDES if not options.sides or name == BASE or name in options.sides.split(";")]
    tokens, model, workers = [int(one) for one in options.tokens.split(",")], MODEL, WORKERS
    if options.quick:
        options.repeats, options.updates, names, tokens, model = 1, 1, [BASE, "masks 4, 1"], [4096], TINY
        workers = 2
    print(_machine.look())
    if "overhead" in options.parts.split(","):
        overhead(names, model, tokens, options.repeats, options.updates, workers)
    if "many" in options.parts.split(","):
        many(2 if options.quick else 64, 8, 2, options.updates)


if __name__ == "__main__":
    main()
