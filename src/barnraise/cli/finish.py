"""`barnraise finish RUN_DIR`: end a run early, with a usable model, whether its controller runs or not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnraise.cli.log_forms import LogForm, Plain, form_of


def finish(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run's folder.", show_default=False)],
    log: LogForm = "",
    plain: Plain = False,
    json: Annotated[bool, typer.Option("--json", help="End with one line of JSON, totals over the whole run.")] = False,
) -> None:
    """End a run early: one more version of what was accepted so far, its evaluation, the exported model, the report.

    A controller that runs is asked to, and waited for; it prints its summary where it was started. A run that was
    interrupted or killed is ended here. Either way it cannot be resumed afterwards. If a run's ledger or payloads are
    damaged, the model of the newest checkpoint is written, and the run is left as it is.
    """
    from barnraise.assembly.ending import Summary
    from barnraise.assembly.finishing import finish as end
    from barnraise.cli import export
    from barnraise.cli.summary import tell
    from barnraise.cli.view import voice_of
    from barnraise.ledger import RunDirectory

    form = form_of(log, plain)
    ending = end(RunDirectory.open(run_dir).require_real("finish"), voice_of(form))
    if isinstance(ending, Summary):
        tell(ending, form, json=json)
    else:
        export.tell(ending, json=json)
