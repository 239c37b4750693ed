"""Check of workers' contributions: a sample of stateless tasks is repeated.

Versions are visited as they are made again; a task is repeated as soon as the newest version that it took in is there,
so that few are kept at a time.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
import torch
from torch import Tensor

from barnraise.account.account import manifest
from barnraise.assembly.engine_settings import worker_settings
from barnraise.compression.base import Array, Codec
from barnraise.controller.tensors.parameter_server import Made, ParameterServer
from barnraise.controller.work.training import task_of
from barnraise.core import ranges
from barnraise.core.types import Batches, Train, Transcript
from barnraise.data.shards import Dataset
from barnraise.ledger.decisions import Assigned, Judged
from barnraise.models.build import build_exchanged
from barnraise.training.problems import problem_of
from barnraise.trust.repeats import PERTURBATION, TOLERANCE
from barnraise.verification.check import Check
from barnraise.verification.subject import LedgerRow
from barnraise.worker.building import make_trainer
from barnraise.worker.executor import WorkerExecutor
from barnraise.worker.past import Perturbed, Versions

SAMPLE = 20
"""Contributions that are repeated by default."""


@dataclass(frozen=True)
class RepeatedWork:
    """A contribution that is repeated: its task, as far as steps were taken, and its node's transcript."""

    task: Train
    judged: Judged
    transcript: Transcript

    @property
    def needs(self) -> set[int]:
        """Return the versions that it needs."""
        return {self.transcript.start, *(taken.version for taken in self.transcript.taken)}


class WorkCheck(Check):
    """Repeats `most` accepted contributions, drawn by `seed` (random unless given)."""

    name = "work"
    says = (
        "The contributions that were drawn, of stateless tasks, are what their tasks make when they are done again: "
        "to the bit, or within the tolerance that audits have. Where rounding alone leads further apart than that, "
        "the check cannot tell."
    )

    def __init__(self, most: int = SAMPLE, seed: int | None = None) -> None:
        super().__init__()
        self._most, self._random = most, random.Random(seed)
        self._open: dict[int, tuple[Assigned, tuple[int, int]]] = {}  # training tasks without a verdict
        self._seen = self._unrepeated = 0  # contributions that can be repeated, and those that cannot
        self._unsettled = 0  # contributions that differ, as perturbed repetitions of their tasks do
        self._drawn: list[RepeatedWork] = []
        self._wanted: Counter[int] | None = None  # uses of each version that remain
        self._movements: set[int] = set()
        self._kept: dict[int, Tensor] = {}
        self._moved: dict[int, Tensor] = {}

    # Drawing

    def row(self, row: LedgerRow) -> None:
        decision = row.decision
        if isinstance(decision, Assigned) and decision.kind == "train":
            work = self.subject.history.state.works.get(decision.assignment)
            self._open[decision.assignment] = decision, (work.root, work.done) if work is not None else (0, 0)
        elif isinstance(decision, Judged):
            told, opened = decision.claim.transcript, self._open.pop(decision.assignment, None)
            if decision.verdict != "accepted" or (opened is None and not decision.contributes):
                return
            if self._unrepeatable:
                self._unrepeated += 1
            elif opened is None or opened[0].terms.pace is None or told is None or not decision.contributes:
                self._without_transcript(row, decision)
            else:
                self._draw(RepeatedWork(self._task(*opened, told), decision, told))

    @cached_property
    def _unrepeatable(self) -> str:
        """Return why no machine can repeat tasks of this run; "" where one can."""
        run_file = self.subject.plan.run_file
        if run_file.data.kind == "site":
            return "their rows stay with their owners: no other machine can repeat them"
        if run_file.training.tasks != "stateless":
            return "tasks were stateful: no machine can repeat them (training.tasks: stateless)"
        return ""

    def _task(self, assigned: Assigned, place: tuple[int, int], told: Transcript) -> Train:
        """Return the task as far as steps were taken."""
        root, done = place
        run_file = self.subject.plan.run_file
        batches = Batches(assigned.rows, run_file.training.step_rows, run_file.run.seed + root, done)
        return msgspec.structs.replace(task_of(assigned, batches), local_steps=told.batches)

    def _without_transcript(self, row: LedgerRow, judged: Judged) -> None:
        self.wrong(
            "ledger.sqlite",
            f"row {row.id} of table {row.form.table}, contribution {judged.assignment} of {judged.node}",
            expected="a transcript: tasks are stateless, and the controller takes no contribution without one",
            found="none, or not that of a stateless task",
            remedy="do not believe this contribution: the row was altered, so that no machine can repeat the task",
        )

    def _draw(self, found: RepeatedWork) -> None:
        """Draw a contribution with equal chance for each, however many follow (reservoir sampling)."""
        self._seen += 1
        if len(self._drawn) < self._most:
            self._drawn.append(found)
        elif (place := self._random.randrange(self._seen)) < self._most:
            self._drawn[place] = found

    # Repetition

    def version(self, server: ParameterServer) -> None:
        if self._wanted is None:
            self._wanted = Counter(version for drawn in self._drawn for version in drawn.needs)
            self._movements = {drawn.transcript.start for drawn in self._drawn if drawn.transcript.moved}
        version = server.version
        if self._wanted[version]:
            self._kept[version] = server.parameters.clone()
        if version in self._movements and server.made is not None:
            self._moved[version] = _movement(server.made, self._executor.published.codec, len(server.parameters))
        for drawn in [drawn for drawn in self._drawn if drawn.transcript.newest == version]:
            if drawn.needs <= self._kept.keys() and (
                not drawn.transcript.moved or drawn.transcript.start in self._moved
            ):
                self._drawn.remove(drawn)
                self._again(drawn)
            self._let_go(drawn)

    def _let_go(self, drawn: RepeatedWork) -> None:
        assert self._wanted is not None
        self._wanted.subtract(drawn.needs)
        for version in [version for version in self._kept if self._wanted[version] <= 0]:
            del self._kept[version]
            self._moved.pop(version, None)

    def at(self, version: int) -> Tensor:
        """Return a version as `worker.past.Versions` does."""
        return self._kept[version]

    def movement(self, version: int) -> Tensor:
        """Return a movement as `worker.past.Versions` does."""
        return self._moved[version]

    def _again(self, drawn: RepeatedWork) -> None:
        number, claim = drawn.judged.assignment, drawn.judged.claim
        if number not in self.subject.payloads:
            self._drawn.append(drawn)
            return
        with _as_a_worker():
            found = self._executor.again(drawn.task, drawn.transcript, self)
        self.count("done again")
        if found is not None and found[0].blob.digest == claim.digest:
            self.count("to the bit")
            return
        precision = self.subject.plan.run_file.training.precision
        sent, made = self._sent(drawn), None if found is None else found[0].decoded()
        apart = _apart(sent, made)
        if apart <= TOLERANCE[precision]:
            self.count("within the tolerance")
            return
        versions: Versions = Perturbed(self, PERTURBATION[precision], number)
        with _as_a_worker():
            perturbed = self._executor.again(drawn.task, drawn.transcript, versions)
        if made is not None and _apart(made, perturbed and perturbed[0].decoded()) > TOLERANCE[precision]:
            self._unsettled += 1
            return
        place = self.subject.payloads[number]
        self.wrong(
            f"segments/{place.number:08d}.seg",
            f"contribution {number} of {drawn.judged.node}",
            expected="what its task makes, done again here",
            found="nothing that is finite" if made is None else f"an update that is {apart:.0%} of its length away",
            remedy="let another machine verify; if it says the same, this node did not do the task that it was given",
        )

    def _sent(self, drawn: RepeatedWork) -> Array:
        codec: Codec = self._executor.sent_in[drawn.judged.claim.codec]
        sent = np.empty(ranges.size(drawn.judged.parameters), np.float32)
        codec.open(self.subject.payload(drawn.judged.assignment), sent.size, drawn.task.support).read(0, sent)
        return sent

    @cached_property
    def _executor(self) -> WorkerExecutor:
        settings = worker_settings(self.subject.plan)
        told, data = manifest(self.subject.run), self.subject.run.data
        exchange = self.subject.plan.exchange(told.model, told.exchange)
        module = build_exchanged(told.model, exchange, data)
        trainer = make_trainer(module, settings, problem=problem_of(told.model))
        return WorkerExecutor(trainer, Dataset.open(data), settings)

    def end(self) -> None:
        if self._unrepeated:
            self.leave("updates of workers", self._unrepeatable, self._unrepeated)
        if self._unsettled:
            why = "they differ from what is made here by more than the tolerance, but rounding alone leads as far"
            self.leave("contributions that were done again", why, self._unsettled)
        if passed_over := self._seen - min(self._seen, self._most):
            why = f"at most {self._most:,} were to be done again (verify --work)"
            self.leave("contributions that were not drawn", why, passed_over)
        for drawn in sorted(self._drawn, key=lambda drawn: drawn.judged.assignment):
            self.leave(
                f"contribution {drawn.judged.assignment}",
                "its payload, or a version that it began with or took in, cannot be made again",
            )


def _apart(one: Array, other: Array | None) -> float:
    """Return the distance as a share of the length of `one`; infinite where the repetition failed."""
    if other is None:
        return float("inf")
    return float(np.linalg.norm(one - other)) / max(float(np.linalg.norm(one)), 1e-30)


def _movement(made: Made, codec: Codec, size: int) -> Tensor:
    """Return the movement as a replica sums it."""
    moved, covered = torch.zeros(size, dtype=torch.float32), made.parameters or (0, size)
    decoded = np.empty(ranges.size(covered), np.float32)
    codec.open(made.delta_bytes, decoded.size).read(0, decoded)
    target = moved.numpy()
    for part in ranges.parts(covered, 0, decoded.size):
        target[part.here] += decoded[part.there]
    return moved


@contextmanager
def _as_a_worker() -> Iterator[None]:
    """Compute as workers do: one thread, and subnormal numbers are 0."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)
