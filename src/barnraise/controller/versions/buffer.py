"""The closing of the buffer into a version, the number of nodes for it, and the end of a run.

Asynchronous mode closes at K distinct nodes. Synchronous mode closes when no node still works from the newest version,
or when the rest has kept the faster half waiting for too long. Both close when all that they wait for is later than its
nodes' times make likely (`arrivals`), if the aggregation rule has enough. Once the accepted contributions meet
the token budget (or a stop was asked for) the next close is the last one; where error feedback holds residuals, it is
the one but last, and the last version is made of those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.fleet.speeds import LEAST_PATIENCE, OVERDUE, Speeds, delay
from barnraise.controller.fleet.uploads import Uploads
from barnraise.controller.sites.sites import Sites
from barnraise.controller.state.actions import Slot
from barnraise.controller.state.effects import Aggregate, Gated, Unmade
from barnraise.controller.state.events import Changed, Event
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.controller.state.state import NodeState
from barnraise.controller.versions.arrivals import BufferDeadline
from barnraise.controller.versions.ending import Ending
from barnraise.controller.versions.endorsing import Trustees
from barnraise.controller.versions.loss_gate import LossGate
from barnraise.controller.versions.unmasking import Unmasking, slots_for_version
from barnraise.core.ranges import covers, disjoint
from barnraise.core.types import Ranges
from barnraise.core.units import count_text
from barnraise.ledger import notes
from barnraise.ledger.decisions import Noted, VersionClosed
from barnraise.staleness.buffer import OVERLAPPING, common, least_buffer, least_buffer_for_lines

HYSTERESIS = 0.1
"""Share by which an automatic K must be wrong to be changed."""

LATE = "the others are late"
"""Reason of a close when none of the awaited nodes is likely to contribute."""


class Buffer(Part):
    """Keeps the automatic K for the fleet's figures, and how long an open buffer waits for K nodes."""

    def __init__(
        self,
        context: Context,
        records: NodeRecords,
        uploads: Uploads,
        speeds: Speeds,
        ending: Ending,
        waiting: BufferDeadline,
        unmasking: Unmasking,
        trustees: Trustees,
        sites: Sites,
    ) -> None:
        super().__init__(context)
        self.settings, self.versions = context.settings, context.settings.versions
        self.records, self.uploads, self.speeds, self.ending, self.waiting = records, uploads, speeds, ending, waiting
        self.unmasking, self.trustees, self.sites = unmasking, trustees, sites
        self.automatic_size, self.sized_at = 1, 0  # K if enough nodes live, and the count of the speeds behind it
        self.fresh_size = 1  # the least K at which no work is refused as stale
        self.patience = math.inf  # seconds
        self.advised = False  # that a pinned K is too small
        self.gate = LossGate(context)

    def look(self) -> Steps:
        yield from self._size()
        yield from self._close()

    # K

    def _size(self) -> Steps:
        """Set K for the living, and pause or continue by the aggregation rule's minimum."""
        state, settings, least = self.state, self.settings, self._least
        if state.progress.final:
            return
        reason = self.trustees.lacks
        if not reason and state.num_live < least:
            reason = f"{count_text(state.num_live, 'live node')}, but {self._needing} needs {least}"
        short = bool(reason)
        if short and state.num_live and not state.progress.paused:
            yield Noted(self.now, notes.Paused(reason))
        elif not short and state.progress.paused:
            yield Noted(self.now, notes.Continued())
        self._measure()
        pinned = self.versions.buffer_size
        wanted = state.num_live if not settings.asynchronous else pinned or self.automatic_size
        there = self.speeds.num_working  # current ones; overdue ones among them are found from time to time
        if settings.asynchronous:
            there = min(there, len(self.speeds.counted))
        if self.sites.in_use:
            there = min(there, len(self.sites.drawn))
        nodes = max(least, min(wanted, there))
        if nodes != state.buffer.size:
            why = "automatic" if pinned is None else f"aggregation.buffer_size is {pinned}"
            yield Noted(self.now, notes.BufferSize(nodes, state.num_live, why))
        yield from self._advise()

    def _measure(self) -> None:
        """Compute the automatic K, and how long an open buffer waits for K nodes, from the fleet's figures.

        K stays while it is about right. The K of the links is never more than half of the nodes: the rest would wait.
        The wait is several times that of the slowest of the K fastest nodes.
        """
        speeds = self.speeds
        speeds.refresh()
        if not self.settings.asynchronous or speeds.count == self.sized_at:
            return
        counted, self.sized_at = speeds.counted, speeds.count
        first = OVERLAPPING if self.settings.worker.overlap else 1.0
        rates, delays = [speeds.known(node) for node in counted], common([delay(node, first) for node in counted])
        periods = sorted(speeds.period(node) for node in counted)
        contributions = sum(1 / period for period in periods if period > 0.0)
        told = (self.records[node.id].link for node in counted)
        lines = [link.down if link is not None and link.down > 0.0 else math.inf for link in told]
        for_lines = least_buffer_for_lines(contributions, self.settings.payloads.delta, lines)
        self.fresh_size = least_buffer(rates, self.versions.staleness.bound, delays)
        automatic = max(self.fresh_size, min(for_lines, len(counted) // 2))
        if abs(automatic - self.automatic_size) > HYSTERESIS * self.automatic_size:
            self.automatic_size = automatic
        wanted = self.versions.buffer_size or self.automatic_size
        slowest = periods[min(len(periods), wanted) - 1] if periods else 0.0
        self.patience = max(LEAST_PATIENCE, OVERDUE * slowest)

    def _advise(self) -> Steps:
        """Advise once, when a pinned K makes versions too fast for a node's staleness bound, with a better K."""
        pinned, state = self.versions.buffer_size, self.state
        if (
            pinned is None
            or not self.settings.asynchronous
            or self.advised
            or state.totals.accepted < 2 * state.num_live
        ):
            return
        enough = math.ceil(self.fresh_size / 2)  # which leaves half of each bound as a reserve
        if pinned < enough:
            self.advised = True
            reason = (
                f"with speeds this far apart slow nodes' work is refused as stale; set aggregation.buffer_size, "
                f"which is {pinned}, to {enough} or more, or to auto"
            )
            yield Noted(self.now, notes.Advice(reason))

    # Closing

    def _close(self) -> Steps:
        """Close the buffer if it is time."""
        state = self.state
        if state.closing is not None or state.progress.final or self.ending.interrupted is not None:
            return
        reason = self._why()
        if not reason:
            return
        nodes = len(state.buffer.slots)
        if not self._enough:
            if (
                reason == "last"
                and (state.progress.stopping or state.progress.flushing is not None)
                and not self.uploads.inspecting
            ):
                count = sum(len(s.contributions) for slots in state.buffer.slots.values() for s in slots.values())
                why = state.progress.stopping or "too few residuals came for a version"
                yield Noted(self.now, notes.LeftOver(count, why))
                yield from self.ending.end()
            return
        if reason == "flush":
            yield Noted(self.now, notes.Flushing(state.num_live))
        held = slots_for_version(state, self.settings.payloads.protection.masks)
        numbers = tuple(one.assignment for share in held for one in share.contributions)
        tokens = state.buffer.tokens
        if len(numbers) < state.buffer.num_contributions:
            nodes, tokens = len(held), sum(state.merging[number].tokens for number in numbers)
        rate, scales = self._rates(held)
        yield VersionClosed(
            self.now, state.newest.version + 1, numbers, nodes, tokens, reason, rate=rate, scales=scales
        )  # fmt: skip
        yield from self.aggregate()
        if state.progress.final:
            yield from self.ending.dismiss_all()

    def aggregate(self) -> Steps:
        """Have the closed buffer made into its version, once the excluded nodes are known.

        Where only sums can be read, trustees release them.
        """
        closing = self.state.closing
        assert closing is not None
        if self.state.sums:
            yield from self.unmasking.begin()
            return
        if (asked := self.gate.ask(closing)) is not None:
            yield asked
            return
        yield Aggregate(self.context.epoch, closing.version, tuple(closing.slots), closing.rate, closing.scales)

    def _gated(self, event: Gated) -> Steps:
        closing = self.state.closing
        if event.epoch == self.context.epoch and closing is not None and closing.version == event.version:
            yield from self.gate.answer(event)
            yield from self.aggregate()

    def _unmade(self, event: Unmade) -> Steps:
        closing = self.state.closing
        if event.epoch == self.context.epoch and closing is not None and closing.version == event.version:
            yield from self._void(event, closing.slots, released=bool(closing.released))
            yield from self.aggregate()
            yield Changed()

    def _void(self, event: Unmade, slots: list[Slot], released: bool) -> Steps:
        """Void unusable contributions of a version that cannot be made, to make it of the rest.

        Where numbers are at fault, too few nodes are left for the aggregation rule, or the list was `released`, that is
        everything: the version is then the one before, and its rows are done again. A node is judged by what it sent,
        not by a failure of the controller's disk, nor by a sum.
        """
        faults, least = event.void | event.lost, self._least
        used: dict[str, list[Ranges]] = {}
        for slot in slots:
            if any(held.assignment not in faults for held in slot.contributions):
                used.setdefault(slot.node, []).append(slot.parameters)
        reason, count, sums = event.reason, self._count(used), self.state.sums
        if not reason and count < least:
            reason = f"{count} nodes' contributions can be used, but {self._needing} needs {least}"
        if not reason and released:
            reason = "; ".join(f"contribution {number} {why}" for number, why in faults.items())
        if reason:
            numbers = tuple(held.assignment for slot in slots for held in slot.contributions)
            yield Noted(self.now, notes.VersionRefused(event.version, reason, numbers))
        for slot in list(slots):
            for number in [held.assignment for held in slot.contributions]:
                why = faults.get(number, reason and f"version {event.version} was refused: {reason}")
                if why:
                    judged = not released and (number in event.void or bool(event.reason and not sums))
                    yield Noted(self.now, notes.Voided(number, event.version, why, judged), slot.node)

    def _rates(self, held: tuple[Slot, ...]) -> tuple[float, tuple[float, ...]]:
        """Return the step of the version, and the factor of each range of the parameters when there are several.

        In asynchronous mode by its nodes' share of all work, as far as they are trusted, and by the share of the
        weights that staleness leaves: a mean only compares these, so those of one node alone would have no effect. The
        share is no less than half of that by their number (`Speeds.participation`).
        """
        alike, rates = bool(self.settings.worker.uplink.normalize_steps), []
        for parameters in disjoint(slot.parameters for slot in held):
            there = [slot for slot in held if covers(slot.parameters, parameters)]
            rate = _freshness(there, alike)
            if self.settings.asynchronous and self.versions.participation:
                nodes = ((self.state.nodes[slot.node], slot.trust) for slot in there)
                rate *= min(1.0, sum(trust * self.speeds.participation(node, alike) for node, trust in nodes))
            rates.append(rate)
        most = max(rates)
        return most, tuple(rate / most for rate in rates) if len(rates) > 1 else ()

    def _why(self) -> str:
        """Return why the buffer closes now; empty while it does not.

        After `flush` it holds residuals alone, `last` is next.
        """
        state = self.state
        if state.progress.stopping:
            return "last"
        if self.budget_met or state.progress.flushing is not None:  # which voided ones do not undo
            if state.progress.flushing is None:
                return "flush" if self.versions.flush else "last"
            awaited = self.uploads.inspecting or any(
                node.live and node.id not in state.progress.flushed for node in state.nodes.values()
            )
            return "" if awaited and self.now < state.progress.flushing + self.settings.flush_patience else "last"
        if self.settings.asynchronous:
            if self._nodes >= state.buffer.size:
                return "full"
            if self.now >= state.buffer.time + self.patience:
                return "time"
            return LATE if self._enough and self.waiting.over else ""
        return self._round_over()

    def _round_over(self) -> str:
        """Return why the synchronous round is over; empty while a wait pays (its results still belong to it)."""
        tasks = self.state.round
        if tasks is None or not tasks.open:
            return "all"
        if self.uploads.inspecting:
            return ""
        if self.now >= self._round_since + self.versions.sync_longest_wait:
            return "longest wait"
        if self.now >= tasks.complete_at + self.versions.sync_window:
            return "window"
        return LATE if self._enough and self.waiting.over else ""

    @property
    def _round_since(self) -> float:
        """Return since when nodes may work in the synchronous round: a pause by the host before that does not count."""
        return max(self.state.newest.time, self.state.progress.continued)

    @property
    def _least(self) -> int:
        """Return the least number of nodes for a version at present: the aggregation rule's, or the masks'."""
        state, masks = self.state, self.settings.payloads.protection.masks
        if masks is not None:
            return masks.least
        if not self.versions.yields:
            return self.versions.least(state.num_live)
        self.speeds.refresh()
        ending = state.progress.stopping or state.progress.flushing is not None
        return self.versions.least(0 if ending else min(state.num_live, self.speeds.num_keeping_pace))

    @property
    def _needing(self) -> str:
        return (
            "the aggregation rule" if self.settings.payloads.protection.masks is None else "privacy.secure_aggregation"
        )

    def lacks(self, node: NodeState, others: Iterable[str] = ()) -> bool:
        """Return whether the next version cannot be made without this node.

        Neither the accepted contributions nor open work come from as many nodes as the aggregation rule needs, also
        with a contribution of each of the `others`.
        """
        state, least = self.state, self._least
        if node.id in state.buffer.slots or len(state.buffer.slots) >= least:
            return False
        found = set(state.buffer.slots)
        open_for = (
            work.node
            for work in state.works.values()
            if work.task.trains and (self.settings.asynchronous or work.base == state.newest.version)
        )
        for name in chain(open_for, others):
            if node.id in found or len(found) >= least:
                return False
            found.add(name)
        return node.id not in found and len(found) < least

    @property
    def budget_met(self) -> bool:
        """Return whether contributions for the whole token budget are accepted; the last version may lack nodes."""
        return self.state.totals.tokens >= self.settings.tokens

    @property
    def _enough(self) -> bool:
        """Return whether the aggregation rule can make a version of the buffer."""
        return self._nodes >= self._least

    @property
    def _nodes(self) -> int:
        return self._count(self.state.buffer.slots)

    def _count(self, slots: Mapping[str, Iterable[Ranges]]) -> int:
        """Return the nodes of `slots`; where nodes have ranges of their own, those of the range with the fewest."""
        return least_nodes(slots) if self.settings.payloads.by_range else len(slots)

    def deadline(self) -> float:
        """Return when the wait for missing nodes, or for residuals, ends at the latest."""
        state = self.state
        if self.ending.interrupted is not None or state.closing is not None:
            return math.inf
        enough = self._enough
        if state.progress.flushing is not None and not state.progress.final:
            looked_at = self.uploads.inspecting and not enough  # inspected results are waited for
            return math.inf if looked_at else state.progress.flushing + self.settings.flush_patience
        if not enough:
            return math.inf
        if self.settings.asynchronous:
            return min(state.buffer.time + self.patience, self.waiting.until)
        if self.uploads.inspecting:
            return math.inf
        window, longest = self.versions.sync_window, self.versions.sync_longest_wait
        complete_at = state.round.complete_at if state.round is not None else math.inf
        return min(self._round_since + longest, complete_at + window, self.waiting.until)

    def events(self) -> dict[type[Event], Callable[[Any], Steps]]:
        return {Gated: self._gated, Unmade: self._unmade}


def least_nodes(slots: Mapping[str, Iterable[Ranges]]) -> int:
    """Return the number of nodes that cover a part of the parameters, for the part with the fewest; 0 if none do.

    `slots` are the ranges of each node's updates. Parts are those into which the ranges cut each other.

    >>> least_nodes({"ann": [(0, 8)], "bob": [(0, 4), (4, 8)], "cy": [(4, 8, 9, 12)], "di": [(9, 12)]})
    2
    """
    found = [
        sum(any(covers(ranges, piece) for ranges in held) for held in slots.values())
        for piece in disjoint(ranges for held in slots.values() for ranges in held)
    ]
    return min(found, default=0)


def _freshness(slots: list[Slot], alike: bool) -> float:
    """Return the share of the slots' weights that staleness leaves, in all, or of one each."""
    if alike:
        return sum(slot.freshness for slot in slots) / len(slots)
    weights = [slot.weight for slot in slots]
    fresh = sum(weight / slot.freshness for weight, slot in zip(weights, slots, strict=True))
    return sum(weights) / fresh if fresh else 1.0
