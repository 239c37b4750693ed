"""The controller's work on tensors and files, off the event loop; each result comes back as an event.

One thread makes versions, one inspects, one evaluates and scores, one writes checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from torch import Tensor

from barnraise.controller.state.actions import Aggregate, Checkpoint, Evaluate, Gate, Inspect, Score
from barnraise.controller.state.events import (
    Aggregated,
    Checkpointed,
    Evaluated,
    Event,
    Gated,
    Inspected,
    Scored,
    Unmade,
)
from barnraise.controller.tensors.blobs import BlobStore
from barnraise.controller.tensors.cow_snapshot import CopyOnWriteSnapshot
from barnraise.controller.tensors.evaluator import Evaluator
from barnraise.controller.tensors.parameter_server import Made, ParameterServer
from barnraise.controller.tensors.scorer import Scorer
from barnraise.controller.tensors.stages.base import Step
from barnraise.controller.tensors.weigher import Weigher
from barnraise.core.errors import CorruptionError, StorageError, VersionRefusedError, WireError
from barnraise.ledger import Checkpoints, Head, Ledger
from barnraise.wire.blobs import IncomingPayload

Report = Callable[[Event], None]

_GROUP = "parameters"


class ControllerExecutor:
    """Carries out the tensor actions.

    `report` receives events, `failed` bugs, both on any thread.
    """

    def __init__(
        self,
        server: ParameterServer,
        blobs: BlobStore,
        evaluator: Evaluator,
        ledger: Ledger,
        checkpoints: Checkpoints,
        *,
        report: Report,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.server, self.blobs, self.evaluator = server, blobs, evaluator
        self.ledger, self.checkpoints, self.scorer, self.weigher = (
            ledger,
            checkpoints,
            Scorer(evaluator),
            Weigher(evaluator),
        )
        self._report, self._failed = report, failed
        self._threads = {name: ThreadPoolExecutor(1, name) for name in ("inspect", "evaluate", "version", "checkpoint")}

    def inspect(self, action: Inspect, upload: IncomingPayload) -> None:
        """Check the payload's digest, decode it and measure it."""
        contribution = action.contribution
        assignment = contribution.assignment

        def work() -> Event:
            try:
                upload.verify()
            except WireError as error:
                return Inspected(action.epoch, assignment, 0.0, str(error))
            norm, reason = self.server.inspect(upload.payload, contribution)
            wanted = action.seed and not reason
            sketch = self.server.sketch(upload.payload, contribution, action.seed) if wanted else b""
            return Inspected(action.epoch, assignment, norm, reason, sketch)

        self._run("inspect", work)

    def gate(self, action: Gate) -> None:
        """Measure the loss gate; the version before stays the newest, so its parameters do not change."""

        def work() -> Event:
            nodes, gain = self.weigher.excluded(self.server, action, self.ledger.read)
            return Gated(action.epoch, action.version, nodes, gain)

        self._run("evaluate", work)

    def aggregate(self, action: Aggregate) -> None:
        def work() -> Event:
            self.blobs.freeze(self.server.watch)
            try:
                made = self.server.aggregate(action.version, action.slots, self.ledger.read, action.rate, action.scales)
            except VersionRefusedError as refusal:
                return Unmade(action.epoch, action.version, refusal.void, refusal.lost, refusal.reason)
            finally:
                self.blobs.publish(self.server.parameters, self.server.digest, self.server.leaves)
            self.blobs.add_delta(made.delta.digest, made.delta_bytes)
            return Aggregated(action.epoch, made.version, made.digest, made.delta, made.parameters)

        self._run("version", work)

    def evaluate(self, action: Evaluate) -> None:
        """Measure the newest version (or the average up to it), which is the requested one or a little younger."""

        def newest() -> tuple[int, Any]:
            return self.server.version, self.evaluator.model_of(self.server.average)

        def work() -> Event:
            self.evaluator.build()  # it takes seconds, which versions need not wait for
            version, model = self._threads["version"].submit(newest).result()
            return Evaluated(action.epoch, version, self.evaluator.loss(model))

        self._run("evaluate", work)

    def score(self, action: Score) -> None:
        """Score at the present newest version, though others may be made until the model is free.

        A version that holds the contribution shows less of its effect.
        """

        def newest() -> tuple[int, Tensor, Made | None]:
            return self.server.version, self.server.parameters.clone(), self.server.made

        now = self._threads["version"].submit(newest)
        made, dataset = action.contribution, self.evaluator.dataset

        def work() -> Event:
            version, parameters, last = now.result()
            try:
                update = self.server.reader(self.ledger.read(made.assignment), made)
            except CorruptionError:  # its version will report it
                return Scored(action.epoch, made.assignment)
            usual = self.server.movement(last) if last is not None else None
            gains = self.scorer.gains(parameters, Step(update, made.parameters), usual, action, dataset)
            return Scored(action.epoch, made.assignment, version, gains)

        self._run("evaluate", work)

    def checkpoint(self, action: Checkpoint, state: bytes, head: Head) -> None:
        """Freeze the state on the thread that makes versions, then write it on another, while versions continue.

        `head` is that of the ledger's rows that `state` includes.
        """

        def begin() -> None:
            version, digest, tensors = self.server.version, self.server.digest, self.server.state()
            try:
                unfinished = self.checkpoints.begin(version, {_GROUP: tensors})
            except StorageError as error:
                self._report(Checkpointed(action.epoch, version, str(error)))
                return
            frozen = CopyOnWriteSnapshot(tensors, unfinished.files[_GROUP])
            self.server.watch(frozen)

            def write() -> Event:
                try:
                    frozen.finish()
                    checkpoint = unfinished.finish(
                        ledger_id=head.rows, parameters_digest=digest, state=state, head=head.digest
                    )
                except StorageError as error:
                    unfinished.abandon()
                    return Checkpointed(action.epoch, version, str(error))
                return Checkpointed(action.epoch, version, digest=checkpoint.manifest.digest)

            self._run("checkpoint", write)

        self._submit("version", begin)

    def close(self) -> None:
        """Wait for running work, first for work that other threads need; drop waiting work."""
        for pool in self._threads.values():
            pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, thread: str, work: Callable[[], Event]) -> None:
        self._submit(thread, lambda: self._report(work()))

    def _submit(self, thread: str, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                self._failed(error)

        self._threads[thread].submit(guarded)
