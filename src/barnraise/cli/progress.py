"""The progress of a simulation and its remaining time: one changing line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnraise.cli import console
from barnraise.cli.log_forms import repeated
from barnraise.core.units import count_text, duration_text

if TYPE_CHECKING:
    from barnraise.emulation.simulator import Simulator

INTERVAL = 10.0
"""Seconds between lines where there is no terminal."""

WARM_UP = 1.0
"""Seconds before the pace so far gives an estimate of the rest."""


@contextmanager
def watched(simulator: Simulator) -> Iterator[None]:
    """Show the progress of `simulator` while it runs."""
    if not sys.stderr.isatty():
        with told(simulator, console.note):
            yield
        return
    from rich.live import Live
    from rich.text import Text

    began = time.monotonic()

    def drawn() -> Text:
        return Text(line(simulator, time.monotonic() - began), style="dim")

    with Live(get_renderable=drawn, console=console.console(sys.stderr), transient=True, refresh_per_second=2):
        yield


@contextmanager
def told(simulator: Simulator, say: Callable[[str], None], interval: float = INTERVAL) -> Iterator[None]:
    """Print a plain line every `interval` seconds, from a thread of its own."""
    began = time.monotonic()
    with repeated(lambda: say(line(simulator, time.monotonic() - began).strip()), interval):
        yield


def line(simulator: Simulator, elapsed: float) -> str:
    """Return the simulation's progress after `elapsed` real seconds, and its expected end."""
    done, state = min(1.0, simulator.progress()), simulator.controller.state
    if elapsed < WARM_UP or not done:
        left = "starting"
    else:
        left = f"{duration_text(elapsed)} so far, about {duration_text(elapsed * (1.0 - done) / done)} to go"
    return (
        f"{done:6.1%}  {duration_text(simulator.now)} of virtual time, {count_text(state.newest.version, 'version')}, "
        f"{state.totals.tokens:,} tokens; {left}"
    )
