"""The controller's work on tensors and files, off the event loop; each result comes back as an event.

One thread makes versions, one inspects, one evaluates and scores, one measures by metrics, one writes checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from barnraise.controller.state.effects import THREADS, Checkpoint, Checkpointed, ControllerEffect, Inspect, Inspected
from barnraise.controller.state.events import Event
from barnraise.controller.tensors.blobs import BlobStore
from barnraise.controller.tensors.cow_snapshot import CopyOnWriteSnapshot
from barnraise.controller.tensors.effects import Tensors, carry_out
from barnraise.controller.tensors.evaluator import Evaluator
from barnraise.controller.tensors.measurer import Measurer
from barnraise.controller.tensors.parameter_server import ParameterServer
from barnraise.controller.tensors.scorer import Scorer
from barnraise.controller.tensors.weigher import Weigher
from barnraise.core.errors import StorageError, WireError
from barnraise.core.types import Contribution
from barnraise.ledger import Checkpoints, Head, Ledger
from barnraise.wire.blobs import IncomingPayload

Report = Callable[[Event], None]

_GROUP = "parameters"


class ControllerExecutor:
    """Carries out effects on threads.

    `report` receives events, `failed` bugs, both on any thread. `measurer` is there where the run has metrics or
    samples.
    """

    def __init__(
        self,
        server: ParameterServer,
        blobs: BlobStore,
        evaluator: Evaluator,
        ledger: Ledger,
        checkpoints: Checkpoints,
        *,
        measurer: Measurer | None = None,
        report: Report,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.server, self.blobs, self.evaluator = server, blobs, evaluator
        self.ledger, self.checkpoints = ledger, checkpoints
        self.tensors = Tensors(
            server,
            blobs,
            evaluator,
            measurer,
            Scorer(evaluator),
            Weigher(evaluator),
            read=lambda assignment: ledger.read(assignment),
            rows_of=lambda node: evaluator.dataset,
            between_versions=self._between_versions,
        )
        self._report, self._failed = report, failed
        self._threads = {name: ThreadPoolExecutor(1, name) for name in THREADS}

    def inspect(self, action: Inspect, upload: IncomingPayload) -> None:
        """Check the payload's digest, and look into it as deep as its kind of task says."""
        result, assignment = action.result, action.result.assignment

        def work() -> Event:
            try:
                upload.verify()
            except WireError as error:
                return Inspected(action.epoch, assignment, 0.0, str(error))
            norm, reason = self.server.inspect(upload.payload, result, action.depth)
            sketch = b""
            if isinstance(result, Contribution) and action.seed and not reason:
                sketch = self.server.sketch(upload.payload, result, action.seed)
            return Inspected(action.epoch, assignment, norm, reason, sketch)

        self._run("inspect", work)

    def carry_out(self, effect: ControllerEffect) -> None:
        """Carry out an effect that needs the tensors alone, on its thread."""
        self._run(effect.thread, carry_out(self.tensors, effect))

    def _between_versions(self, look: Callable[[], Any]) -> Callable[[], Any]:
        return self._threads["version"].submit(look).result

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
        """Wait for running work, first for work that other threads need; drop waiting work, and end measurements."""
        if self.tensors.measurer is not None:
            self.tensors.measurer.stop()
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
