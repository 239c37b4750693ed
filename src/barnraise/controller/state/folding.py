"""The effect of decisions about versions, and of notes that set single facts, on the controller's state.

`fold` calls these functions.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from barnraise.controller.state import gathering
from barnraise.controller.state.actions import Slot
from barnraise.controller.state.state import Closing, Newest, SiteRecord, State
from barnraise.core.sites import Losses
from barnraise.ledger import notes
from barnraise.ledger.decisions import Noted, VersionClosed, VersionMade
from barnraise.privacy.spending import Spending


def version_closed(state: State, d: VersionClosed) -> None:
    """Fold the close of a buffer: the listed contributions make a version, others stay for the next one."""
    buffer = state.buffer
    left = _left_in_buffer(state, d)
    closed = [slot for slots in buffer.slots.values() for slot in slots.values()]
    state.closing = Closing(d.version, closed, d.tokens, d.rate, d.scales)
    for name, slots in buffer.slots.items():
        node, count = state.nodes[name], sum(len(slot.contributions) for slot in slots.values())
        node.speed.waited = max(0.0, d.time - node.speed.verdict_time) if count == 1 else 0.0
    buffer.empty()
    for slot in left:
        buffer.slots.setdefault(slot.node, {})[slot.parameters] = slot
        buffer.tokens += sum(state.merging[held.assignment].tokens for held in slot.contributions)
        buffer.time = d.time
    if d.reason == "last":
        state.progress.final = True


def _left_in_buffer(state: State, d: VersionClosed) -> list[Slot]:
    """Take the contributions out of the buffer that the version leaves to the next one, and return their slots."""
    slots, listed, left = state.buffer.slots, set(d.contributions), []
    if state.buffer.num_contributions == len(listed):
        return []
    for name, by_place in list(slots.items()):
        for where, slot in by_place.items():
            later = [held.assignment for held in slot.contributions if held.assignment not in listed]
            now = [held.assignment for held in slot.contributions if held.assignment in listed]
            if later:
                left.append(_without(state, slot, now))
                by_place[where] = _without(state, slot, later)
        slots[name] = {where: slot for where, slot in by_place.items() if slot.contributions}
        if not slots[name]:
            del slots[name]
    return left


def _without(state: State, slot: Slot, numbers: Iterable[int]) -> Slot:
    for number in numbers:
        work = state.merging[number]
        slot = slot.without(number, work.tokens, work.task.trains)
    return slot


def version_made(state: State, d: VersionMade) -> None:
    """Fold a version that exists."""
    closing = state.closing
    assert closing is not None
    assert closing.version == d.version
    over, state.newest = state.newest, Newest(d.version, d.digest, d.time)
    gathering.tidy(state, [over.round])
    if state.record.digests:
        open_yet = {work.base for work in (*state.works.values(), *state.merging.values()) if work.task.summed_only}
        kept = {version: digest for version, digest in state.record.digests.items() if version in open_yet}
        state.record.digests = kept
    state.totals.version_tokens += closing.tokens
    for slot in closing.slots:
        node = state.nodes[slot.node]
        for held in slot.contributions:
            node.updates.merged = max(node.updates.merged, held.assignment)
            gathering.tidy(state, state.merging.pop(held.assignment).cohorts)
    state.closing = None


def version_released(state: State, d: Noted, note: notes.VersionReleased) -> None:
    """Fix the list of the version that is being made."""
    if (closing := state.closing) is not None and closing.version == note.version and not closing.released:
        closing.released = note.digest


def version_unmasked(state: State, d: Noted, note: notes.VersionUnmasked) -> None:
    """Record the assignments that brought the sums of masks, and the signatures of the list."""
    if (closing := state.closing) is not None and closing.version == note.version and closing.released:
        closing.masks, closing.endorsements = note.masks, note.endorsements


def excluded(state: State, d: Noted, note: notes.Excluded) -> None:
    """Leave the slots of these nodes out of the version; their contributions count as before."""
    closing = state.closing
    if closing is not None and closing.version == note.version:
        closing.slots = [
            msgspec.structs.replace(slot, excluded=True) if slot.node in note.nodes else slot for slot in closing.slots
        ]


def measured(state: State, d: Noted, note: notes.Measured) -> None:
    """Keep the newest version that the run's metrics measured."""
    state.record.measured, state.record.measured_tokens = note.version, note.tokens


def disputed(state: State, d: Noted, note: notes.Disputed) -> None:
    """Keep the newest version about whose loss owners disagree."""
    state.record.disputed = note.version


def checkpointed(state: State, d: Noted, note: notes.Checkpointed) -> None:
    """Keep the newest checkpoint."""
    state.record.checkpoint, state.record.checkpoint_time = note.version, d.time


def traffic(state: State, d: Noted, note: notes.Traffic) -> None:
    """Keep the bytes so far."""
    state.totals.bytes_up, state.totals.bytes_down = note.up, note.down


def privacy_budget(state: State, d: Noted, note: notes.PrivacyBudget) -> None:
    """Begin to count what is spent of a budget of differential privacy."""
    if state.progress.spending is None:
        state.progress.spending = Spending(note.unit)


def privacy_spent(state: State, d: Noted, note: notes.PrivacySpent) -> None:
    """Keep the count that was noted last."""
    if state.progress.spending is not None:
        state.progress.spending.told = note.steps


def buffer_size(state: State, d: Noted, note: notes.BufferSize) -> None:
    """Keep the number K of nodes."""
    state.buffer.size = note.nodes


def paused(state: State, d: Noted, note: notes.Paused | notes.Continued) -> None:
    """Keep why the aggregation rule pauses work, or that it does not."""
    state.progress.paused = note.reason


def host_paused(state: State, d: Noted, note: notes.HostPaused) -> None:
    """Keep why the host paused the run."""
    state.progress.host_paused = note.why


def host_continued(state: State, d: Noted, note: notes.HostContinued) -> None:
    """End the host's pause."""
    state.progress.host_paused, state.progress.continued = "", d.time


def stopping(state: State, d: Noted, note: notes.Stopping) -> None:
    """Keep why the run ends, which ends the host's pause."""
    state.progress.stopping, state.progress.host_paused = note.reason, ""


def finished(state: State, d: Noted, note: notes.Finished) -> None:
    """Keep that the run is over, and why."""
    state.progress.finished = note.reason


def site_declared(state: State, d: Noted, note: notes.SiteDeclared) -> None:
    """Fold the rows that a node has now; losses of a use that this version does not know are not used."""
    losses: Losses = "each" if note.losses == "each" else "mean" if note.losses == "mean" else "off"
    known = state.roster.sites.get(d.node)
    if known is not None and known.lane != note.lane and state.progress.spending is not None:
        state.progress.spending.carry(known.lane, note.lane)  # the changed rows may be the same, by other numbers
    state.roster.sites[d.node] = SiteRecord(note.lane, note.rows, note.held_out, note.digest, losses)
    drop_lost(state, d.node)


def drop_lost(state: State, node: str) -> None:
    """Drop lost work of a node on rows that are not there any more."""
    for number, work in list(state.redo.items()):
        if work.node == node and state.is_lost(work):
            del state.redo[number]
    gathering.tidy(state, list(state.cohorts))
