"""A worker that attacks: an executor that differs from others in its attack's training and contributions.

It measures its speed, evaluates and repeats other nodes' work as an honest worker does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import msgspec

from barnraise.core.threads import finished
from barnraise.core.types import Blob, Contribution, Flush, Train
from barnraise.data.batches import Batch
from barnraise.data.shards import Dataset
from barnraise.training.local import LocalTrainer
from barnraise.wire.messages import WorkerSettings
from barnraise.worker.executor import WorkerExecutor
from barnraise.worker.stages import Draft, WorkerStage
from barnraise.worker.task_executor import MakeExecutor, TaskExecutor
from barnraise.worker.update_path import SentUpdate

from .base import HONEST, Attack
from .board import Array, Board, Scene
from .catalog import create, resolve
from .surface import Surface


class Attacker(WorkerExecutor):
    """Carries out tasks; the contributions of those with an update are made by `attack`."""

    def __init__(
        self,
        trainer: LocalTrainer,
        dataset: Dataset,
        settings: WorkerSettings,
        slowdown: float,
        *,
        attack: Attack,
        node: str,
        board: Board,
    ) -> None:
        trainer.exchanges_on_device = False  # attacks are made of vectors in main memory
        super().__init__(trainer, dataset, settings, slowdown)
        self.attack, self.node, self.board = attack, node, board
        self.acting, self.moment = HONEST, ""  # those of the running task
        self._movement: Array | None = None  # last known movement of the published parameters
        self._stood: Array | None = None  # published parameters at that time
        self._surface: Surface | None = None  # that of the running task
        self._spared = 0  # claimed steps of the task that are not taken
        self._sound: dict[int, SentUpdate] = {}  # honest update behind each sent one
        attack.meet(dataset)
        self.path.insert(_Turn(self))

    def encode_on(self, pool: Executor) -> None:
        """Encode no update beside the next task: an attack acts in one task at a time."""

    def train(self, task: Train, on_step: Callable[[int], None]) -> Future[Contribution | None]:
        self.moment = f"{self.node} {task.id}"
        self.acting = self.attack.in_task(self.moment)
        if self.attack.sees:
            self._look()
        self._surface = Surface(self.trainer, self._published, lambda: super(Attacker, self).batches(task))
        steps = self.acting.num_steps(task.local_steps)
        own = self.slowdown
        self.slowdown = max(0.0, (1.0 + own) * self.acting.pace() - 1.0)
        self._spared = task.local_steps - steps
        try:
            found = super().train(msgspec.structs.replace(task, local_steps=steps), on_step).result()
            return finished(self._falsified(found) if found is not None else None)
        finally:
            self.acting, self._spared, self.slowdown, self._surface = HONEST, 0, own, None

    def flush(self, task: Flush) -> Future[Contribution]:
        residual = self.path.feedback.residual if self.path.feedback else None
        if residual is not None:
            self.attack.residual(residual)
        self.acting = self.attack.in_task(f"{self.node} {task.id}")
        try:
            return finished(self._falsified(super().flush(task).result()))
        finally:
            self.acting = HONEST

    def scene(self, base: int) -> Scene:
        """Return the attacker's present knowledge."""
        return Scene(self.moment, base, self.board, self._movement, self._surface)

    def _published(self) -> Array:
        """Return a copy of the newest version's parameters."""
        with self.published.lock:
            found: Array = self.replica.numpy().copy()
        return found

    def _look(self) -> None:
        """Record the movement of the published parameters since the last call."""
        now = self._published()
        if self._stood is not None and (moved := self._stood - now).any():
            self._movement = moved
        self._stood = now

    def batches(self, task: Train) -> Iterator[Batch]:
        size = self.dataset.meta.vocab_size
        return (self.acting.batch(batch, size) for batch in super().batches(task))

    def settle(self, assignment: int, accepted: bool) -> Future[None]:
        sound = self._sound.pop(assignment, None)
        if sound is not None:  # error feedback takes the honest update back
            self.payloads[assignment] = sound
        return super().settle(assignment, accepted)

    def scale(self, steps: int) -> float:
        return super().scale(steps + self._spared)

    def _falsified(self, found: Contribution) -> Contribution:
        """Return the contribution `found` with its false claims, and falsify its payload."""
        sound = self.payloads[found.assignment]
        encoded = self.acting.payload(sound.encoded)
        if encoded is not sound.encoded:
            blob = Blob(hashlib.sha256(encoded.payload).hexdigest(), encoded.num_bytes)
            self._sound[found.assignment] = sound
            self.payloads[found.assignment] = replace(sound, blob=blob, encoded=encoded)
        payload, told = self.payloads[found.assignment].blob, found.transcript
        if told is not None:
            told = msgspec.structs.replace(told, batches=told.batches + self._spared)
        return msgspec.structs.replace(found, steps=found.steps + self._spared, payload=payload, transcript=told)


class _Turn(WorkerStage):
    """The stage of a task's update path in which the attack changes the pseudo-gradient."""

    def __init__(self, attacker: Attacker) -> None:
        self._attacker = attacker

    def forward(self, update: Draft) -> None:
        self._attacker.acting.update(update.vector, self._attacker.scene(update.version))


class _Shown(WorkerStage):
    """Posts an honest node's pseudo-gradient on a board."""

    def __init__(self, node: str, board: Board) -> None:
        self._node, self._board = node, board

    def forward(self, update: Draft) -> None:
        self._board.post(self._node, update.version, update.vector.numpy())


def making(section: Mapping[str, Any], node: str, board: Board | None = None) -> MakeExecutor:
    """Return a factory of executors of `node`, which attacks as a run file's `section` says, each with its own attack.

    `board`: shared with the others of its process. UnknownNameError or OptionError for an invalid section.
    """
    resolve(section)
    shared = board or Board()
    shared.liars.add(node)

    def make(trainer: LocalTrainer, dataset: Dataset, settings: WorkerSettings, slowdown: float, /) -> TaskExecutor:
        return Attacker(trainer, dataset, settings, slowdown, attack=create(section), node=node, board=shared)

    return make


def watched(node: str, board: Board) -> MakeExecutor:
    """Return a factory of executors of an honest `node` whose updates are posted on `board`."""

    def make(trainer: LocalTrainer, dataset: Dataset, settings: WorkerSettings, slowdown: float, /) -> TaskExecutor:
        trainer.exchanges_on_device = False  # attackers see vectors in main memory
        executor = WorkerExecutor(trainer, dataset, settings, slowdown)
        executor.path.insert(_Shown(node, board))
        return executor

    return make
