"""A simulation that leaves a run directory: run file, ledger, and its parameters, on the virtual clock."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec

from barnraise.account.account import AccountReader
from barnraise.account.facts import ANY_CHURN
from barnraise.assembly.simulation import Watch, unwatched
from barnraise.assembly.trial import Trial
from barnraise.config.load import dump
from barnraise.emulation.event_queue import seldom_collected
from barnraise.emulation.simulator import Simulator
from barnraise.ledger import Decision, RunDirectory, SimulatedLedger, Simulation
from barnraise.plan.estimate import estimate
from barnraise.plan.resolve import Plan

COMMIT = 8192
"""Decisions in a commit, at most."""

INTERVAL = 2.0
"""Seconds between commits, at most, while decisions are made: readers see a slow simulation as it proceeds."""


@contextmanager
def recorded(
    path: Path, plan: Plan, trial: Trial, watch: Watch = unwatched, *, say: Callable[[str], None]
) -> Iterator[Watch]:
    """Make a run directory at `path`, and yield `watch` with a recorder beside it, for `simulation.simulate`.

    A simulation that is interrupted leaves what it wrote. One that never began leaves nothing. Raises RunDirectoryError
    when the folder is not empty or cannot be made, StorageError.
    """
    run = RunDirectory.create_at(path)
    told = Simulation(
        nodes=trial.nodes,
        seed=trial.seed,
        snapshot_bytes=estimate(plan).sizes.snapshot_bytes,
        hours=trial.hours,
        churn=(ANY_CHURN if trial.churn is True else trial.churn) or "",
        real=trial.real,
    )

    @contextmanager
    def watched(simulator: Simulator) -> Iterator[None]:
        end = ""
        try:
            with SimulatedLedger(run.ledger, run.path.name) as ledger, _Recorder(simulator, ledger), watch(simulator):
                yield
            end = simulator.end
            with AccountReader(run) as reader, seldom_collected():
                reader.advance()  # writes the cache of the account where it is worth it: the first reader is quick, too
        finally:
            moved = {"bytes_up": simulator.bytes_up, "bytes_down": simulator.bytes_down}
            run.write(run.simulation_file, msgspec.structs.replace(told, end=end, **moved).encode())

    with run.lock():
        try:
            run.write(run.run_file, dump(plan.run_file).encode())
            run.write(run.simulation_file, told.encode())
            yield watched
        except BaseException as error:
            if not run.ledger.is_file():
                shutil.rmtree(run.path, ignore_errors=True)
            elif isinstance(error, KeyboardInterrupt):
                say(f"interrupted: {run.path} holds what was simulated until then")
            raise


class _Recorder:
    """Commits a simulator's decisions in their order, each time in another thread, for which the simulator waits.

    An interrupt reaches the simulator's thread, and so never cuts a commit short; the ledger then lacks the end of the
    decisions at most. If both worked at the same time they would hand the interpreter's lock over at each row, which
    costs more than it saves.
    """

    def __init__(self, simulator: Simulator, ledger: SimulatedLedger) -> None:
        self._simulator, self._ledger = simulator, ledger
        self._thread = ThreadPoolExecutor(1, "recorder")
        self._waiting: list[Decision] = []
        self._epoch, self._committed = ledger.epoch, time.monotonic()

    def __enter__(self) -> _Recorder:
        self._simulator.observers.append(self._observe)
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._hand_over()
        finally:
            self._thread.shutdown()

    def _observe(self, now: float, decision: Decision) -> None:
        epoch = self._simulator.controller.epoch
        if epoch != self._epoch:
            self._hand_over()
            self._epoch = epoch
        self._waiting.append(decision)
        if len(self._waiting) >= COMMIT or time.monotonic() - self._committed > INTERVAL:
            self._hand_over()

    def _hand_over(self) -> None:
        """Commit the decisions since the last time. Raises StorageError."""
        waiting, self._waiting = self._waiting, []
        self._thread.submit(self._commit, waiting, self._epoch).result()
        self._committed = time.monotonic()

    def _commit(self, decisions: list[Decision], epoch: int) -> None:
        while self._ledger.epoch < epoch:
            self._ledger.begin_epoch()
        self._ledger.commit(decisions)
