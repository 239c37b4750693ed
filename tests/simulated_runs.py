"""Simulated runs of a known fleet: their decisions, and run directories that hold them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config.load import dump, load
from barnraise.emulation.fleet import Machine
from barnraise.emulation.simulator import Simulator
from barnraise.ledger import Decision, Judged, Ledger, Noted, RunDirectory, notes
from barnraise.plan import Purpose, resolve
from barnraise.transport.links.presets import parse

TOKENS = 1_000_000
RUN: dict[str, Any] = {
    "run": {"name": "barn"},
    "model": {"architecture": "gpt2", "config": {"hidden_size": 64, "num_layers": 2, "num_heads": 2}},
    "data": {"kind": "text", "files": ["none.txt"], "context": 64},
    "training": {"tokens": TOKENS, "batch_size": 4, "local_steps": 20, "compression": "sparse_loco"},
    "controller": {"evaluations": 4},
}
MACHINES = (("ann", 4000.0, "good"), ("bob", 2000.0, "dsl"), ("cat", 1000.0, "dsl"), ("dan", 500.0, "dsl"))


def fleet(machines: Iterable[tuple[str, float, str]] = MACHINES) -> list[Machine]:
    """Return machines by name, tokens a second and link."""
    return [Machine(name, rate, parse(link)) for name, rate, link in machines]


def played(
    machines: Sequence[Machine] = (), *, churn: Path | None = None, seed: int = 1, run: dict[str, Any] = RUN
) -> list[Decision]:
    """Return the decisions of a simulated run to its end; `churn` is a trace."""
    there, rows = list(machines) or fleet(), list[Decision]()

    @contextmanager
    def watch(simulator: Simulator) -> Iterator[None]:
        simulator.observers.append(lambda _, decision: rows.append(decision))
        yield

    plan = resolve(load(run), purpose=Purpose.SIMULATE, nodes=len(there))
    simulate(plan, Trial(len(there), fleet=there, churn=str(churn) if churn else False, seed=seed), watch)
    return rows


def beginning(rows: Sequence[Decision], share: float, tokens: int = TOKENS) -> list[Decision]:
    """Return the decisions until that share of the tokens was counted."""
    counted = 0
    for place, row in enumerate(rows):
        if isinstance(row, Judged) and row.brings:
            counted += row.tokens
            if counted >= share * tokens:
                return list(rows[: place + 1])
    raise AssertionError("the run counted fewer tokens")


def end_of(rows: Sequence[Decision]) -> float:
    """Return when the run finished."""
    return next(row.time for row in rows if isinstance(row, Noted) and isinstance(row.note, notes.Finished))


def directory(folder: Path, rows: Sequence[Decision], run: dict[str, Any] = RUN) -> RunDirectory:
    """Write a run directory with these decisions."""
    made = RunDirectory.create("barn", folder)
    made.run_file.write_text(dump(load(run)))
    payloads = {row.assignment: b"payload" for row in rows if isinstance(row, Judged) and row.brings}
    with Ledger(made.ledger, made.segments, run=made.path.name) as ledger:
        ledger.commit(list(rows), payloads)
    return made
