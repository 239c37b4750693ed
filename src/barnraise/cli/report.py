"""`barnraise report RUN_DIR`: a run's report with pictures, or its figures for experiment trackers.

Reads the run, and writes these files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnraise.cli import console
from barnraise.core.errors import BarnraiseError, InputError

if TYPE_CHECKING:
    from barnraise.ledger import RunDirectory


def report(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run's folder.", show_default=False)],
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            help="tensorboard, wandb, mlflow or trackio; may be repeated. Without it RUN_DIR/report.md is written.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the trackers' files; RUN_DIR/tracking if not given.")
    ] = None,
) -> None:
    """Write report.md, its pictures and report.html, or figures for TensorBoard, W&B (offline), MLflow or trackio.

    All from the ledger. Works while the run does, after it ended or crashed, and for a simulation. The report of a run
    that is over is sealed and stays as it is. A tracker gets the figures that it does not have yet.
    """
    from barnraise.ledger import RunDirectory

    run = RunDirectory.open(run_dir)
    if not to:
        if out is not None:
            raise InputError(f"--out {out} is for the files of a tracker: name one with --to")
        console.say(f"the report is {_written(run)}")
        return
    from barnraise.account.tracking.following import Tracking

    tracking = Tracking(run, to, out)
    try:
        points = tracking.advance()
    finally:
        tracking.close()
    if tracking.failures:
        raise BarnraiseError("; ".join(f"{name}: {why}" for name, why in tracking.failures.items()))
    console.say(f"{points} new points are in {tracking.folder} ({', '.join(to)})")


def _written(run: RunDirectory) -> Path:
    """Write the report of a run, unless it is sealed; return its path."""
    if run.seal.is_file() and run.report.is_file():
        return run.report
    from barnraise.account.account import read
    from barnraise.account.page.report_page import write_page
    from barnraise.account.report import write_report
    from barnraise.config.load import load

    write_page(run, load(run.run_file).training.tokens)
    return write_report(read(run), None)
