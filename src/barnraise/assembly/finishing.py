"""Ending a run early, with a usable model, whether its controller runs or not."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from barnraise.account.account import read
from barnraise.assembly import requests
from barnraise.assembly.ending import Summary
from barnraise.ledger import RunDirectory

if TYPE_CHECKING:
    from barnraise.assembly.voice import Voice


def finish(run: RunDirectory, voice: Voice) -> Summary:
    """Ask the run's controller to finish, and wait until it has; where none runs, be it."""
    if not read(run).finished:
        request = requests.put(run, requests.FinishRun("asked to finish"))
        if (pid := run.holder()) is not None:
            voice.say(f"asked process {pid} to finish")
            requests.taken_up(run, request)
            while run.holder() == pid:
                time.sleep(requests.PATIENCE)
    with run.lock():
        if not read(run).finished:
            from barnraise.assembly.hosting import recorded_plan
            from barnraise.assembly.serving import finish_run

            return asyncio.run(finish_run(run, recorded_plan(run), voice))
    return Summary(read(run))
