"""What the shell around a worker's machine needs from whoever carries out its tasks, and how one comes to be.

`worker.executor.WorkerExecutor` is the usual one. Another one (of a node that lies, of a stage of a pipeline) is given
to the runtime, or to a node of the simulation, by the factory that makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Event
from typing import TYPE_CHECKING, Protocol

from barnraise.core.types import Audit, Blob, Contribution, Evaluate, Flush, News, NodeProfile, Sketched, Train
from barnraise.data.meta import Meta
from barnraise.wire.frames import Buffer
from barnraise.wire.manifest import Manifest
from barnraise.wire.messages import WorkerSettings
from barnraise.worker.options import WorkerOptions

if TYPE_CHECKING:  # these import torch
    from torch import Tensor

    from barnraise.data.shards import Dataset
    from barnraise.training.local import LocalTrainer
    from barnraise.worker.update_path import SentUpdate


class TaskExecutor(Protocol):
    """Carries out tasks. `update` is called on one thread, all else on another.

    `cut` ends the running task after the step in hand; once `leaving` is set, the next contribution is the last one.
    """

    trainer: LocalTrainer  # whose moments are kept on disk, and whose skipped steps are told
    dataset: Dataset
    cut: Event
    leaving: Event

    busy: Callable[[], float]  # a clock of the work that this process does

    @property
    def replica(self) -> Tensor:
        """The version that it is at, float32 [d]; on the training thread when no update is on its way."""

    @property
    def payloads(self) -> Mapping[int, SentUpdate]:
        """What is sent, by assignment, until it is settled."""

    def measure(self, profile: NodeProfile, batch_size: int) -> NodeProfile:
        """`profile` with the machine's training speed in it."""

    def update(self, news: News, fetched: Callable[[Blob], Buffer]) -> int:
        """Apply the updates of `news` in order to the replica: the version it is at, or -1 when it is void."""

    def train(self, task: Train, on_step: Callable[[int], None]) -> Contribution | None:
        """Take the steps and encode what they changed; None when that failed. `on_step` hears of steps."""

    def before(self, task: Evaluate, fetched: Callable[[Blob], Buffer]) -> Tensor:
        """The version that a task measures, float32 [d]: the replica, or a copy in which deltas are taken back. Raises
        PayloadError when it cannot be had."""

    def audit(self, task: Audit, fetched: Callable[[Blob], Buffer], on_step: Callable[[int], None]) -> Sketched:
        """Take the steps of somebody's task, and sketch what they changed; of 0 steps when nothing came of it."""

    def flush(self, task: Flush) -> Contribution:
        """Encode the residual."""

    def rest(self, began: float, busy: float) -> None:
        """Idle as long as a machine that is slowed for a trial would still be at what was done since `began`, with
        `busy` on its clock of work."""

    def settle(self, assignment: int, accepted: bool) -> None:
        """The controller has answered: forget the payload."""


class MakeExecutor(Protocol):
    """Makes the executor of a process, real or simulated. `slowdown` s makes every second of work take s + 1."""

    def __call__(
        self, trainer: LocalTrainer, dataset: Dataset, settings: WorkerSettings, slowdown: float, /
    ) -> TaskExecutor: ...


class BuildExecutor(Protocol):
    """Makes the executor of a real process from what it has fetched. Called on the training thread; it takes long."""

    def __call__(
        self, manifest: Manifest, meta: Meta, settings: WorkerSettings, options: WorkerOptions, room: int, /
    ) -> TaskExecutor: ...
