"""The views of `barnraise join`: a live view, plain lines, or lines of JSON."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from barnraise.cli import console
from barnraise.cli.log_forms import JSON, LIVE, PLAIN, emit, form_of
from barnraise.worker.progress import Progress, line, notices, summary

if TYPE_CHECKING:
    from rich.live import Live

LOG_SECONDS = 30.0
"""Seconds between two lines of a log."""


class PlainView:
    """Prints a line each half minute and for each event of note; `verbose` for each contribution, too."""

    def __init__(self, verbose: bool) -> None:
        self.progress: Progress | None = None
        self._verbose, self._told_at = verbose, time.monotonic()

    def note(self, text: str) -> None:
        console.note(text)

    def update(self, progress: Progress) -> None:
        for text in notices(self.progress, progress):
            self.note(text)
        before, self.progress = self.progress, progress
        more = self._verbose and before is not None and before.answers != progress.answers
        if more or time.monotonic() - self._told_at >= LOG_SECONDS:
            self._told_at = time.monotonic()
            self._tell(progress)

    def close(self) -> None:
        if self.progress is not None and self.progress.answers.count:
            console.note(summary(self.progress))

    def _tell(self, progress: Progress) -> None:
        console.note(line(progress))


class JsonView(PlainView):
    """Prints objects on standard output, one a line: `event` is note, progress or end."""

    def note(self, text: str) -> None:
        emit("note", {"text": text})

    def close(self) -> None:
        if self.progress is not None:
            emit("end", self.progress.as_json())

    def _tell(self, progress: Progress) -> None:
        emit("progress", progress.as_json())


class LiveView(PlainView):
    """Draws one line at the bottom of the terminal twice a second; notes go above it."""

    def __init__(self, verbose: bool) -> None:
        super().__init__(verbose)
        self._live: Live | None = None

    def update(self, progress: Progress) -> None:
        from rich.text import Text

        for text in notices(self.progress, progress):
            self.note(text)
        self.progress = progress
        live = self._live or self._start()
        live.update(Text(line(progress), style="yellow" if progress.silent else "cyan"), refresh=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
        super().close()

    def _start(self) -> Live:
        from rich.live import Live

        from barnraise.cli.screen import Screen

        self._live = Live(console=Screen(file=sys.stderr), auto_refresh=False, transient=True)
        self._live.start()
        return self._live


def make_view(log: str, plain: bool, verbose: bool) -> PlainView:
    """Return the view in the form that the options ask for. Raises UnknownNameError, InputError."""
    return {LIVE: LiveView, PLAIN: PlainView, JSON: JsonView}[form_of(log, plain)](verbose)
