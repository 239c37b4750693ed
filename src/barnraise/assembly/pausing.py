"""The host's pause of a run, and its end: requests to the run's controller, and sentences about their outcome."""

from __future__ import annotations

import math

from barnraise.account.pauses import KINDS, Pauses
from barnraise.assembly import requests
from barnraise.core.errors import InputError
from barnraise.core.text import printable
from barnraise.ledger import LedgerView, Noted, RunDirectory, notes

LONGEST_REASON = 1000


def pause(run: RunDirectory, reason: str = "", patience: float = math.inf) -> str:
    """Have the run's controller assign no tasks until `carry_on`, and return a sentence about it.

    Waits for at most `patience` seconds for a controller that runs; without one the next pauses. Raises InputError
    where the run is over or ends, RunDirectoryError, StorageError.
    """
    pauses = _pauses(run, "paused")
    if pauses.host:
        return f"the run is paused already: {printable(pauses.host)}"
    return requests.ask(run, requests.PauseRun(reason[:LONGEST_REASON]), "the run is paused", patience)


def carry_on(run: RunDirectory, patience: float = math.inf) -> str:
    """Have the run's controller assign tasks again after `pause`, and return a sentence about it.

    Waits and raises as `pause`.
    """
    pauses = _pauses(run, "continued")
    if not pauses.host:
        why = f"; it is {pauses.told}" if pauses.told else ""
        return f"the host has not paused the run{why}"
    done = (
        f"the host's pause is over, and the run is {Pauses(pauses.rule).told}" if pauses.rule else "the run continues"
    )
    return requests.ask(run, requests.ContinueRun(), done, patience)


def _pauses(run: RunDirectory, wanted: str) -> Pauses:
    """Return why the run is paused by its ledger and the requests that wait, unless it ends or is over."""
    noted_kinds: tuple[type[notes.Note], ...] = (*KINDS, notes.Finished)
    kinds = ", ".join(f"'{notes.kind_of(kind)}'" for kind in noted_kinds)
    found, ends = Pauses(), ""
    with LedgerView(run.ledger) as view:
        for _, noted in view.find(Noted, f"kind IN ({kinds})"):
            if isinstance(noted.note, notes.Finished | notes.Stopping):
                ends = f"{'is over' if isinstance(noted.note, notes.Finished) else 'is finishing'}: {noted.note.reason}"
            else:
                found = found.after(noted)
    for request in requests.kept(run):
        if isinstance(request, requests.PauseRun):
            found = found.after(Noted(0.0, notes.HostPaused(request.reason)))
        elif isinstance(request, requests.ContinueRun):
            found = found.after(Noted(0.0, notes.HostContinued()))
        elif isinstance(request, requests.FinishRun):
            ends = ends or f"is to finish: {request.reason}"
    if ends:
        raise InputError(f"{run.path} {printable(ends)}; it cannot be {wanted}")
    return found
