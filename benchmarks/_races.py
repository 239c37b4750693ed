"""Code that the benchmarks of time to a loss share: the data, curves and their picture, kept results."""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

DATA = {"modules": ["/*.py"], "tests": ["/*.py", "/test/*.py"]}
T = TypeVar("T")


def files(data: str) -> list[str]:
    """The modules of the standard library, without packages; its tests as well."""
    return [sysconfig.get_path("stdlib") + part for part in DATA[data]]


class At(NamedTuple):
    """A point of a run: seconds and tokens of training, held-out loss, bytes on all links (None: there are none)."""

    seconds: float
    tokens: float
    loss: float
    num_bytes: float | None


def reached(curve: Sequence[At], loss: float) -> tuple[float, float] | None:
    """Seconds and tokens until `loss`, between two points on a line; None where no later point has it."""
    for before, after in pairwise(curve):
        if after.loss <= loss:
            share = (before.loss - loss) / (before.loss - after.loss) if before.loss > loss else 0.0
            seconds = before.seconds + share * (after.seconds - before.seconds)
            return seconds, before.tokens + share * (after.tokens - before.tokens)
    return None


def picture(path: Path, curves: Mapping[str, Sequence[At]], seconds: str) -> None:
    """Loss against time (whose axis says `seconds`), tokens and bytes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 4), sharey=True, layout="constrained")
    for name, curve in curves.items():
        losses = [point.loss for point in curve]
        (line,) = axes[0].plot([point.seconds for point in curve], losses, label=name)
        axes[1].plot([point.tokens / 1e6 for point in curve], losses)
        sent = [(point.num_bytes / 1e6, point.loss) for point in curve if point.num_bytes]
        if sent:
            axes[2].plot(*zip(*sent, strict=True), color=line.get_color())
    axes[2].set_xscale("log")
    for axis, label in zip(axes, (seconds, "million tokens", "MB on all links"), strict=True):
        axis.set_xlabel(label)
        axis.grid(True, color="#E4E4E4")
    low = min(point.loss for curve in curves.values() for point in curve)
    axes[0].set_xlim(left=0)
    axes[0].set_ylim(low - 0.05, low + 1.0)
    axes[0].set_ylabel("held-out loss, nats a token")
    axes[0].legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


class Known:
    """Results that are stored as they come, so that an interrupted benchmark continues where it stopped.

    A file of lines `[key, result]`; `path` None keeps nothing. Keys are lists of settings, results dataclasses.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._found = path, dict[str, object]()
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                key, result = json.loads(line)
                self._found[json.dumps(key)] = result

    def get(self, key: list[object], kind: type[T]) -> T | None:
        """Return the stored result for these settings."""
        result = self._found.get(json.dumps(key))
        return None if result is None else msgspec.convert(result, kind, str_keys=True)

    def every(self, kind: type[T]) -> Iterator[T]:
        """Yield all stored results, the last of each key."""
        for result in self._found.values():
            yield msgspec.convert(result, kind, str_keys=True)

    def add(self, key: list[object], result: object) -> None:
        self._found[json.dumps(key)] = msgspec.to_builtins(result)
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(f"[{json.dumps(key)}, {msgspec.json.encode(result).decode()}]\n")
