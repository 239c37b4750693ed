"""The runs in one folder, a row each: state, progress, loss, workers, and what happened last."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from barnraise.account import account, nodes
from barnraise.account.account import Account, AccountReader
from barnraise.account.chronicle import of_note
from barnraise.account.doubts import waiting_text
from barnraise.account.run_status import WORKING, progress, state
from barnraise.account.waiting import recorded_waiting
from barnraise.config.load import load
from barnraise.core.errors import BarnraiseError, RunDirectoryError
from barnraise.ledger import RunDirectory

UNREADABLE = "unreadable"


class RunRow(NamedTuple):
    """The row of a run. An `unreadable` one has only its name, its state and the reason (`news`)."""

    name: str
    state: str
    progress: float = 0.0  # share of the token budget
    loss: float | None = None  # held out, nats a token
    tokens_per_second: float = 0.0  # mean over the run
    present: int = 0  # workers that take part
    workers: int = 0  # that ever joined
    version: int = 0
    accepted: int = 0
    refused: int = 0
    seconds: float = 0.0  # for which its controllers have worked
    news: str = ""


class RunList:
    """Reads the runs in a folder again and again; a run that does not work only when its ledger has changed."""

    def __init__(self, folder: Path) -> None:
        """Raises RunDirectoryError where there is no such folder, or no run in it."""
        self.folder = folder
        self._readers: dict[Path, AccountReader] = {}
        self._still: dict[Path, tuple[tuple[int, int], RunRow]] = {}
        if not folder.is_dir():
            raise RunDirectoryError(f"there is no folder {folder}: give the one that holds runs (`run.dir`)")
        if (folder / "ledger.sqlite").is_file():
            raise RunDirectoryError(f"{folder} is one run: use `barnraise status {folder}`, or give its parent")
        if not self._paths():
            raise RunDirectoryError(f"{folder} holds no runs: give the one that holds runs (`run.dir`)")

    def __enter__(self) -> RunList:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for reader in self._readers.values():
            reader.close()

    def read(self) -> list[RunRow]:
        """Return a row for each run, those that work first, then the newest.

        A run that cannot be read stops no other.
        """
        paths = self._paths()
        for gone in self._readers.keys() - paths:
            self._readers.pop(gone).close()
        rows = [(self._row(path), path) for path in paths]
        rows.sort(key=lambda item: (item[0].state not in WORKING, RunDirectory(item[1]).unchanged_for()))
        return [row for row, _ in rows]

    def _paths(self) -> list[Path]:
        return [path.parent for path in self.folder.glob("*/ledger.sqlite")]

    def _row(self, path: Path) -> RunRow:
        try:
            run = RunDirectory.open(path)
            pid = run.holder()
            if pid is None:
                return self._of_still(run)
            return _row(self._reader(run).read(), load(run.run_file).training.tokens, pid)
        except (BarnraiseError, OSError) as error:
            self._drop(path)
            return RunRow(path.name, UNREADABLE, news=str(error))

    def _of_still(self, run: RunDirectory) -> RunRow:
        """Return the row of a run without a controller, which was read before unless its ledger has changed since."""
        self._drop(run.path)
        size = run.ledger.stat().st_size, run.ledger.stat().st_mtime_ns
        known = self._still.get(run.path)
        if known is None or known[0] != size:
            known = size, _row(account.read(run), load(run.run_file).training.tokens, None)
            self._still[run.path] = known
        return known[1]

    def _reader(self, run: RunDirectory) -> AccountReader:
        if run.path not in self._readers:
            self._readers[run.path] = AccountReader(run)
        return self._readers[run.path]

    def _drop(self, path: Path) -> None:
        if (reader := self._readers.pop(path, None)) is not None:
            reader.close()


def _row(found: Account, budget: int, pid: int | None) -> RunRow:
    rows = nodes.recorded(found.nodes, running=pid is not None, finished=bool(found.finished))
    told = of_note(found.happenings)
    now = found.end + found.run.unchanged_for()
    simulated = found.simulation is not None
    waits = ""
    if pid is not None and not simulated:
        waits = recorded_waiting(found, now) or waiting_text(found.dispatch.doubts, now)
    return RunRow(
        name=found.run.path.name,
        state=state(found, pid),
        progress=progress(found, budget),
        loss=found.final_loss,
        tokens_per_second=found.tokens_per_second,
        present=sum(row.state in nodes.PRESENT for row in rows),
        workers=len(rows),
        version=max(0, found.totals.version),
        accepted=found.totals.accepted,
        refused=found.totals.refused,
        seconds=found.totals.seconds,
        news="simulated" if simulated else waits or (told[-1].text if told else ""),
    )
