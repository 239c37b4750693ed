"""What is done with a version: it is published as a delta, measured and made durable when due; how a run ends.

Once nothing more enters the model, the last version is measured and made durable, and the run is finished.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from barnraise.controller.actions import Checkpoint, Evaluate, Finish, Release, Send
from barnraise.controller.events import Aggregated, Checkpointed, Evaluated, Event, InterruptRequested, StopRequested
from barnraise.controller.membership import Membership
from barnraise.controller.pacing import Pacing
from barnraise.controller.part import Context, Part, Steps
from barnraise.controller.state import NodeState
from barnraise.core.types import Blob, News, Update
from barnraise.ledger import notes
from barnraise.ledger.decisions import Noted, VersionMade
from barnraise.wire.messages import Message, Newer, Stop, Watch

LONGEST_CHAIN = 1024
"""Deltas that a worker may be sent instead of a snapshot; each is about 200 bytes of a header that has a limit."""

CHAIN_SLACK = 1024
"""Bytes by which a chain may exceed the snapshot: an uncompressed delta is one payload header larger."""


class Publishing(Part):
    """Keeps the deltas that are worth sending, who watches for versions, and what of the newest is under way."""

    def __init__(self, context: Context, membership: Membership, pacing: Pacing) -> None:
        super().__init__(context)
        self.settings, self.membership, self.pacing = context.settings, membership, pacing
        self.updates: dict[int, Update] = {}  # version -> the delta that leads to it
        self.update_bytes = 0
        self.watching: dict[str, int] = {}  # nodes that train and want to know of a newer version than they have
        self.told: dict[str, int] = {}  # the version that such a node has once what was sent has arrived
        self.evaluating = self.checkpointing = False
        self.interrupted: InterruptRequested | None = None

    def start(self, digest: str) -> Steps:
        """A new run begins."""
        yield Noted(self.now, notes.Started(digest, self.settings.run))
        yield from self.evaluate()

    def _made(self, event: Aggregated) -> Steps:
        """A version exists: publish it, measure it and make it durable when due."""
        closing = self.state.closing
        if event.epoch != self.context.epoch or closing is None or closing.version != event.version:
            return
        yield VersionMade(self.now, event.version, event.digest, event.delta.num_bytes)
        yield from self._keep(Update("delta", event.version, event.delta, event.digest, event.parameters))
        if self.state.final:
            yield from self.end()
        else:
            due = self.settings.tokens * len(self.state.evaluations) / self.settings.versions.evaluations
            if self.state.version_tokens >= due and not self.evaluating:
                yield from self.evaluate()
            waited = self.now - self.state.checkpoint_time
            if waited >= self.settings.versions.checkpoint_seconds and not self.checkpointing:
                yield from self._checkpoint()
        yield from self.context.follow()
        for node in list(self.watching):
            yield from self._tell(self.state.nodes[node])
        yield from self._rest()

    def _keep(self, update: Update) -> Steps:
        """One more delta; those that are not worth sending any more go."""
        self.updates[update.version] = update
        self.update_bytes += update.blob.num_bytes
        stale = set()
        snapshot = self.settings.payloads.snapshot
        while len(self.updates) > 1 and (self.update_bytes > snapshot or len(self.updates) > LONGEST_CHAIN):
            old = self.updates.pop(next(iter(self.updates)))
            self.update_bytes -= old.blob.num_bytes
            stale.add(old.blob.digest)
        stale -= {kept.blob.digest for kept in self.updates.values()}  # equal deltas are one blob
        if stale:
            yield Release(tuple(sorted(stale)))

    # Who is told

    def _watch(self, node: str, message: Watch) -> Steps:
        self.watching[node] = self.known_to(node, message.have)
        yield from self._tell(self.state.nodes[node])

    def known_to(self, node: str, have: int) -> int:
        """The version that the node has, who said so before what was sent to it had arrived."""
        return max(have, self.told.get(node, -1))

    def _tell(self, node: NodeState) -> Steps:
        """Tell a node that trains of the newest version, if it watches and has an older one."""
        have = self.watching.get(node.id)
        if have is None or have >= self.state.version or self.state.flushing is not None or self.state.final:
            return
        del self.watching[node.id]
        self.told[node.id] = self.state.version
        yield Send(node.id, Newer(self.news(node, have)))

    def news(self, node: NodeState, have: int) -> News:
        """The way to the newest version for a node that has version `have`."""
        return News(self.updates_from(have), node.merged, self.pacing.share(node))

    def updates_from(self, have: int) -> tuple[Update, ...]:
        """How a replica at version `have` reaches the newest: a chain of deltas or a snapshot, whichever is fewer
        bytes."""
        state, snapshot = self.state, self.settings.payloads.snapshot
        if have == state.version:
            return ()
        chain: list[Update] = []
        if 0 <= have < state.version and state.version - have <= len(self.updates):
            size = 0
            for version in range(have + 1, state.version + 1):
                update = self.updates.get(version)
                size += update.blob.num_bytes if update else 0
                if update is None or size > snapshot + CHAIN_SLACK:
                    break
                chain.append(update)
            else:
                return tuple(chain)
        return (Update("snapshot", state.version, Blob(state.digest, snapshot), state.digest),)

    # Measured and durable

    def evaluate(self) -> Steps:
        self.evaluating = True
        yield Evaluate(self.context.epoch, self.state.version)

    def _checkpoint(self) -> Steps:
        self.checkpointing = True
        yield Checkpoint(self.context.epoch, self.state.version)

    def _evaluated(self, event: Evaluated) -> Steps:
        if event.epoch == self.context.epoch:
            self.evaluating = False
            loss = event.loss if math.isfinite(event.loss) else None  # JSON knows no NaN
            yield Noted(self.now, notes.Evaluated(event.version, loss, self.state.version_tokens))
            yield from self.settle()

    def _checkpointed(self, event: Checkpointed) -> Steps:
        if event.epoch != self.context.epoch:
            return
        self.checkpointing = False
        if event.reason:
            yield Noted(self.now, notes.CheckpointFailed(event.version, event.reason))
            last = self.state.final and event.version == self.state.version and self.state.closing is None
            if last or self.interrupted is not None:  # without the mark of a finished run, so that it can be resumed
                reason = event.reason if last else f"the checkpoint failed: {event.reason}"
                yield Finish(reason, failed=True)
                return
        else:
            yield Noted(self.now, notes.Checkpointed(event.version))
        yield from self.settle()
        yield from self._rest()

    # The end

    def end(self) -> Steps:
        """Nothing more enters the model: measure it, make it durable; `settle` finishes when both are done."""
        state = self.state
        yield from self.dismiss_all()
        measured = bool(state.evaluations) and state.evaluations[-1][0] == state.version
        if not self.evaluating and not measured:
            yield from self.evaluate()
        if not self.checkpointing and state.checkpoint != state.version:
            yield from self._checkpoint()
        yield from self.settle()

    def dismiss_all(self) -> Steps:
        """Tell everybody that the run is over."""
        for node in list(self.membership.seen):
            yield Send(node, Stop(self.state.stopping or "the run's token budget is met"))

    def settle(self) -> Steps:
        """Finish once the last version is measured and durable."""
        state = self.state
        if not state.final or state.closing is not None or state.finished or self.evaluating or self.checkpointing:
            return
        if not state.evaluations or state.evaluations[-1][0] != state.version:
            yield from self.evaluate()
        elif state.checkpoint != state.version:
            yield from self._checkpoint()
        else:
            reason = state.stopping or "the token budget is met"
            yield Noted(self.now, notes.Finished(reason))
            yield Finish(reason)

    def _stop(self, event: StopRequested) -> Steps:
        if not self.state.stopping and not self.state.final:
            yield Noted(self.now, notes.Stopping(event.reason))
            yield from self.context.follow()

    def _interrupt(self, event: InterruptRequested) -> Steps:
        if self.interrupted is None and not self.state.finished:
            yield Noted(self.now, notes.Interrupted(event.reason))
            self.interrupted = event
            yield from self._rest()

    def _rest(self) -> Steps:
        """Once the process shall end: make the newest version durable, so that a resume has nothing to make again."""
        wanted, state = self.interrupted, self.state
        if wanted is None or state.closing is not None or state.finished or self.checkpointing:
            return
        if state.checkpoint != state.version:
            yield from self._checkpoint()
        else:
            yield Finish(wanted.reason, failed=wanted.failed, interrupted=not wanted.failed)

    def forget(self, node: str) -> None:
        self.watching.pop(node, None)
        self.told.pop(node, None)

    def events(self) -> dict[type[Event], Callable[[Any], Steps]]:
        return {
            Aggregated: self._made,
            Evaluated: self._evaluated,
            Checkpointed: self._checkpointed,
            StopRequested: self._stop,
            InterruptRequested: self._interrupt,
        }

    def messages(self) -> dict[type[Message], Callable[[str, Any], Steps]]:
        return {Watch: self._watch}
