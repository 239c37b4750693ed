"""Real tensors in virtual time: the controller's parameter server and blobs, and a worker's executor for each node.

The nodes share one module, since they train one after the other; replica, optimizer state, residual and payloads are
each node's own, so a node takes about six vectors of the model's size. A task is computed when it ends. Deterministic
for one machine and one number of threads.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from typing import Any

from barnraise.controller.actions import Aggregate
from barnraise.controller.blobs import BlobStore
from barnraise.controller.evaluator import Evaluator
from barnraise.controller.parameter_server import ParameterServer
from barnraise.core.types import Blob, Contribution, ParameterRange, Task, Update
from barnraise.data.shards import Dataset
from barnraise.emulation.costs import Costs
from barnraise.emulation.work import Trained
from barnraise.training.local import LocalTrainer, inner_optimizer
from barnraise.wire.messages import WorkerSettings
from barnraise.worker.actions import ApplyUpdates
from barnraise.worker.building import make_executor
from barnraise.worker.executor import Executor


class RealWork:
    """Does the work of a simulated run. `trainer` lends every node its module; `blobs` holds version 0 already."""

    def __init__(
        self,
        settings: WorkerSettings,
        server: ParameterServer,
        blobs: BlobStore,
        evaluator: Evaluator,
        dataset: Dataset,
        trainer: LocalTrainer,
        costs: Costs,
    ) -> None:
        self.settings, self.server, self.blobs, self.evaluator = settings, server, blobs, evaluator
        self.costs = costs
        self.dataset, self.trainer = dataset, trainer
        self._shards = tuple(Blob(info.sha256, info.bytes) for info in dataset.meta.shards)
        self._shard_digests = {blob.digest for blob in self._shards}
        self._executors: dict[str, Executor] = {}
        self._fetched: dict[str, dict[str, memoryview]] = {}
        self._taken: dict[str, deque[dict[str, memoryview]]] = {}
        self._offered: dict[tuple[str, int], Any] = {}
        self._accepted: dict[int, Any] = {}

    def shards(self) -> tuple[Blob, ...]:
        return self._shards

    def start(self, node: str) -> None:
        trainer = copy.copy(self.trainer)
        before = self._executors.get(node)
        trainer.optimizer = (  # a worker keeps it on its disk
            before.trainer.optimizer
            if before
            else inner_optimizer(self.settings.inner_optimizer, trainer.flat, self.settings.inner_options)
        )
        self._executors[node] = make_executor(trainer, self.dataset, self.settings)
        self._fetched[node], self._taken[node] = {}, deque()

    def fetch(self, node: str, blob: Blob) -> bool:
        if blob.digest in self._shard_digests:
            return True
        content = self.blobs.read(blob.digest, 0, blob.num_bytes)
        if content is not None and node in self._fetched:
            self._fetched[node][blob.digest] = content
        return content is not None

    def take(self, node: str, news: ApplyUpdates) -> None:
        digests = {update.blob.digest for update in news.updates}  # equal deltas are one blob
        self._taken[node].append({digest: self._fetched[node].pop(digest) for digest in digests})

    def update(self, node: str, news: ApplyUpdates) -> None:
        taken = self._taken[node].popleft()
        version = self._executors[node].update(news.updates, lambda blob: taken[blob.digest], news.merged, news.share)
        assert version == news.updates[-1].version, "nothing is lost in here"

    def train(self, node: str, task: Task, steps: int, news: Sequence[tuple[int, ApplyUpdates]]) -> Trained | None:
        executor, waiting = self._executors[node], deque(news)
        executor.cut.clear()

        def on_step(step: int) -> None:
            while waiting and waiting[0][0] <= step:
                self.update(node, waiting.popleft()[1])
            if step == steps:
                executor.cut.set()

        done = executor.train(task, on_step)
        for _, late in waiting:
            self.update(node, late)
        return done and done[:3]

    def settle(self, node: str, assignment: int, accepted: bool) -> None:
        self._executors[node].settle(assignment, accepted)

    def inspect(self, node: str, contribution: Contribution) -> tuple[float, str]:
        payload = self._executors[node].payloads[contribution.assignment].data
        self._offered[node, contribution.assignment] = payload
        span = contribution.parameters
        return self.server.inspect(payload, span.start, span.stop, contribution.base)

    def accept(self, node: str, assignment: int) -> None:
        self._accepted[assignment] = self._offered.pop((node, assignment))

    def discard(self, node: str, assignment: int) -> None:
        self._offered.pop((node, assignment), None)

    def aggregate(self, action: Aggregate) -> tuple[str, Blob, ParameterRange | None]:
        self.blobs.freeze(self.server.watch)
        try:
            made = self.server.aggregate(
                action.version, action.slots, self._accepted.__getitem__, action.rate, action.scales
            )
        finally:
            self.blobs.publish(self.server.parameters, self.server.digest, self.server.leaves)
        for slot in action.slots:
            for assignment, _ in slot.contributions:
                del self._accepted[assignment]
        self.blobs.add_delta(made.delta.digest, made.delta_bytes)
        return made.digest, made.delta, made.parameters

    def hold(self, node: str, updates: tuple[Update, ...]) -> None:
        self.blobs.hold(node, [update.blob.digest for update in updates])

    def release(self, digests: tuple[str, ...]) -> None:
        self.blobs.release(digests)

    def evaluate(self) -> float:
        return self.evaluator.loss(self.evaluator.model_of(self.server.average))
