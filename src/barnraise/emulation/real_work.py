"""Real tensors in virtual time: the controller's parameter server and blobs, and a worker's executor for each node.

The nodes share one module, since they train one after the other; replica, optimizer state, residual and payloads are
each node's own, so a node takes about six vectors of the model's size. A task is computed when it ends. Deterministic
for one machine and one number of threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from barnraise.controller.state.effects import Aggregate, Aggregated, ControllerEffect
from barnraise.controller.state.events import Event
from barnraise.controller.tensors.blobs import BlobStore
from barnraise.controller.tensors.effects import Tensors, at_once, carry_out
from barnraise.controller.tensors.evaluator import Evaluator
from barnraise.controller.tensors.measurer import Measurer
from barnraise.controller.tensors.parameter_server import ParameterServer
from barnraise.controller.tensors.scorer import Scorer
from barnraise.controller.tensors.weigher import Weigher
from barnraise.core.types import AnyResult, AnyTask, Blob, Contribution, Inspection, News, PayloadResult
from barnraise.data.shards import Dataset
from barnraise.emulation.conduct import HONEST, Conduct
from barnraise.emulation.costs import ControllerCosts, NodeCosts
from barnraise.training.local import LocalTrainer
from barnraise.wire.frames import Buffer
from barnraise.wire.messages import Assign, Newer, WorkerSettings
from barnraise.worker.kinds import RUN
from barnraise.worker.task_executor import MakeExecutor, TaskExecutor


class RealNodeWork:
    """Does the work of one node, with an executor that `make` makes for each process.

    `trainer` lends its module.
    """

    def __init__(
        self,
        trainer: LocalTrainer,
        dataset: Dataset,
        settings: WorkerSettings,
        costs: NodeCosts,
        make: MakeExecutor,
        conduct: Conduct = HONEST,
    ) -> None:
        self.trainer, self.dataset, self.settings, self.costs = trainer, dataset, settings, costs
        self._make, self.conduct = make, conduct
        self._built: TaskExecutor | None = None
        self._fetched: dict[str, Buffer] = {}
        self._taken: deque[dict[str, Buffer]] = deque()
        self._undone: dict[str, Buffer] = {}  # for the running task

    @property
    def executor(self) -> TaskExecutor:
        """Return the executor of the present, or the last, process."""
        assert self._built is not None, "nothing is done before the start"
        return self._built

    def start(self) -> None:
        trainer = self.trainer.anew()
        if self._built is not None:  # a worker keeps them on its disk
            trainer.optimizer = self._built.trainer.optimizer
        self._built = self._make(trainer, self.dataset, self.settings, 0.0)
        self._fetched, self._taken = {}, deque()

    def fetched(self, blob: Blob, content: Buffer) -> None:
        self._fetched[blob.digest] = content

    def take(self, news: News) -> None:
        digests = {update.blob.digest for update in news.updates}  # equal deltas are one blob
        self._taken.append({digest: self._fetched.pop(digest) for digest in digests})

    def update(self, news: News) -> None:
        taken = self._taken.popleft()
        version = self.executor.update(news, lambda blob: taken[blob.digest])
        assert version == news.updates[-1].version, "nothing is lost in here"

    def begin(self, task: AnyTask) -> None:
        self._undone = {digest: self._fetched.pop(digest) for digest in {u.blob.digest for u in task.undoes}}

    def run(self, task: AnyTask, steps: int, news: Sequence[tuple[int, News]]) -> AnyResult | None:
        executor, waiting = self.executor, deque(news)
        executor.cut.clear()

        def on_step(step: int) -> None:
            while waiting and waiting[0][0] <= step:
                self.update(waiting.popleft()[1])
            if step == steps:
                executor.cut.set()

        undone = self._undone
        result = RUN[type(task)](executor, task, lambda blob: undone[blob.digest], on_step).result()
        for _, late in waiting:
            self.update(late)
        return result

    def payload(self, assignment: int) -> Buffer:
        return self.executor.payloads[assignment].data

    def settle(self, assignment: int, accepted: bool) -> None:
        self.executor.settle(assignment, accepted)


class RealControllerWork:
    """Does the controller's work.

    `blobs` holds version 0 already; `rows_of` gives a node's rows.
    """

    def __init__(
        self,
        server: ParameterServer,
        blobs: BlobStore,
        evaluator: Evaluator,
        dataset: Dataset,
        costs: ControllerCosts,
        rows_of: Callable[[str], Dataset],
        *,
        measurer: Measurer | None = None,
    ) -> None:
        self.server, self.blobs, self.dataset, self.costs = server, blobs, dataset, costs
        self._files = tuple(Blob(info.sha256, info.bytes) for info in dataset.meta.row_files())
        self._offered: dict[tuple[str, int], Any] = {}
        self._accepted: dict[int, Any] = {}
        self.tensors = Tensors(
            server,
            blobs,
            evaluator,
            measurer,
            Scorer(evaluator),
            Weigher(evaluator),
            read=self._accepted.__getitem__,
            rows_of=rows_of,
            between_versions=at_once,
        )

    def files(self) -> tuple[Blob, ...]:
        return self._files

    def serve(self, blob: Blob) -> Buffer | None:
        return self.blobs.read(blob.digest, 0, blob.num_bytes)

    def hold(self, node: str, message: Assign | Newer) -> None:
        self.blobs.hold(node, message.digests, news=isinstance(message, Newer))

    def release(self, digests: tuple[str, ...]) -> None:
        self.blobs.release(digests)

    def inspect(
        self, node: str, result: PayloadResult, payload: Buffer, depth: Inspection = "full"
    ) -> tuple[float, str]:
        self._offered[node, result.assignment] = payload
        return self.server.inspect(payload, result, depth)

    def sketch(self, contribution: Contribution, payload: Buffer, seed: int) -> bytes:
        return self.server.sketch(payload, contribution, seed)

    def accept(self, node: str, assignment: int) -> None:
        self._accepted[assignment] = self._offered.pop((node, assignment))

    def discard(self, node: str, assignment: int) -> None:
        self._offered.pop((node, assignment), None)

    def carry_out(self, effect: ControllerEffect) -> Event:
        answer = carry_out(self.tensors, effect)()
        if isinstance(effect, Aggregate) and isinstance(answer, Aggregated):
            for slot in effect.slots:
                for held in slot.contributions:
                    del self._accepted[held.assignment]
        return answer
