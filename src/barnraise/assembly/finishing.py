"""Ending a run early, with a usable model, whether its controller runs or not."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from barnraise.assembly import requests
from barnraise.assembly.ending import Summary, is_over, sealed, summarise
from barnraise.ledger import RunDirectory

if TYPE_CHECKING:
    from barnraise.assembly.voice import Voice


def finish(run: RunDirectory, voice: Voice) -> Summary:
    """Ask the run's controller to finish, and wait until it has; where none runs, be it."""
    if over := sealed(run):
        return over
    if not is_over(run):
        request = requests.put(run, requests.FinishRun("asked to finish"))
        if (pid := run.holder()) is not None:
            voice.say(f"asked process {pid} to finish")
            requests.taken_up(run, request)
            while run.holder() == pid:
                time.sleep(requests.PATIENCE)
    if over := sealed(run):
        return over
    with run.lock():
        from barnraise.assembly.hosting import recorded_plan

        if is_over(run):
            return summarise(run, recorded_plan(run), voice.say, voice.warn)
        from barnraise.assembly.serving import finish_run

        return asyncio.run(finish_run(run, recorded_plan(run), voice))
