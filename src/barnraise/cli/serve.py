"""`barnraise serve RUN.yaml`: the controller alone."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from barnraise.cli.log_forms import LogForm, Plain, form_of
from barnraise.config.document import read


def serve(
    run_file: Annotated[Path, typer.Argument(metavar="RUN.yaml", help="The run file.", show_default=False)],
    uses: Annotated[int, typer.Option(help="Number of machines that the printed invite admits.", min=1)] = 100,
    hours: Annotated[float, typer.Option(help="How long the printed invite is valid.", min=0.01)] = 168.0,
    log: LogForm = "",
    plain: Plain = False,
    json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Run the controller alone and print an invite; workers come with `barnraise join INVITE`.

    Listens on controller.host and controller.port of the run file: for workers on other machines set host to an
    address that they can reach.
    """
    form, document = form_of(log, plain), read(run_file)
    from barnraise.plan.purpose import SERVE
    from barnraise.plan.verify import verify

    plan, _ = verify(document, purpose=SERVE)
    from barnraise.assembly.serving import Invitation, serve_new
    from barnraise.cli.invites import show
    from barnraise.cli.summary import tell
    from barnraise.cli.view import voice_of

    voice = voice_of(form)
    for warning in plan.warnings:
        voice.warn(str(warning))
    tell(asyncio.run(serve_new(plan, voice, Invitation(uses, hours, partial(show, say=voice.say)))), form, json=json)
