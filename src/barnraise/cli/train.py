"""`barnraise train RUN.yaml`: controller and local workers on this machine, from a run file to an exported model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from barnraise.cli.log_forms import LogForm, Plain, form_of
from barnraise.config.document import read


def train(
    run_file: Annotated[Path, typer.Argument(metavar="RUN.yaml", help="The run file.", show_default=False)],
    network: Annotated[
        str | None,
        typer.Option(
            metavar="LINK",
            help="Emulate such links: a preset, or figures as in 10mbit/50ms. Instead of the run file's.",
            show_default=False,
        ),
    ] = None,
    log: LogForm = "",
    plain: Plain = False,
    json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Train with a controller and local workers on this machine.

    Prints how to resume first, a live view while it works, and a summary with the place of the exported model.
    """
    form, document = form_of(log, plain), read(run_file)
    from barnraise.cli.supervising import keep_if_needed
    from barnraise.plan.links import with_network
    from barnraise.plan.purpose import TRAIN
    from barnraise.plan.verify import verify

    plan, _ = verify(with_network(document, network), purpose=TRAIN)
    keep_if_needed(plan, form, json=json)
    from barnraise.assembly.embedded import train_new
    from barnraise.cli.summary import tell
    from barnraise.cli.view import voice_of

    voice = voice_of(form)
    for warning in plan.warnings:
        voice.warn(str(warning))
    tell(asyncio.run(train_new(plan, voice)), form, json=json)
