"""How far a simulation is and how long it will take yet, in a line that is drawn anew; nothing where nobody looks."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnraise.cli import console
from barnraise.core.units import count_text, duration_text

if TYPE_CHECKING:
    from barnraise.emulation.simulator import Simulator

WARM_UP = 1.0
"""Seconds before the pace so far says how long the rest will take."""


@contextmanager
def watched(simulator: Simulator) -> Iterator[None]:
    """Show on a terminal how far `simulator` is, while it runs."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.live import Live
    from rich.text import Text

    began = time.monotonic()

    def drawn() -> Text:
        return Text(line(simulator, time.monotonic() - began), style="dim")

    with Live(get_renderable=drawn, console=console.console(sys.stderr), transient=True, refresh_per_second=2):
        yield


def line(simulator: Simulator, elapsed: float) -> str:
    """Where the simulation is after `elapsed` seconds of ours, and when it will be done."""
    done, state = min(1.0, simulator.progress()), simulator.controller.state
    if elapsed < WARM_UP or not done:
        left = "starting"
    else:
        left = f"{duration_text(elapsed)} so far, about {duration_text(elapsed * (1.0 - done) / done)} to go"
    return (
        f"{done:6.1%}  {duration_text(simulator.now)} of virtual time, {count_text(state.newest.version, 'version')}, "
        f"{state.totals.tokens:,} tokens; {left}"
    )
