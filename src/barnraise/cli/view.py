"""The views of a run while it works: a picture that is redrawn on a terminal, lines, or lines of JSON.

The first two go to standard error, so that standard output holds results only; JSON goes to standard output.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from barnraise.account.chronicle import Chronicle, Happening, of_note
from barnraise.account.merging import NewestVersion
from barnraise.account.reducer import RowFeed
from barnraise.assembly.present import present_of
from barnraise.assembly.voice import Voice
from barnraise.cli import console
from barnraise.cli.dashboards import dashboard
from barnraise.cli.log_forms import JSON, LIVE, PLAIN, emit, kept_told
from barnraise.cli.panel import MOST_EVENTS, Figures, Heading, Moment, PanelProgress, as_json, draw, line
from barnraise.cli.tables import use_line
from barnraise.ledger import LedgerView

if TYPE_CHECKING:
    from rich.live import Live

    from barnraise.assembly.hosting import Host  # it imports torch

RATE_SECONDS = 20.0
"""Seconds over which tokens a second are averaged."""

FASTEST, COST = 0.5, 0.02
"""Seconds between two pictures at least, and the share of a core that drawing them may take."""

MOST_LINES = 8
"""Events printed at once as lines; of more than that (a fleet that joins) only the number is printed."""


class Observer:
    """Makes moments of a host: remembers token counts over time, and follows the ledger."""

    def __init__(self) -> None:
        self._tokens: deque[tuple[float, int]] = deque()
        self._ledger: LedgerView | None = None
        self._feed: RowFeed | None = None
        self._chronicle, self._version = Chronicle(), NewestVersion()
        self._recent: deque[Happening] = deque(maxlen=MOST_EVENTS)
        self._withstood: tuple[int, int | None, bool] = 0, None, True  # a version, its f, and whether that holds

    def news(self, host: Host) -> list[Happening]:
        """Return the events since the last call; of a resumed run, since this process started."""
        old = self._feed is None and host.resumed
        if self._feed is None:
            self._ledger = LedgerView(host.run.ledger)
            self._feed = RowFeed(self._ledger, [self._chronicle, self._version])
        self._feed.advance()
        found = self._chronicle.take()
        self._recent.extend(found)
        return [] if old else found

    def moment(self, host: Host) -> Moment:
        """Return the present content of the view."""
        state, settings = host.machine.state, host.machine.settings
        present = present_of(host, self._chronicle.dismissed)
        f, guaranteed = self._f(host)
        return Moment(
            heading=Heading(
                run=settings.run.name,
                mode="asynchronous" if settings.asynchronous else "synchronous",
                seconds=present.clock,
                condition=present.waits_for,
                standby=present.standby.text,
            ),
            progress=PanelProgress(
                state.totals.tokens, settings.tokens, self._rate(present.clock, state.totals.tokens)
            ),
            figures=Figures(
                version=state.newest.version,
                buffer_size=state.buffer.size,
                live=state.num_live,
                accepted=state.totals.accepted,
                refused=state.totals.refused,
                discarded=state.totals.discarded,
                bytes_up=present.bytes_up,
                bytes_down=present.bytes_down,
                f=f,
                guaranteed=guaranteed,
            ),
            losses=state.record.evaluations,
            rows=present.rows,
            happenings=tuple(self._recent),
            links=present.links,
        )

    def close(self) -> None:
        if self._ledger is not None:
            self._ledger.close()

    def _f(self, host: Host) -> tuple[int | None, bool]:
        """Return the newest version's f, looked up once: the state does not keep its contributions."""
        newest = host.machine.state.newest.version
        if self._ledger is not None and newest != self._withstood[0]:
            nodes, rule = self._version.nodes(self._ledger), host.plan.aggregation
            self._withstood = newest, rule.withstood(nodes), rule.guaranteed(nodes)
        return self._withstood[1:]

    def _rate(self, now: float, tokens: int) -> float:
        samples = self._tokens
        samples.append((now, tokens))
        while len(samples) > 2 and samples[1][0] <= now - RATE_SECONDS:
            samples.popleft()
        (begin, before), (end, after) = samples[0], samples[-1]
        return max(0, after - before) / (end - begin) if end > begin else 0.0


class PlainView:
    """Prints a line every `interval` seconds, and one for each event of note."""

    def __init__(self, interval: float = 5.0) -> None:
        self._interval, self._last = interval, time.monotonic()
        self._observer = Observer()

    def note(self, text: str) -> None:
        console.note(text)

    def update(self, host: Host) -> None:
        self._tell(of_note(self._observer.news(host)))
        if time.monotonic() - self._last >= self._interval:
            self._last = time.monotonic()
            self._show(self._observer.moment(host))

    def close(self) -> None:
        self._observer.close()

    def _show(self, moment: Moment) -> None:
        console.note(line(moment))
        if links := use_line(moment.links):
            console.note(links)

    def _tell(self, happenings: list[Happening]) -> None:
        for happening in happenings[:MOST_LINES]:
            console.note(happening.text)
        if len(happenings) > MOST_LINES:
            console.note(f"and {len(happenings) - MOST_LINES:,} more events, all in the ledger")


class LiveView:
    """Draws a picture of the run at most twice a second; notes go above it."""

    def __init__(self) -> None:
        self._interval, self._last = FASTEST, 0.0
        self._observer = Observer()
        self._live: Live | None = None
        self._host: Host | None = None

    def note(self, text: str) -> None:
        console.note(text)  # rich puts output to the standard streams above the picture

    def update(self, host: Host) -> None:
        if time.monotonic() - self._last < self._interval:
            return
        self._last = time.monotonic()
        self._host = host
        self._draw(host)

    def close(self) -> None:
        """Close the view; the last picture stays on the terminal."""
        if self._host is not None:
            self._draw(self._host)
        if self._live is not None:
            self._live.stop()
        self._observer.close()

    def _draw(self, host: Host) -> None:
        began = time.thread_time()
        self._observer.news(host)
        live = self._live or self._start()
        picture = draw(self._observer.moment(host), width=live.console.width, height=live.console.height)
        live.update(picture, refresh=True)
        self._interval = max(FASTEST, (time.thread_time() - began) / COST)

    def _start(self) -> Live:
        from rich.live import Live

        from barnraise.cli.screen import Screen

        self._live = Live(console=Screen(file=sys.stderr), auto_refresh=False)
        self._live.start()
        return self._live


class JsonView(PlainView):
    """Prints objects on standard output, one a line: `event` is note, happening or progress."""

    def note(self, text: str) -> None:
        _note(text)

    def _show(self, moment: Moment) -> None:
        emit("progress", as_json(moment))

    def _tell(self, happenings: list[Happening]) -> None:
        for one in happenings:
            emit("happening", {"seconds": one.time, "kind": one.kind, "node": one.node, "text": one.text})


def voice_of(form: str) -> Voice:
    """Return the output of a command with a controller, in one of the forms of `log_forms`."""
    if form == JSON:
        alert = partial(_emit_text, "warning")
        return Voice(_note, alert, JsonView, partial(kept_told, _note), partial(dashboard, say=_note, warn=alert))
    view, say, warn = {LIVE: LiveView, PLAIN: PlainView}[form], console.note, console.warn
    return Voice(say, warn, view, partial(kept_told, say), partial(dashboard, say=say, warn=warn))


def _emit_text(event: str, text: str) -> None:
    emit(event, {"text": text})


_note = partial(_emit_text, "note")
