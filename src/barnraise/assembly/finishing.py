"""The early end of a run, with a usable model, with or without a running controller."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from barnraise.assembly import requests
from barnraise.assembly.ending import Summary, is_over, sealed, summarise
from barnraise.assembly.exporting import Exported, export_model
from barnraise.core.errors import CorruptionError
from barnraise.core.program import program
from barnraise.ledger import RunDirectory

if TYPE_CHECKING:
    from barnraise.assembly.voice import Voice


ASKED = requests.FinishRun("asked to finish")


def ask_to_finish(run: RunDirectory, patience: float) -> str:
    """Ask the run's controller to finish, without waiting for the end; without one the next does.

    Return a sentence about it. Raises RunDirectoryError, StorageError.
    """
    if _over(run):
        return "the run is over already"
    outcome = requests.taken_up(run, requests.put(run, ASKED), patience)
    if outcome is requests.Uptake.KEPT:
        return f"the run finishes as soon as it resumes; no controller runs now (or: {program()} finish {run.path})"
    return "the run finishes: it makes and measures a last version of the contributions accepted so far"


def finish(run: RunDirectory, voice: Voice) -> Summary | Exported:
    """Ask the run's controller to finish, and wait until it has; without one, finish the run here.

    Where the state to resume from is damaged, write the model of the newest checkpoint, and leave the run unchanged.
    Raises CorruptionError when no checkpoint is whole either, RunDirectoryError, StorageError.
    """
    try:
        return _finish(run, voice)
    except CorruptionError as error:
        voice.warn(f"the run cannot be ended: {error}")
        return export_model(run, warn=voice.warn)


def _finish(run: RunDirectory, voice: Voice) -> Summary:
    if over := sealed(run):
        return over
    with ExitStack() as stack:
        if not _over(run):
            request = requests.put(run, ASKED)
            stack.callback(request.unlink, missing_ok=True)
            if (pid := run.holder()) is not None:
                voice.say(f"asked process {pid} to finish")
                with voice.doing(f"waiting for process {pid} to finish the run"):
                    requests.taken_up(run, request)
                    while run.holder() == pid:
                        time.sleep(requests.PATIENCE)
        if over := sealed(run):
            return over
        with run.lock():
            from barnraise.assembly.hosting import recorded_plan

            if is_over(run):
                return summarise(run, recorded_plan(run), voice)
            from barnraise.assembly.serving import finish_run

            return asyncio.run(finish_run(run, recorded_plan(run), voice))


def _over(run: RunDirectory) -> bool:
    """Return whether the run is over; a running controller can finish it even if others cannot read its ledger.

    Raises CorruptionError without a running controller.
    """
    try:
        return is_over(run)
    except CorruptionError:
        if run.holder() is None:
            raise
        return False
