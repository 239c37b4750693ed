"""The runs of a matrix of attacks: each is a simulation that trains, in a process of its own.

Results are written line by line as they come, so that an interrupted matrix continues.
"""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import msgspec

from barnraise.account.charts import heat_map
from barnraise.account.trials import Aim, Found, Verdict, judged, markdown
from barnraise.core.errors import RunFailedError, StorageError
from barnraise.core.signals import NUMBERS, interruptible
from barnraise.ledger.disk import storage_errors
from barnraise.plan.matrix import Cell, Matrix

RESULTS, TABLE, PICTURE, VERDICTS = "results.jsonl", "table.md", "heat-map.png", "verdicts.json"
"""The files in the folder of a matrix."""

TASK_SECONDS = 20.0
"""Virtual seconds of a usual task for a node: much longer than the start of the fleet."""


@dataclass(frozen=True)
class MatrixProgress:
    """The progress of a matrix: the run that ended last, how many have, and how many there are."""

    cell: Cell
    found: Found
    done: int
    runs: int


def play_matrix(matrix: Matrix, folder: Path, processes: int, say: Callable[[MatrixProgress], None]) -> list[Verdict]:
    """Play all runs without a result in `folder`, `processes` at a time, and write the results there.

    Raises StorageError, and the errors of a run that cannot be set up; KeyboardInterrupt on SIGINT and SIGTERM, once
    all processes have ended.
    """
    results = _Results(folder / RESULTS)
    wanted = {cell.key: cell for cell in matrix.cells}
    missing = [cell for key, cell in wanted.items() if key not in results.found]
    done = len(wanted) - len(missing)
    others = active_children()
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=_deaf) as pool:
        try:
            with interruptible():
                runs = {pool.submit(play, cell.content, cell.skew, matrix.attacks): cell for cell in missing}
                for future in as_completed(runs):
                    cell, found, done = runs[future], future.result(), done + 1
                    results.add(cell, found)
                    say(MatrixProgress(cell, found, done, len(wanted)))
        except BaseException:
            for player in active_children():
                if player not in others:
                    player.kill()
            pool.shutdown(cancel_futures=True)
            raise
    verdicts = judged(matrix.cells, results.found)
    _write(folder, verdicts)
    return verdicts


def _deaf() -> None:
    """Ignore the signals to all processes of a terminal, which the parent handles."""
    for number in NUMBERS:
        signal.signal(number, signal.SIG_IGN)


def play(content: Mapping[str, Any], skew: float | None, aims: Mapping[str, Mapping[str, Any]]) -> Found:
    """Play one run, with one thread."""
    os.environ["OMP_NUM_THREADS"] = "1"
    from barnraise.assembly.simulation import simulate
    from barnraise.assembly.trial import Trial
    from barnraise.config.load import load
    from barnraise.plan.purpose import SIMULATE
    from barnraise.plan.resolve import resolve

    run_file = load(content)
    nodes = len(run_file.workers)
    plan = resolve(run_file, purpose=SIMULATE, nodes=nodes)
    began = time.monotonic()
    try:
        rate = plan.task_tokens / TASK_SECONDS
        trial = Trial(nodes, seed=run_file.run.seed, real=True, tokens_per_second=rate, skew=skew)
        report = simulate(plan, trial, aims=aims)
    except RunFailedError as error:
        took = time.monotonic() - began
        return Found(first=0.0, loss=None, seconds=0.0, accepted=0, refused=0, took=took, end=str(error))
    losses, verdicts = report.losses, report.verdicts
    assert losses.first_loss is not None
    return Found(
        first=losses.first_loss,
        loss=losses.final_loss if losses.final_loss is not None and losses.final_loss < math.inf else None,
        seconds=report.duration.virtual_seconds,
        accepted=verdicts.accepted,
        refused=verdicts.refused,
        took=time.monotonic() - began,
        end=report.end,
        convicted=list(verdicts.convicted),
        curve=[(point.tokens, point.loss) for point in losses.curve if point.loss is not None],
        targets={name: Aim(target.share, target.loss) for name, target in (losses.targets or {}).items()},
    )


class _Results:
    """Lines with a run's key, its parameters, and its result."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.found: dict[str, Found] = {}
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = path.read_text().splitlines() if path.exists() else []
        for number, line in enumerate(lines, 1):
            try:
                key, _, found = json.loads(line)
                self.found[key] = msgspec.convert(found, Found)
            except (ValueError, msgspec.ValidationError) as error:
                if number == len(lines):  # cut short as it was written
                    with storage_errors(path):
                        path.write_text("".join(f"{whole}\n" for whole in lines[:-1]))
                    break
                raise StorageError(f"{path}:{number} is no result ({error}); take the line out") from None

    def add(self, cell: Cell, found: Found) -> None:
        self.found[cell.key] = found
        told = [str(cell.setting), cell.rule, cell.attack, cell.seed]
        with storage_errors(self._path), self._path.open("a") as file:
            file.write(f"{json.dumps([cell.key, told, msgspec.to_builtins(found)])}\n")


def _write(folder: Path, verdicts: list[Verdict]) -> None:
    names = list(dict.fromkeys(name for verdict in verdicts for name in verdict.gaps))
    settings = {verdict.setting for verdict in verdicts}
    rows = [verdict.rule if len(settings) == 1 else f"{verdict.rule}: {verdict.setting}" for verdict in verdicts]
    values = [
        [None if (gap := verdict.gaps.get(name)) is None or gap.failed else gap.mean for name in names]
        for verdict in verdicts
    ]
    with storage_errors(folder):
        (folder / TABLE).write_text(markdown(verdicts))
        (folder / VERDICTS).write_text(json.dumps([verdict.as_dict() for verdict in verdicts], indent=1) + "\n")
    heat_map(folder / PICTURE, rows, names, values)
