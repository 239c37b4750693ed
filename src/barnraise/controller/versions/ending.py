"""The steps after a version: publication, measurement and checkpoints when due; and the end of a run.

Once nothing more enters the model, the last version is measured and made durable, and the run is finished.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.state.actions import Finish, Send
from barnraise.controller.state.effects import Aggregated, Checkpoint, Checkpointed, Evaluated, Measured
from barnraise.controller.state.events import Changed, Event, InterruptRequested, StopRequested
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.controller.state.settings import DISK_PATIENCE, PatienceSettings
from barnraise.controller.versions.evaluation import Evaluation
from barnraise.controller.versions.measuring import Measuring
from barnraise.controller.versions.proving import Proving
from barnraise.controller.versions.publishing import Publishing
from barnraise.controller.versions.unmasking import Unmasking
from barnraise.core.types import Update
from barnraise.ledger import notes
from barnraise.ledger.decisions import Decision, Judged, Noted, VersionMade
from barnraise.wire.messages import Stop

FIRST_PAUSE = 2.0
"""Seconds from a checkpoint that failed to the next; doubled after each further failure."""


class Ending(Part):
    """Keeps whether the newest version is being made durable, and whether the process is to end, or told to.

    `unsaved` are the bytes of payloads that no checkpoint covers, as far as this process received them.
    """

    def __init__(
        self,
        context: Context,
        records: NodeRecords,
        publishing: Publishing,
        evaluation: Evaluation,
        measuring: Measuring,
        unmasking: Unmasking,
        proving: Proving,
    ) -> None:
        super().__init__(context)
        self.settings, self.records = context.settings, records
        self.publishing, self.evaluation, self.measuring = publishing, evaluation, measuring
        self.unmasking, self.proving = unmasking, proving
        self.checkpointing = False
        self.unsaved = self._covered = 0
        self._failures, self._again = 0, -math.inf  # how many checkpoints failed, and when the next is taken
        self._failing = math.inf  # since when the last one of the run fails
        self.interrupted: InterruptRequested | None = None
        self.finished = False
        self._looked_at = 0  # evaluations of which it is decided that the run continues

    def start(self, digest: str) -> Steps:
        """Begin a new run, whose version 0 has this digest."""
        yield Noted(self.now, notes.Started(digest, *self.settings.run))
        yield from self.evaluation.measure()

    def _made(self, event: Aggregated) -> Steps:
        """Handle a new version: publish it, measure it and make it durable when due."""
        closing = self.state.closing
        if event.epoch != self.context.epoch or closing is None or closing.version != event.version:
            return
        for numbers, reason in event.left_out.items():
            yield Noted(self.now, notes.GroupLeftOut(event.version, reason, numbers))
        yield VersionMade(self.now, event.version, event.digest, event.delta.num_bytes)
        yield from self.proving.look()  # before the last nodes are dismissed
        yield from self.publishing.keep(Update("delta", event.version, event.delta, event.digest, event.parameters))
        if self.state.progress.final:
            yield from self.end()
        else:
            if self.evaluation.due:
                yield from self.evaluation.measure()
            if self._due() and not self.checkpointing:
                yield from self._checkpoint()
        yield Changed()
        yield from self.publishing.tell()
        yield from self._rest()

    def _due(self) -> bool:
        """Return whether a checkpoint is due: after some time, or when payloads take much more room than it does."""
        versions, waited = self.settings.versions, self.now - self.state.record.checkpoint_time
        due = waited >= versions.checkpoint_seconds or self.unsaved >= self.settings.payloads.checkpoint_bytes
        return due and self.now >= self._again

    def _checkpoint(self) -> Steps:
        self.checkpointing, self._covered = True, self.unsaved
        yield Checkpoint(self.context.epoch, self.state.newest.version)

    def _checkpointed(self, event: Checkpointed) -> Steps:
        if event.epoch != self.context.epoch:
            return
        self.checkpointing = False
        if event.reason:
            last = (
                self.state.progress.final and event.version == self.state.newest.version and self.state.closing is None
            )
            longest = self.settings.versions.checkpoint_seconds
            self._failing = min(self._failing, self.now) if last else math.inf
            if last:
                longest = min(longest, DISK_PATIENCE / 4)
            self._again = self.now + min(longest, FIRST_PAUSE * 2.0 ** min(self._failures, 30))
            self._failures += 1
            yield Noted(self.now, notes.CheckpointFailed(event.version, event.reason))
            given_up = last and self.now >= self._failing + DISK_PATIENCE
            if given_up or self.interrupted is not None:  # not marked as finished, so that it can be resumed
                reason = event.reason if last else f"the checkpoint failed: {event.reason}"
                yield from self.finish(reason, failed=True)
        else:
            self.unsaved, self._failures, self._failing = self.unsaved - self._covered, 0, math.inf
            yield Noted(self.now, notes.Checkpointed(event.version, event.digest))
        yield from self._settle()
        yield from self._rest()

    def look(self) -> Steps:
        yield from self._stop_early()
        if self.state.progress.final:
            yield from self._settle()

    def deadline(self) -> float:
        """Return when the last checkpoint, which failed, is tried again."""
        return self._again if self._failing < math.inf and not (self.checkpointing or self.finished) else math.inf

    def expire(self) -> Steps:
        if self.now >= self.deadline():
            yield from self._checkpoint()

    def end(self) -> Steps:
        """End the model: measure it, make it durable; the run is finished when both are done."""
        yield from self.dismiss_all()
        if not self.evaluation.busy and not self.evaluation.done:
            yield from self.evaluation.measure()
        if not self.checkpointing and self.state.record.checkpoint != self.state.newest.version:
            yield from self._checkpoint()
        yield from self._settle()

    def dismiss_all(self) -> Steps:
        """Tell all nodes that the run is over, unless some are still needed."""
        if self.evaluation.needs_nodes:
            return
        for node in list(self.records.present):
            if self.unmasking.needs(node):
                continue
            yield Send(node, Stop(self.state.progress.stopping or "the run's token budget is met"))

    def _evaluated(self, event: Evaluated | Measured) -> Steps:
        if event.epoch == self.context.epoch:
            yield from self._stop_early()
            yield from self._settle()

    def _settle(self) -> Steps:
        """Finish once the last version is measured, by its loss and the run's metrics, and durable."""
        state = self.state
        if not state.progress.final or state.closing is not None or self.finished:
            return
        yield from self.measuring.look()
        if self.evaluation.busy or self.measuring.awaited or self.checkpointing:
            return
        if not self.evaluation.done:
            yield from self.evaluation.measure()
        elif state.record.checkpoint != state.newest.version:
            if self._failing == math.inf or self.now >= self._again:
                yield from self._checkpoint()
        else:
            reason = state.progress.stopping or notes.BUDGET_MET
            if self.settings.evaluations.by_workers:
                yield from self.dismiss_all()
            yield Noted(self.now, notes.Finished(reason))
            yield from self.finish(reason)

    def _stop(self, event: StopRequested) -> Steps:
        if not self.state.progress.stopping and not self.state.progress.final:
            yield Noted(self.now, notes.Stopping(event.reason))
            yield Changed()

    def _stop_early(self) -> Steps:
        """Stop once the held-out loss no longer falls: a decision on the ledger, as if the host had asked for it."""
        evaluations, settings = self.state.record.evaluations, self.settings.evaluations.stop_early
        if not settings.patience or len(evaluations) == self._looked_at:
            return
        self._looked_at = len(evaluations)
        if reason := plateau([loss for _, loss in evaluations], settings):
            yield from self._stop(StopRequested(reason))

    def _interrupt(self, event: InterruptRequested) -> Steps:
        if self.interrupted is None and not self.state.progress.finished:
            yield Noted(self.now, notes.Interrupted(event.reason))
            self.interrupted = event
            yield from self._rest()

    def _rest(self) -> Steps:
        """Make the newest version durable once the process shall end, so that a resume has nothing to make again."""
        wanted, state = self.interrupted, self.state
        made = state.closing is not None and not self.unmasking.is_waiting
        if wanted is None or self.finished or made or self.checkpointing:
            return
        if state.record.checkpoint != state.newest.version:
            yield from self._checkpoint()
        else:
            yield from self.finish(wanted.reason, failed=wanted.failed, interrupted=not wanted.failed)

    def finish(self, reason: str, *, failed: bool = False, interrupted: bool = False) -> Steps:
        """End this process: no checkpoint is begun any more."""
        self.finished = True
        yield Finish(reason, failed=failed, interrupted=interrupted)

    def _judged(self, d: Judged) -> None:
        if d.verdict == "accepted":
            self.unsaved += d.claim.num_bytes

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {Judged: self._judged}

    def events(self) -> dict[type[Event], Callable[[Any], Steps]]:
        return {
            Aggregated: self._made,
            Evaluated: self._evaluated,
            Measured: self._evaluated,
            Checkpointed: self._checkpointed,
            StopRequested: self._stop,
            InterruptRequested: self._interrupt,
        }


def plateau(losses: Sequence[float], settings: PatienceSettings) -> str:
    """Return why a run with these held-out losses, the oldest first, is to end; empty: it is not.

    A loss that is no number is no gain. The first measurement, before any training, is none of the best.

    >>> plateau([5.0, 3.0, 3.1, 2.99], PatienceSettings(patience=2, least_gain=0.05))
    'the held-out loss has not fallen by 0.05 in 2 evaluations; the lowest was 3'
    >>> plateau([5.0, 3.0, 3.1, 2.9], PatienceSettings(patience=2, least_gain=0.05))
    ''
    """
    best, waited = math.inf, 0
    for loss in losses[1:]:
        gained = loss < best - settings.least_gain if math.isfinite(best) else math.isfinite(loss)
        best, waited = (loss, 0) if gained else (best, waited + 1)
    if not settings.patience or waited < settings.patience:
        return ""
    gain = f" by {settings.least_gain:g}" if settings.least_gain else ""
    return f"the held-out loss has not fallen{gain} in {waited} evaluations; the lowest was {best:.4g}"
