"""The live view of a run."""

from __future__ import annotations

import time

from barnraise.cli import console
from barnraise.cli.hosting import Host


class PlainView:
    """One line every few seconds, for logs and pipes."""

    def __init__(self, interval: float = 5.0) -> None:
        self.interval, self._last = interval, 0.0

    def note(self, text: str) -> None:
        console.note(text)

    def update(self, host: Host) -> None:
        if time.monotonic() - self._last < self.interval:
            return
        self._last = time.monotonic()
        state, settings = host.machine.state, host.machine.settings
        loss = f"{state.evaluations[-1][1]:.3f}" if state.evaluations else "-"
        console.note(
            f"{state.tokens / settings.tokens:6.1%}  version {state.version}  loss {loss}  "
            f"{state.num_live} nodes  K {state.buffer_size}  accepted {state.accepted}  refused {state.refused}  "
            f"up {host.server.bytes_up / 1e6:.1f} MB  down {host.server.bytes_down / 1e6:.1f} MB"
        )

    def close(self) -> None:
        """Nothing to restore."""


def make_view() -> PlainView:
    return PlainView()
