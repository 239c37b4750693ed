"""Sites: nodes that train on rows of their own, which the controller never has.

A node declares its rows as it greets, once they are made. The declaration is a claim: it opens a lane of tasks for that
node alone, so it moves no other node's work. Rows that change open a new lane, and lost work on the earlier ones is
dropped. A share of the present sites may train from each version, drawn by the run's seed
from those whose budget of differential privacy has room.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.state.actions import Send
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.core.token_bucket import TokenBucket
from barnraise.ledger.decisions import Assigned, Change, Decision, NodeChanged, Noted, VersionMade
from barnraise.ledger.site_notes import SiteAwaited, SiteDeclared, SiteRefused
from barnraise.wire.messages import FOR_GOOD, LATER, Hello, Stop


class Sites(Part):
    """Knows which nodes have rows of their own, and which of them may train from the newest version."""

    def __init__(self, context: Context, records: NodeRecords) -> None:
        super().__init__(context)
        self.terms, self.records = context.settings.tasks.needs.sites, records
        self.changes = TokenBucket(burst=3.0, rate=1 / 600)  # other rows of a node that are accepted
        self._drawn: frozenset[str] | None = None  # None: to be drawn again
        self._gone: dict[str, None] = {}  # nodes that went since the last look

    @property
    def in_use(self) -> bool:
        """Return whether the rows of this run stay with their nodes."""
        return self.terms is not None

    def hello(self, node: str, message: Hello) -> Steps:
        """Handle the rows that a greeting declares."""
        own, known = message.own, self.state.roster.sites.get(node)
        if self.terms is None or own is None or node not in self.records.present:
            return
        if own.form != self.terms.form:
            reason = (
                f"its rows have the tokenizer or form {own.form[:16]}, but the run has {self.terms.form[:16]}; "
                "join again with the text files, or with the controller's version of barnraise"
            )
            if self.changes.take(node, self.now):
                yield Noted(self.now, SiteRefused(reason), node)
            yield Send(node, Stop(reason, final=False, refusal=FOR_GOOD))
            return
        lane, told = known.lane if known is not None else 0, (own.rows, own.held_out, own.digest, own.losses)
        if known is not None and told == (known.rows, known.held_out, known.digest, known.losses):
            return
        if known is not None and not self.changes.take(node, self.now):
            yield Send(node, Stop("its rows change too often; join again in an hour", final=False, refusal=LATER))
            return
        if known is None or own.digest != known.digest or own.rows != known.rows:
            lane = 1 + max((site.lane for site in self.state.roster.sites.values()), default=0)
        yield Noted(self.now, SiteDeclared(lane, *told), node)

    def may_train(self, node: str) -> bool:
        """Return whether a node may train from the newest version; always where rows are the run's."""
        return self.terms is None or node in self.drawn

    @property
    def drawn(self) -> frozenset[str]:
        """Return the present sites that may train from the newest version."""
        if self._drawn is None:
            state = self.state
            there = [node for node in state.roster.sites if state.nodes[node].live and not self._is_used_up(node)]
            assert self.terms is not None
            masks = self.context.settings.payloads.protection.masks
            needed = self.context.settings.versions.least(state.num_live)
            least = min(len(there), max(needed, masks.least if masks is not None else 0))
            count = max(least, math.ceil(self.terms.share * len(there)))
            self._drawn = frozenset(sorted(there, key=self._lot)[:count])
        return self._drawn

    def _is_used_up(self, node: str) -> bool:
        """Return whether a node's budget of differential privacy has no room for a task."""
        privacy, spending = self.context.settings.payloads.protection.privacy, self.state.progress.spending
        return privacy is not None and spending is not None and spending.is_used_up(node, privacy.budget.most)

    def _lot(self, node: str) -> bytes:
        """Return the lot of a node for the newest version."""
        seed = f"{self.context.settings.tasks.seed}:{self.state.newest.version}:{node}"
        return hashlib.blake2b(seed.encode(), digest_size=16).digest()

    def look(self) -> Steps:
        """Tell the host of lost work that waits for nodes which are gone."""
        if self.terms is None or not self._gone:
            return
        progress = self.state.progress
        if progress.final or progress.finished or progress.flushing is not None:
            return
        gone, self._gone = self._gone, {}
        for node in gone:
            waiting = sum(work.node == node and work.task.trains for work in self.state.redo.values())
            if waiting and not self.state.nodes[node].revoked:
                yield Noted(self.now, SiteAwaited(waiting), node)

    def _node_changed(self, d: NodeChanged) -> None:
        self._drawn = None
        if d.change is Change.JOINED:
            self._gone.pop(d.node, None)
        elif d.change.gone and d.node in self.state.roster.sites:
            self._gone[d.node] = None

    def _noted(self, d: Noted) -> None:
        if type(d.note) is SiteDeclared:
            self._drawn = None

    def _assigned(self, d: Assigned) -> None:
        if self.terms is not None and self._is_used_up(d.node):
            self._drawn = None  # another takes its place where its update should be lost

    def _version_made(self, d: VersionMade) -> None:
        self._drawn = None

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {
            Assigned: self._assigned,
            NodeChanged: self._node_changed,
            Noted: self._noted,
            VersionMade: self._version_made,
        }
