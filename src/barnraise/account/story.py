"""The story of one assignment or one node: its rows of the ledger, in order, as sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from barnraise.core.text import LONGEST_NAME, LONGEST_SENTENCE, printable, shortened
from barnraise.core.types import ANSWERS, Confirm, Endorse, Unmask, Vet, name_of
from barnraise.core.units import bytes_text, count_text, duration_text
from barnraise.ledger import (
    Assigned,
    Change,
    Decision,
    Judged,
    LedgerView,
    NodeChanged,
    Noted,
    VersionClosed,
    VersionMade,
    notes,
)


@dataclass(frozen=True)
class Line:
    """One event, at `time` on the run's clock.

    `decision` is the ledger's row.
    """

    time: float
    text: str
    decision: Decision


def of_assignment(view: LedgerView, number: int) -> list[Line]:
    """Return the story of assignment `number`, and of its rows where others did them; empty when there is none."""
    known = view.find(Assigned, "assignment = ?", number)
    if not known:
        return []
    found: list[tuple[int, Decision]] = [
        *known,
        *view.find(Assigned, "redo = ?", number),
        *view.find(Judged, "assignment = ?", number),
        *view.find(Noted, "kind = 'audited' AND json_extract(detail, '$.audited') = ?", number),
        *view.find(Noted, f"kind IN ({_ASSIGNMENT_NOTES}) AND json_extract(detail, '$.assignment') = ?", number),
    ]
    for row_id, closed in view.find(VersionClosed, _HELD, number):
        found += [(row_id, closed), *view.find(VersionMade, "version = ?", closed.version)]
    return _in_order(_lines(found, number))


def of_node(view: LedgerView, node: str, last: int = 0) -> list[Line]:
    """Return the story of a node; of its `last` decisions only, where that is more than 0."""
    found: list[tuple[int, Decision]] = [
        *view.find(NodeChanged, "node = ?", node, last=last),
        *view.find(Assigned, "node = ?", node, last=last),
        *view.find(Judged, "node = ?", node, last=last),
        *view.find(Noted, "node = ?", node, last=last),
    ]
    return _in_order([*_lines(found), *_held_up(view, node)])[-last:]


def _held_up(view: LedgerView, node: str) -> Iterator[tuple[int, Line]]:
    """Yield when the node begins to wait because the host paused the run, and when it may have tasks again, by rows."""
    pauses = view.find(Noted, f"kind IN ({_PAUSES})")
    if not pauses:
        return
    name, here, why = printable(node, LONGEST_NAME), False, ""
    changes: list[tuple[int, Decision]] = [*view.find(NodeChanged, "node = ?", node), *pauses]
    for row, decision in sorted(changes, key=lambda item: item[0]):
        waited = here and why
        if isinstance(decision, Noted):
            why = decision.note.why if isinstance(decision.note, notes.HostPaused) else ""
        elif isinstance(decision, NodeChanged) and decision.change not in (Change.ENROLLED, Change.REKEYED):
            here = not decision.change.gone
        if here and why and not waited:
            yield row, Line(decision.time, f"{name} waits: {printable(why)}", decision)
        elif here and waited and not why:
            yield row, Line(decision.time, f"{name} no longer waits: the pause is over", decision)


_PAUSES = ", ".join(f"'{notes.kind_of(note)}'" for note in (notes.HostPaused, notes.HostContinued, notes.Stopping))
_HELD = "EXISTS (SELECT 1 FROM json_each(contributions) WHERE value = ?)"
_ASSIGNMENT_NOTES = ", ".join(
    f"'{notes.kind_of(note)}'"
    for note in (
        notes.Audited,
        notes.Unaudited,
        notes.Convicted,
        notes.Scored,
        notes.Discredited,
        notes.Offended,
        notes.Released,
        notes.Copied,
        notes.Reopened,
        notes.Voided,
    )
)


def sentence(decision: Decision, number: int = 0) -> str:
    """Return the sentence for one row, of the story of assignment `number`; empty where the row has none."""
    return shortened(_TELL[type(decision)](_named(decision), number), LONGEST_SENTENCE)


def _lines(found: Iterable[tuple[int, Decision]], number: int = 0) -> Iterator[tuple[int, Line]]:
    for row, decision in found:
        if text := sentence(decision, number):
            yield row, Line(decision.time, text, decision)


def _in_order(lines: Iterable[tuple[int, Line]]) -> list[Line]:
    return [line for _, line in sorted(lines, key=lambda item: item[0])]


def _named(decision: Decision) -> Decision:
    """Return the decision with a name that can be shown."""
    if isinstance(decision, Assigned | Judged | NodeChanged | Noted):
        return msgspec.structs.replace(decision, node=printable(decision.node, LONGEST_NAME))
    return decision


_ASKED = {
    name_of(Vet): "which entries of the list of version {version} it refuses",
    name_of(Endorse): "to sign the list of version {version}",
    name_of(Confirm): "for the digest of sums of masks of version {version}",
    name_of(Unmask): "for sums of masks of version {version}",
}
"""The questions to trustees, by the kind of task."""


def _assigned(d: Assigned, number: int) -> str:
    if d.kind == "flush":
        return f"{d.assignment}: {d.node} is asked for the residual that error feedback holds"
    if d.kind == "evaluate":
        rows = ", ".join(f"{row_range.start:,} to {row_range.stop - 1:,}" for row_range in d.rows)
        instead = f", instead of {d.redo}" if d.redo else ""
        return f"{d.assignment}: {d.node} is to measure the loss of version {d.base} on held-out rows {rows}{instead}"
    if d.kind == "audit":
        return f"{d.assignment}: {d.node} is to repeat {count_text(d.local_steps, 'step')} of another node's work"
    if asked := _ASKED.get(d.kind):
        return f"{d.assignment}: {d.node} is asked {asked.format(version=d.base + 1)}"
    terms, again = d.terms, f", work of {d.redo} again" if d.redo else ""
    return (
        f"{d.assignment}: {d.node} is to take {count_text(d.local_steps, 'step')} ({count_text(d.tokens, 'token')}"
        f"{again}) from version {d.base}, at rate {terms.learning_rate:.3g}; at most {terms.max_staleness} versions "
        "late"
    )


def _judged(d: Judged, number: int) -> str:
    if d.verdict == "accepted" and d.claim.result in ANSWERS:
        sums = f" with {bytes_text(d.claim.num_bytes)} of sums" if d.brings else ""
        return f"{d.assignment}: {d.node} answered in {d.claim.seconds:.1f} s{sums}"
    if d.verdict == "accepted" and not d.contributes and not d.weighing.weight:
        return f"{d.assignment}: {d.node} repeated it in {d.claim.seconds:.1f} s, with a loss of {d.claim.loss:.3f}"
    if d.verdict == "accepted" and not d.contributes:
        return (
            f"{d.assignment}: {d.node} found a loss of {d.claim.loss:.3f} in {d.claim.seconds:.1f} s, "
            f"the mean of {count_text(int(d.weighing.weight), 'prediction')}"
        )
    told = f"{d.assignment}: {d.node}'s {'contribution' if d.claim.digest else 'result'} is {d.verdict}"
    if d.verdict != "accepted":
        return f"{told}: {printable(d.reason)}"
    claim = d.claim
    late = f"{count_text(d.staleness, 'version')} late" if d.staleness else "in time"
    shortened = f", shortened to {d.weighing.scale:.2g} of that" if d.weighing.scale < 1.0 else ""
    norm = f", norm {d.norm:.3g}{shortened}" if d.norm else ""  # 0: under masks
    loss = f", loss {claim.loss:.3f}" if claim.loss else ""  # 0: withheld
    sent = f"{count_text(claim.steps, 'step')} in {claim.seconds:.1f} s, {bytes_text(claim.num_bytes)}"
    return f"{told}, {late}: {sent}{norm}{loss}"


def _changed(d: NodeChanged, number: int) -> str:
    if d.change == Change.ENROLLED:
        return f"{d.node} proved its key" + (f" by {printable(d.reason)}" if d.reason else "")
    if d.change == Change.REKEYED:
        return f"{d.node} took new keys, for which its old one vouched"
    if d.change == Change.JOINED:
        came = f"{d.node} came back" if d.reason else f"{d.node} joined"
        rate = d.profile.tokens_per_second if d.profile else 0.0
        return came + (f"; it says that it trains on {rate:,.0f} tokens/s" if rate else "")
    return f"{d.node} {_GONE[d.change]}: {printable(d.reason)}" if d.reason else f"{d.node} {_GONE[d.change]}"


_GONE = {
    Change.LEFT: "left",
    Change.SILENT: "was no longer heard",
    Change.MISSING: "is missing",
    Change.DISMISSED: "is dismissed",
    Change.ENDED: "ended, as it was told to",
    Change.BROKE: "broke down",
    Change.KILLED: "is gone",
    Change.REVOKED: "may no longer take part",
}


def _closed(d: VersionClosed, number: int) -> str:
    others = len(d.contributions) - 1
    company = f" with {count_text(others, 'other')}" if others else ", alone"
    return f"{number}: goes into version {d.version}{company} (the buffer closed: {printable(d.reason)})"


def _made(d: VersionMade, number: int) -> str:
    return f"{number}: version {d.version} is made, {bytes_text(d.delta_bytes)} to publish"


def _noted(d: Noted, number: int) -> str:
    tell = _NOTES.get(type(d.note))
    return tell(d.note, printable(d.node)) if tell else ""


def _sampled(note: notes.Sampled, node: str) -> str:
    """Describe the controller's observations of a node, and its own report."""
    said = note.said
    seen = [f"here {note.availability:.1%} of the time"]
    if note.tokens_per_second:
        seen.append(f"computes {note.tokens_per_second:,.0f} tokens/s (give or take {note.spread:.0%})")
    if note.up:
        seen.append(f"sends {bytes_text(int(note.up))}/s")
    told = [f"{words} {form(said[name])}" for name, (words, form) in _SAID.items() if name in said]
    return f"{node}: {', '.join(seen)}" + (f"; it says: {', '.join(told)}" if told else "")


def _scored(note: notes.Scored, node: str) -> str:
    own, others = (f"{gain:+.4f}" if gain is not None else "no number" for gain in (note.own, note.others))
    beside = f", {note.more:.1f} standard errors more than rows like them" if note.more is not None else ""
    return (
        f"{note.assignment}: a step along {node}'s update lowers the loss of version {note.version} by {own} on its "
        f"own rows and by {others} on others{beside}: it {'passes' if note.passed else 'does not pass'} (suspicion "
        f"{note.suspicion:.1f})"
    )


_SAID: dict[str, tuple[str, Callable[[float], str]]] = {
    "tokens_per_second": ("tokens/s", "{:,.0f}".format),
    "step_seconds": ("step", "{:.3g} s".format),
    "overhead": ("alpha of protections", "{:.2f}".format),
    "round_trip": ("round trip", "{:.3g} s".format),
    "up": ("up", lambda value: f"{bytes_text(int(value))}/s"),
    "down": ("down", lambda value: f"{bytes_text(int(value))}/s"),
    "cpu": ("CPU", "{:.0%}".format),
    "gpu": ("GPU", "{:.0%}".format),
    "memory_bytes": ("memory", lambda value: bytes_text(int(value))),
    "gpu_bytes": ("GPU memory", lambda value: bytes_text(int(value))),
    "average": ("load a core", "{:.2f}".format),
}

_NOTES: dict[type[notes.Note], Callable[[Any, str], str]] = {
    notes.Released: lambda note, node: f"{note.assignment}: is released from {node}: {printable(note.reason)}",
    notes.Copied: lambda note, node: (
        f"{note.assignment}: {node}'s result is {duration_text(note.seconds)} late: {printable(note.by)} gets a copy"
    ),
    notes.Audited: lambda note, node: (
        f"{note.audited}: {node}'s work was repeated by {printable(note.by)} as {note.assignment}: the cosine of both "
        f"updates is {note.cosine:.2f}, their distance {note.distance:.0%} of the sent one"
        f"{'' if note.sound is None else ', so it is sound' if note.sound else ', and another agrees with that'}"
    ),
    notes.Unaudited: lambda note, node: (
        f"{note.assignment}: an audit of {node}'s work had no result: {printable(note.reason)}"
    ),
    notes.Convicted: lambda note, node: (
        f"{note.assignment}: {node} is convicted by {', '.join(map(str, note.against))}, which are the same work and "
        f"agree with each other; it gets no tasks {'any more' if note.until is None else 'for a while'}"
    ),
    notes.Scored: lambda note, node: _scored(note, node),
    notes.Discredited: lambda note, node: (
        f"{note.assignment}: {node} is discredited: its updates lower the loss on its own rows no more than on other "
        f"rows, too often for chance (suspicion {note.suspicion:.1f}); it gets no tasks "
        f"{'any more' if note.until is None else 'for a while'}"
    ),
    notes.Offended: lambda note, node: (
        f"{note.assignment}: {node} submitted {note.count} results that no honest machine produces (the last "
        f"{printable(note.reason)}); it gets no tasks {'any more' if note.until is None else 'for a while'}"
    ),
    notes.Reopened: lambda note, node: f"{note.assignment}: is {node}'s again, before another node took it",
    notes.Voided: lambda note, node: (
        f"{note.assignment}: cannot be used for version {note.version}: {printable(note.reason)}"
    ),
    notes.HeldOff: lambda note, node: (
        f"{node} gets no tasks for {duration_text(note.seconds)}: {printable(note.reason)}"
    ),
    notes.Tuned: lambda note, node: (
        f"{node}'s tasks are fitted to its link: payloads of {bytes_text(note.bytes)}, at least "
        f"{count_text(note.local_steps, 'step')}"
    ),
    notes.RunFile: lambda note, node: "the values of the run file are on the ledger",  # the chronicle tells of changes
    notes.Sampled: lambda note, node: _sampled(note, node),
    notes.VersionReleased: lambda note, node: f"the list of version {note.version} was released",
    notes.FrameDropped: lambda note, node: (
        f"{count_text(note.count, 'frame')} of {node} dropped: {printable(note.reason)}"
    ),
}

_TELL: dict[type[Decision], Callable[[Any, int], str]] = {
    Assigned: _assigned,
    Judged: _judged,
    NodeChanged: _changed,
    VersionClosed: _closed,
    VersionMade: _made,
    Noted: _noted,
}
