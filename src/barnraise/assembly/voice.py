"""The output of a run while it works: a command prints it, a Python program handles it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
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
    """The output functions of a run.

    `say` gets remarks, `warn` doubtful conditions; `view` makes a view of the run. `doing` makes a context around work
    without a view, such as "making the dataset", that may take long. `beside` makes a context around the work of a
    host, in which the run can be seen in other ways.
    """

    say: Say
    warn: Say
    view: Callable[[], View]
    doing: Callable[[str], AbstractContextManager[None]] = lambda what: nullcontext()
    beside: Callable[[Host], AbstractContextManager[object]] = lambda host: nullcontext()

    @classmethod
    def of(cls, say: Say) -> Voice:
        """Make a voice in plain lines, which all go to `say`."""
        return cls(say, lambda text: say(f"warning: {text}"), lambda: Teller(say))


class Teller:
    """A view in words: each event of the run, once; of a resumed one, from now on."""

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
