"""`barnraise lab RUN.yaml`: a run over a wide-area network that is made on this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from barnraise.cli.log_forms import LogForm, Plain, form_of
from barnraise.config.document import read


def lab(
    run_file: Annotated[Path, typer.Argument(metavar="RUN.yaml", help="The run file.", show_default=False)],
    network: Annotated[
        str | None,
        typer.Option(
            metavar="LINK",
            help="Each worker's link: a preset, or figures as in 10mbit/50ms. Instead of the run file's.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="How many workers, instead of the run file's.", min=1, max=64, show_default=False),
    ] = None,
    ns3: Annotated[bool, typer.Option("--ns3", help="Let ns-3 carry the packets, for measurements.")] = False,
    log: LogForm = "",
    plain: Plain = False,
    json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Train between network namespaces of this machine, each worker behind a slow link of its own.

    Controller and workers are those of `serve` and `join`, and real packets pass real TCP stacks; only the links are
    emulated. Shows what each link carries, and writes it into the run directory (links.json). Needs root, iproute2
    and /dev/net/tun; nothing is left behind.
    """
    form, document = form_of(log, plain), read(run_file)
    from barnraise.emulation import namespaces

    namespaces.require()
    if ns3:
        from barnraise.emulation.ns3_hub import require

        require()
    from barnraise.cli.supervising import keep_if_needed
    from barnraise.plan.links import with_network, with_workers
    from barnraise.plan.purpose import LAB
    from barnraise.plan.verify import verify

    plan, _ = verify(with_workers(with_network(document, network), workers), purpose=LAB)
    from barnraise.assembly.laboratory import lab_new  # with torch: no bad input waits for it
    from barnraise.cli.summary import tell
    from barnraise.cli.view import voice_of

    keep_if_needed(plan, form, json=json)
    voice = voice_of(form)
    for warning in plan.warnings:
        voice.warn(str(warning))
    tell(asyncio.run(lab_new(plan, voice, backend="ns3" if ns3 else "tun")), form, json=json)
