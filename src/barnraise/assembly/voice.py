"""What a run says while it works, and to whom: a command prints it, a Python program takes it as it likes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from barnraise.account.chronicle import Chronicle
from barnraise.account.reducer import RowFeed
from barnraise.ledger import LedgerView

if TYPE_CHECKING:
    from barnraise.assembly.hosting import Host  # it imports torch

Say = Callable[[str], None]


class View(Protocol):
    """Shows a run while it works."""

    def note(self, text: str) -> None: ...
    def update(self, host: Host) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Voice:
    """`say` hears remarks, `warn` what works but probably not as meant; `view` makes a view of the run."""

    say: Say
    warn: Say
    view: Callable[[], View]

    @classmethod
    def of(cls, say: Say) -> Voice:
        """A voice in plain lines: all of them go to `say`."""
        return cls(say, lambda text: say(f"warning: {text}"), lambda: Teller(say))


class Teller:
    """A view in words: each thing that happens in the run, once; of a resumed one, from now on."""

    def __init__(self, say: Say) -> None:
        self.note = say
        self._ledger: LedgerView | None = None
        self._chronicle = Chronicle()

    def update(self, host: Host) -> None:
        if self._ledger is None:
            self._ledger = LedgerView(host.run.ledger)
            self._feed = RowFeed(self._ledger, [self._chronicle])
            if host.resumed:
                self._feed.advance()
                self._chronicle.take()
        self._tell()

    def close(self) -> None:
        if self._ledger is not None:
            self._tell()
            self._ledger.close()

    def _tell(self) -> None:
        self._feed.advance()
        for happening in self._chronicle.take():
            self.note(happening.text)
