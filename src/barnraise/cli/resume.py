"""`barnraise resume RUN_DIR`: resumes a run that was interrupted or killed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from barnraise.cli.log_forms import LogForm, Plain, form_of


def resume(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run's folder.", show_default=False)],
    log: LogForm = "",
    plain: Plain = False,
    json: Annotated[bool, typer.Option("--json", help="End with one line of JSON, totals over the whole run.")] = False,
) -> None:
    """Resume a run that was interrupted or killed, in the mode it was started in, on the same port.

    Nothing that was acknowledged is lost: versions that the last checkpoint lacks are made again and compared with the
    ledger. If the run is over, its summary is printed, and nothing is written.
    """
    from barnraise.ledger import RunDirectory

    form, run = form_of(log, plain), RunDirectory.open(run_dir).require_real("resume")
    from barnraise.assembly.ending import sealed
    from barnraise.cli.view import voice_of

    voice = voice_of(form)
    if over := sealed(run):
        from barnraise.cli.summary import tell

        voice.say("this run is over and sealed: nothing was written")
        tell(over, form, json=json)
        return
    from barnraise.assembly.hosting import recorded_plan
    from barnraise.cli.supervising import keep_if_needed

    keep_if_needed(recorded_plan(run), form, json=json)
    with run.lock():
        from barnraise.assembly.resuming import resume_run
        from barnraise.cli.summary import tell

        tell(asyncio.run(resume_run(run, voice)), form, json=json)
