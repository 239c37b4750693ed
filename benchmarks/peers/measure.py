"""Measurements of a peer's run: counters of the sockets' bytes while it runs, and its result afterwards."""

from __future__ import annotations

import bisect
import json
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from barnraise.emulation.namespaces import DEVICE

INTERVAL = 0.5


@dataclass
class Result:
    """One run of one peer. Bytes are of all workers together, within the seconds of `seconds`; `joining` before."""

    peer: str
    network: str
    seed: int
    workers: int
    seconds: float
    tokens: int
    rate: float  # tokens a second, all workers
    share: float  # share of the workers' time that they trained
    up: int
    down: int
    host_up: int
    host_down: int
    joining: int  # bytes down, all workers
    busy: float  # share of the machine's cores
    curve: list[tuple[float, int, float]] = field(default_factory=list)  # seconds, tokens of all, held-out loss
    failed: int = 0  # messages of the peer that an exchange failed, all workers
    note: str = ""  # why it could not be run

    def per_million(self, num_bytes: int) -> float:
        """MB of one worker for a million tokens of all."""
        tokens = self.rate * self.seconds
        return num_bytes / self.workers / tokens if tokens else float("nan")

    def line(self) -> str:
        return json.dumps(asdict(self))


class Counters:
    """Bytes up and down of each namespace, and the cores' use, sampled in the background while it is entered.

    A process's /proc/PID/net/dev is that of its namespace, so nothing has to enter one.
    """

    def __init__(self, pids: dict[int, int]) -> None:
        self.pids = pids  # by the namespace's number; grows while processes start
        self.times: list[float] = []
        self.samples: list[dict[int, tuple[int, int]]] = []
        self.idle: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Counters:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        last: dict[int, tuple[int, int]] = {}
        while not self._over.wait(INTERVAL):
            last = {**last, **{at: found for at, pid in list(self.pids.items()) if (found := _bytes(pid))}}
            self.times.append(time.monotonic())
            self.samples.append(last)
            self.idle.append(psutil.cpu_times().idle)

    def at(self, moment: float) -> tuple[dict[int, tuple[int, int]], float]:
        """The sample nearest after `moment`: (up, down) by namespace, and idle seconds of all cores."""
        index = min(bisect.bisect_left(self.times, moment), len(self.times) - 1)
        return self.samples[index], self.idle[index]


def _bytes(pid: int) -> tuple[int, int] | None:
    try:
        lines = Path(f"/proc/{pid}/net/dev").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, rest = line.partition(":")
        if name.strip() == DEVICE:
            fields = rest.split()
            return int(fields[8]), int(fields[0])
    return None


def events(path: Path) -> list[dict[str, Any]]:
    """The lines of JSON in a worker's output; a line that is being written is left out."""
    if not path.is_file():
        return []
    found = []
    for line in path.read_text("utf-8", "replace").splitlines(keepends=True):
        if line.startswith('{"event"') and line.endswith("\n"):
            found.append(json.loads(line))
    return found


def summarise(
    counters: Counters, start: float, stop: float, *, workers: int, rate: float, speed: float, **more: object
) -> Result:
    """The result of what `workers` trained from `start` to `stop`."""
    (before, idle_before), (after, idle_after) = counters.at(start), counters.at(stop)

    def moved(at: int, way: int) -> int:
        return after.get(at, (0, 0))[way] - before.get(at, (0, 0))[way]

    seconds, numbers = stop - start, range(1, workers + 1)
    return Result(
        workers=workers,
        seconds=seconds,
        rate=rate,
        share=rate / (speed * workers),
        up=sum(moved(at, 0) for at in numbers),
        down=sum(moved(at, 1) for at in numbers),
        host_up=moved(0, 0),
        host_down=moved(0, 1),
        joining=sum(before.get(at, (0, 0))[1] for at in numbers),
        busy=1.0 - (idle_after - idle_before) / (seconds * (psutil.cpu_count() or 1)) if seconds else 0.0,
        **more,  # type: ignore[arg-type]
    )
