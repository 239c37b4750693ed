"""Seconds of exchanges over emulated links: measured in network namespaces with real bytes, or computed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from peers.measure import events
from peers.networks import linked
from peers.runs import FOLDER, process

from barnraise.emulation import namespaces
from barnraise.transport.links.presets import parse

LONGEST = 120.0
"""Seconds for the processes to find each other; the exchanges' own time comes on top."""


@dataclass(frozen=True)
class Exchange:
    """One exchange of `workers`: `kind` is ring (an all-reduce), up or down (a payload from each to a host, and back).

    `measured` is None where this machine cannot emulate links.
    """

    kind: str
    num_bytes: int
    mbit: float
    delay_ms: float
    workers: int
    measured: float | None = None

    @property
    def computed(self) -> float:
        """Return the seconds by bytes over bandwidth; a ring moves 2 (n - 1) / n payloads each way, without delay."""
        sent = 2 * (self.workers - 1) / self.workers if self.kind == "ring" else 1.0
        return sent * self.num_bytes / (self.mbit * 125_000.0)

    @property
    def seconds(self) -> float:
        return self.computed if self.measured is None else self.measured

    def __str__(self) -> str:
        told = "cannot be measured here" if self.measured is None else f"measured {self.measured:.2f} s"
        moved = f"{self.kind:<5}{self.num_bytes / 1e6:9.2f} MB over {self.mbit:g} Mbit/s"
        return f"{moved}: computed {self.computed:.2f} s, {told}"


def measure(wanted: list[tuple[str, int]], mbit: float, delay_ms: float, workers: int, most: int) -> list[Exchange]:
    """Return the exchanges of these kinds and bytes, measured if this machine can emulate links.

    At most `most` bytes of a payload are moved. For a larger one, these and a quarter of them give latency and rate.
    """
    if namespaces.missing():
        return [Exchange(kind, num_bytes, mbit, delay_ms, workers) for kind, num_bytes in wanted]
    parts = [(kind, part) for kind, num_bytes in wanted for part in _parts(num_bytes, most)]
    allowed = LONGEST + 3 * sum(Exchange(*part, mbit, delay_ms, workers).computed for part in parts)
    link = parse(f"{mbit:g}mbit/{delay_ms / 2:g}ms")  # two links are between any two machines
    with tempfile.TemporaryDirectory(prefix="barnraise-links-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        job = {"host": namespaces.address(0), "workers": workers, "exchanges": parts}
        (folder / "job.json").write_text(json.dumps(job))
        spaces = stack.enter_context(linked(workers, link, None))
        outputs = [folder / f"{rank}.out" for rank in range(workers + 1)]
        running = [
            stack.enter_context(
                process(
                    spaces[rank],
                    [sys.executable, str(FOLDER / "exchange.py"), str(folder / "job.json"), str(rank)],
                    out,
                )
            )
            for rank, out in enumerate(outputs)
        ]
        with contextlib.suppress(subprocess.TimeoutExpired):
            running[1].wait(allowed)
        told = events(outputs[1])
        if len(told) < len(parts):
            raise RuntimeError(f"the exchanges did not end within {allowed:.0f} s: {outputs[1].read_text()[-300:]}")
    seconds = iter([event["seconds"] for event in told])
    found = []
    for kind, num_bytes in wanted:
        least = Exchange(kind, 1, mbit, delay_ms, workers).computed
        whole = _whole(num_bytes, {part: next(seconds) for part in _parts(num_bytes, most)}, least)
        found.append(Exchange(kind, num_bytes, mbit, delay_ms, workers, whole))
    return found


def _parts(num_bytes: int, most: int) -> list[int]:
    """Return the bytes that are moved for a payload."""
    return [num_bytes] if num_bytes <= most else [most // 4, most]


def _whole(num_bytes: int, seconds: dict[int, float], least: float) -> float:
    """Return the time of a payload from the seconds of its parts by their bytes; a byte takes `least` or more."""
    if num_bytes in seconds:
        return seconds[num_bytes]
    (few, short), (many, long) = sorted(seconds.items())
    return long + max(least, (long - short) / (many - few)) * (num_bytes - many)
