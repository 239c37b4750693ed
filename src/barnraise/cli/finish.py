"""`barnraise finish RUN_DIR`: end a run early, with a usable model, whether its controller runs or not."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Annotated

import typer

from barnraise.cli import console


def finish(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run's folder.", show_default=False)],
    json: Annotated[bool, typer.Option("--json", help="End with one line of JSON, totals over the whole run.")] = False,
) -> None:
    """End a run early: one more version of what was accepted so far, its evaluation, the exported model, the report.

    A controller that runs is asked to, and waited for; it prints its summary where it was started. A run that was
    interrupted or killed is ended here. Either way it cannot go on afterwards.
    """
    from barnraise.account.account import read
    from barnraise.cli import requests
    from barnraise.ledger import RunDirectory

    run = RunDirectory.open(run_dir)
    if not read(run).finished:
        request = requests.put(run, requests.FinishRun("asked to finish"))
        if (pid := run.holder()) is not None:
            console.note(f"asked process {pid} to finish")
            requests.taken_up(run, request)
            while run.holder() == pid:
                time.sleep(requests.PATIENCE)
    with run.lock():
        from barnraise.cli.hosting import recorded_plan

        if not read(run).finished:
            from barnraise.cli.serving import finish_run

            asyncio.run(finish_run(run, recorded_plan(run), json=json))
            return
    from barnraise.cli.summary import tell

    tell(read(run), None, json=json)
