"""The publication of versions: the kept deltas, the updates between two versions, and subscriptions.

A worker that trains may subscribe to newer versions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnraise.controller.fleet.pacing import Pacing
from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.state.actions import Release, Send
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.controller.state.state import NodeState
from barnraise.core.types import MOST_UNDONE, Blob, News, Update, kind_of
from barnraise.ledger.decisions import Assigned, Decision
from barnraise.wire.messages import Message, Newer, Subscribe

LONGEST_CHAIN = 1024
"""Deltas that a worker may be sent instead of a snapshot; each is about 200 bytes of a header that has a limit."""

CHAIN_SLACK = 1024
"""Bytes by which a chain may exceed the snapshot: an uncompressed delta is one payload header larger."""


UNDONE_SNAPSHOTS, UNDONE_BYTES = 4, 256 << 20
"""Bytes of deltas that are kept for nodes that repeat work of earlier versions, or measure these: as many as these
snapshots of the model, or those of all versions that can be undone, if they are less."""


class Publishing(Part):
    """Keeps the deltas that are worth sending, and who watches for versions."""

    def __init__(self, context: Context, records: NodeRecords, pacing: Pacing) -> None:
        super().__init__(context)
        self.settings, self.records, self.pacing = context.settings, records, pacing
        self.updates: dict[int, Update] = {}  # version -> the delta that leads to it
        self.update_bytes = 0
        self.watching: dict[str, int] = {}  # nodes that train and subscribe, with the version that they have
        self.most_bytes = snapshot = self.settings.payloads.snapshot
        if self.settings.audits.share or self.settings.evaluations.by_workers:
            whole = MOST_UNDONE * (snapshot + CHAIN_SLACK)
            self.most_bytes = max(UNDONE_SNAPSHOTS * snapshot, min(whole, UNDONE_BYTES))

    def keep(self, update: Update) -> Steps:
        """Keep one more delta, and release those that are not worth sending any more."""
        self.updates[update.version] = update
        self.update_bytes += update.blob.num_bytes
        stale = set()
        while len(self.updates) > 1 and (self.update_bytes > self.most_bytes or len(self.updates) > LONGEST_CHAIN):
            old = self.updates.pop(next(iter(self.updates)))
            self.update_bytes -= old.blob.num_bytes
            stale.add(old.blob.digest)
        stale -= {kept.blob.digest for kept in self.updates.values()}  # equal deltas are one blob
        if stale:
            yield Release(tuple(sorted(stale)))

    # Subscriptions

    def _watch(self, node: str, message: Subscribe) -> Steps:
        self.watching[node] = self.known_to(node, message.have)
        yield from self._tell(self.state.nodes[node])

    def known_to(self, node: str, have: int) -> int:
        """Return the version that the node has, whose message may have crossed an update."""
        told = self.records[node].session.told
        return told if told > have else have

    def tell(self) -> Steps:
        """Tell all subscribers of the newest version."""
        for node in list(self.watching):
            yield from self._tell(self.state.nodes[node])

    def _tell(self, node: NodeState) -> Steps:
        """Tell a node that trains of the newest version, if it subscribes and has an older one."""
        have = self.watching.get(node.id)
        if (
            have is None
            or have >= self.state.newest.version
            or self.state.progress.flushing is not None
            or self.state.progress.final
        ):
            return
        del self.watching[node.id]
        self.records[node.id].session.told = self.state.newest.version
        yield Send(node.id, Newer(self.news(node, have)))

    def news(self, node: NodeState, have: int) -> News:
        """Return the updates to the newest version for a node that has version `have`."""
        return News(self.updates_from(have), node.updates.merged, self.pacing.share(node))

    def updates_from(self, have: int) -> tuple[Update, ...]:
        """Return how a replica at version `have` reaches the newest: a chain of deltas or a snapshot.

        The one with fewer bytes.
        """
        state, snapshot = self.state, self.settings.payloads.snapshot
        if have == state.newest.version:
            return ()
        chain = self.chain(have, state.newest.version)
        if chain is not None and sum(update.blob.num_bytes for update in chain) <= snapshot + CHAIN_SLACK:
            return chain
        return (Update("snapshot", state.newest.version, Blob(state.newest.digest, snapshot), state.newest.digest),)

    def chain(self, have: int, wanted: int) -> tuple[Update, ...] | None:
        """Return the deltas that lead from version `have` to `wanted`; None when they are not kept."""
        if have == wanted:
            return ()
        if not 0 <= have < wanted or wanted - have > len(self.updates):
            return None
        chain = [self.updates[version] for version in range(have + 1, wanted + 1) if version in self.updates]
        return tuple(chain) if len(chain) == wanted - have else None

    def way_back(self, version: int) -> tuple[Update, ...] | None:
        """Return the deltas from `version` to the newest, which a node can undo.

        None when they are not kept, or too many.
        """
        back = self.chain(version, self.state.newest.version)
        return back if back is not None and len(back) <= MOST_UNDONE else None

    def forget(self, node: str) -> None:
        self.watching.pop(node, None)

    def _assigned(self, d: Assigned) -> None:
        if kind_of(d.kind).preempts:  # with all waiting tasks, the node drops the versions that were on their way
            self.records[d.node].session.told = -1

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {Assigned: self._assigned}

    def messages(self) -> dict[type[Message], Callable[[str, Any], Steps]]:
        return {Subscribe: self._watch}
