"""The interface of a worker's executor of tasks, and of its factory.

`worker.executor.WorkerExecutor` is the usual one. Another one (of a lying node, of a stage of a pipeline) is given to
the runtime, or to a node of the simulation, by the factory that makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from threading import Event
from typing import TYPE_CHECKING, Protocol

from barnraise.core.types import Audit, Blob, Contribution, Evaluate, Flush, News, NodeProfile, Sketched, Train
from barnraise.data.meta import Meta
from barnraise.wire.frames import Buffer
from barnraise.wire.manifest import Manifest
from barnraise.wire.messages import Included, WorkerSettings
from barnraise.worker.options import WorkerOptions

if TYPE_CHECKING:  # these import torch
    from torch import Tensor

    from barnraise.data.shards import Dataset
    from barnraise.training.local import LocalTrainer
    from barnraise.worker.encrypting import ModelKey
    from barnraise.worker.masking import MaskedMember
    from barnraise.worker.replica import Replica
    from barnraise.worker.update_path import SentUpdate


class TaskExecutor(Protocol):
    """Carries out tasks; `update` is called on one thread, all else on another.

    Results are futures, since what follows a task's steps may be done on a third thread. `cut` ends the running task
    after the current step; once `leaving` is set, the next contribution is the last one.
    """

    trainer: LocalTrainer  # its moments are kept on disk, and its skipped steps are reported
    dataset: Dataset
    published: Replica  # kept on disk, too
    cut: Event
    leaving: Event

    busy: Callable[[], float]  # a clock of this process's work

    @property
    def replica(self) -> Tensor:
        """Return the replica's parameters, float32 [d]; on the training thread when no update is on its way."""

    @property
    def payloads(self) -> Mapping[int, SentUpdate]:
        """Return the sent updates by assignment, until they are settled."""

    @property
    def overhead(self) -> float:
        """Return the time of its work with protections over the time without; 0 where that is not known."""

    def newly_skipped(self) -> tuple[int, str]:
        """Return how many steps were skipped since the last call, and why."""

    def identify(self, member: MaskedMember) -> None:
        """Tell it whose updates it makes, and which committee of trustees the owner accepts."""

    def prove(self, told: Included) -> str:
        """Return why it is not proven that a version has this process's masked update; empty when it is."""

    def unlock(self, key: ModelKey) -> None:
        """Give it the key of a run whose updates and versions are encrypted, before the first version."""

    def measure(self, profile: NodeProfile, batch_size: int) -> NodeProfile:
        """Return `profile` with the machine's training speed in it."""

    def update(self, news: News, fetched: Callable[[Blob], Buffer]) -> int:
        """Apply the updates of `news` in order to the replica: the version it is at, or -1 when it is void."""

    def encode_on(self, pool: Executor) -> None:
        """Encode updates on this pool of one thread from now on, while the next task trains."""

    def train(self, task: Train, on_step: Callable[[int], None]) -> Future[Contribution | None]:
        """Take the steps and encode the change; None when that failed.

        `on_step` is called with the number of steps.
        """

    def before(self, task: Evaluate, fetched: Callable[[Blob], Buffer]) -> Tensor:
        """Return the version that a task measures, float32 [d]: the replica, or a copy with deltas undone.

        Raises PayloadError when it is not available.
        """

    def audit(self, task: Audit, fetched: Callable[[Blob], Buffer], on_step: Callable[[int], None]) -> Sketched:
        """Repeat the steps of another node's task, and sketch the change; with 0 steps when that failed."""

    def flush(self, task: Flush) -> Future[Contribution]:
        """Encode the residual of error feedback."""

    def rest(self, began: float, busy: float) -> None:
        """Idle for the share of a machine that is slowed for a trial.

        `began` and `busy` are the start of the work, and the clock of work then.
        """

    def settle(self, assignment: int, accepted: bool) -> Future[None]:
        """Drop the payload, which the controller has answered."""


class MakeExecutor(Protocol):
    """Makes the executor of a process, real or simulated.

    `slowdown` s makes every second of work take s + 1.
    """

    def __call__(
        self, trainer: LocalTrainer, dataset: Dataset, settings: WorkerSettings, slowdown: float, /
    ) -> TaskExecutor: ...


class BuildExecutor(Protocol):
    """Makes the executor of a real process from the fetched files.

    `own` has the rows where they stay with this node. Called on the training thread; it takes long.
    """

    def __call__(
        self,
        manifest: Manifest,
        meta: Meta,
        settings: WorkerSettings,
        options: WorkerOptions,
        room: int,
        /,
        *,
        own: Dataset | None,
    ) -> TaskExecutor: ...
