"""The way of each assignment as a trace: its spans, folded from the ledger's rows, for OpenTelemetry and others.

A trace is complete with the row that ends its assignment: the version that holds its update, another verdict than
acceptance, or a release. The ids of a trace follow from the run and the assignment, so that two exports of a trace are
the same trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import msgspec

from barnraise.account.activity import OpenTask, phases
from barnraise.account.reducer import Kinds, Reducer
from barnraise.core.text import LONGEST_NAME, printable
from barnraise.ledger import Assigned, Decision, Judged, LedgerView, Noted, VersionClosed, VersionMade, notes

MOST_RELEASED = 1000
"""ReleasedWork assignments that are kept, as their nodes may return to them; the oldest of more than these are over."""

ROOT, DOWNLOAD, WORK, UPLOAD, VERDICT, BUFFER, VERSION = range(1, 8)
"""The spans of a trace; an id of a span ends in its number."""

WORK_NAMES: Mapping[str, str] = {"train": "training", "evaluate": "evaluating", "audit": "auditing"}
"""Names of the span of the work itself, by kind of task."""

SPAN_IDS = 1 << 64
LONGEST_KIND = 40


class SpanRecord(NamedTuple):
    """One span; times are seconds of the run's clock, `parent` is 0 for the first span of a trace.

    `failed` is why its work was not used, "" where it was. `link` names the trace of the work that this repeats, and
    its first span.
    """

    trace: int
    span: int
    parent: int
    name: str
    start: float
    stop: float
    attributes: Mapping[str, str | int | float]
    failed: str = ""
    link: tuple[int, int] | None = None


class OpenWork(NamedTuple):
    """An assignment without an outcome."""

    assignment: int
    node: str
    kind: str
    time: float
    base: int
    tokens: int
    local_steps: int
    max_staleness: int
    fetch: float
    send: float
    redo: int


class ReleasedWork(NamedTuple):
    """An assignment that was taken from its node, at a time and for a reason."""

    given: OpenWork
    time: float
    reason: str


class KeptUpdate(NamedTuple):
    """An accepted update that waits for its version; its node computed from `begun` on, and downloaded before."""

    given: OpenWork
    judged: Judged
    download: float
    begun: float
    ended: float


class Spans(Reducer):
    """Turns the rows of a ledger into the spans of assignments that are over, which `take` returns.

    `run` identifies the run in ids, and `share` is the share of assignments that get spans: the same ones each time.
    """

    kinds: ClassVar[Kinds] = (
        Assigned,
        Judged,
        VersionClosed,
        VersionMade,
        notes.Released,
        notes.Reopened,
        notes.Voided,
        notes.VersionRefused,
        notes.Finished,
    )

    run: str
    share: float = 1.0
    open: dict[int, OpenWork] = msgspec.field(default_factory=dict)
    released: dict[int, ReleasedWork] = msgspec.field(default_factory=dict)
    kept: dict[int, KeptUpdate] = msgspec.field(default_factory=dict)
    closed: dict[int, VersionClosed] = msgspec.field(default_factory=dict)
    busy: dict[str, float] = msgspec.field(default_factory=dict)  # until when a node computed last
    done: list[SpanRecord] = msgspec.field(default_factory=list)

    def add(self, row_id: int, decision: Decision, view: LedgerView) -> None:
        if isinstance(decision, Assigned):
            self._assigned(decision)
        elif isinstance(decision, Judged):
            self._judged(decision)
        elif isinstance(decision, VersionClosed):
            self.closed[decision.version] = decision
        elif isinstance(decision, VersionMade):
            self._made(decision)
        elif isinstance(decision, Noted):
            self._noted(decision.time, decision.note)

    def take(self) -> list[SpanRecord]:
        """Return the spans of the assignments that ended since the last call."""
        found, self.done = self.done, []
        return found

    def _assigned(self, d: Assigned) -> None:
        terms = d.terms
        self.open[d.assignment] = OpenWork(
            d.assignment,
            d.node,
            d.kind,
            d.time,
            base=d.base,
            tokens=d.tokens,
            local_steps=d.local_steps,
            max_staleness=terms.max_staleness,
            fetch=terms.fetch,
            send=terms.send,
            redo=d.redo,
        )
        if d.redo in self.released:
            self._lost(d.redo)

    def _judged(self, d: Judged) -> None:
        given = self.open.pop(d.assignment, None)
        if given is None:  # it was assigned before this began to read
            return
        found = phases(OpenTask(given.kind, given.time, given.fetch, given.send), d, self.busy.get(d.node, 0.0))
        self.busy[d.node] = found.ended
        if not self._sampled(d.assignment):
            return
        kept = KeptUpdate(given, d, found.download, found.begun, found.ended)
        if d.contributes:
            self.kept[d.assignment] = kept
        else:
            failed = "" if d.verdict == "accepted" else d.reason or d.verdict
            self.done += _spans(self.run, kept, d.time, d.verdict, failed)

    def _made(self, d: VersionMade) -> None:
        closed = self.closed.pop(d.version, None)
        if closed is None:
            return
        for assignment in closed.contributions:
            if (kept := self.kept.pop(assignment, None)) is not None:
                self.done += _spans(self.run, kept, d.time, "accepted", "", (closed, d))

    def _noted(self, time: float, note: notes.Note) -> None:
        if isinstance(note, notes.Released):
            if (given := self.open.pop(note.assignment, None)) is not None:
                self.released[note.assignment] = ReleasedWork(given, time, note.reason)
            while len(self.released) > MOST_RELEASED:
                self._lost(next(iter(self.released)))
        elif isinstance(note, notes.Reopened):
            if (released := self.released.pop(note.assignment, None)) is not None:
                self.open[note.assignment] = released.given
        elif isinstance(note, notes.Voided):
            self._void((note.assignment,), time, note.reason)
        elif isinstance(note, notes.VersionRefused):
            self._void(note.contributions, time, note.reason)
        elif isinstance(note, notes.Finished):
            self._over(time)

    def _void(self, assignments: Iterable[int], time: float, reason: str) -> None:
        for assignment in assignments:
            if (kept := self.kept.pop(assignment, None)) is not None:
                self.done += _spans(self.run, kept, time, "void", reason)

    def _lost(self, assignment: int) -> None:
        """End a released assignment."""
        given, time, reason = self.released.pop(assignment)
        if self._sampled(assignment):
            self.done.append(_root(self.run, given, time, "released", reason))

    def _over(self, time: float) -> None:
        """End all that is open, as the run is over."""
        for assignment in [*self.released]:
            self._lost(assignment)
        self._void([*self.kept], time, "the run ended before a version held it")
        for given in self.open.values():
            if self._sampled(given.assignment):
                self.done.append(_root(self.run, given, time, "open", "the run ended before its result came"))
        self.open.clear()

    def _sampled(self, assignment: int) -> bool:
        """Return whether an assignment gets spans, by the lower half of its trace's id as OpenTelemetry does."""
        if self.share >= 1.0:
            return True
        return ids_of(self.run, assignment)[0] % SPAN_IDS < self.share * SPAN_IDS


def ids_of(run: str, assignment: int) -> tuple[int, int]:
    """Return the id of an assignment's trace, and that of its first span.

    >>> ids_of("barn", 7) == ids_of("barn", 7) != ids_of("barn", 8)
    True
    """
    found = int.from_bytes(hashlib.sha256(f"barnraise trace 1\n{run}\n{assignment}".encode()).digest()[:24])
    trace, span = divmod(found, SPAN_IDS)
    return trace or 1, span & ~0xF | ROOT


def _root(run: str, given: OpenWork, stop: float, outcome: str, failed: str) -> SpanRecord:
    """Return the first span of a trace."""
    trace, span = ids_of(run, given.assignment)
    told: dict[str, str | int | float] = {
        "barnraise.assignment": given.assignment,
        "barnraise.node": printable(given.node, LONGEST_NAME),
        "barnraise.task": printable(given.kind, LONGEST_KIND),
        "barnraise.base": given.base,
        "barnraise.tokens": given.tokens,
        "barnraise.steps": given.local_steps,
        "barnraise.max_staleness": given.max_staleness,
        "barnraise.outcome": outcome,
    }
    link = ids_of(run, given.redo) if given.redo else None
    name = printable(given.kind, LONGEST_KIND) or "assignment"
    return SpanRecord(
        trace,
        span,
        0,
        name,
        start=given.time,
        stop=max(given.time, stop),
        attributes=told,
        failed=printable(failed),
        link=link,
    )


def _spans(
    run: str,
    kept: KeptUpdate,
    stop: float,
    outcome: str,
    failed: str,
    version: tuple[VersionClosed, VersionMade] | None = None,
) -> Iterator[SpanRecord]:
    """Yield the spans of an assignment with a result, the first one before those in it."""
    given, judged = kept.given, kept.judged
    root = _root(run, given, stop, outcome, failed)
    yield root
    trace, parent = root.trace, root.span

    def part(number: int, name: str, start: float, end: float, told: dict[str, Any], failed: str = "") -> SpanRecord:
        return SpanRecord(trace, parent & ~0xF | number, parent, name, start, stop=end, attributes=told, failed=failed)

    claim = judged.claim
    yield part(DOWNLOAD, "download", kept.download, kept.begun, {})
    work = {"barnraise.steps": claim.steps, "barnraise.claimed_seconds": claim.seconds, "barnraise.loss": claim.loss}
    yield part(WORK, WORK_NAMES.get(given.kind, "computing"), kept.begun, kept.ended, work)
    yield part(UPLOAD, "upload", kept.ended, judged.time, {"barnraise.bytes": claim.num_bytes})
    verdict = {
        "barnraise.verdict": judged.verdict,
        "barnraise.reason": printable(judged.reason),
        "barnraise.staleness": judged.staleness,
        "barnraise.version": judged.version,
        "barnraise.tokens": judged.tokens,
        "barnraise.norm": judged.norm,
    }
    refused = "" if judged.verdict == "accepted" else root.failed
    yield part(VERDICT, "verdict", judged.time, judged.time, verdict, refused)
    if version is None:
        if judged.contributes:
            yield part(BUFFER, "buffer", judged.time, max(judged.time, stop), {}, root.failed)
        return
    closed, made = version
    yield part(BUFFER, "buffer", judged.time, max(judged.time, closed.time), {})
    merged = {
        "barnraise.version": made.version,
        "barnraise.contributions": len(closed.contributions),
        "barnraise.nodes": closed.num_nodes,
        "barnraise.tokens": closed.tokens,
        "barnraise.reason": printable(closed.reason),
        "barnraise.bytes": made.delta_bytes,
    }
    yield part(VERSION, "version", max(judged.time, closed.time), max(judged.time, closed.time, made.time), merged)
