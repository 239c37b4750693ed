"""`barnraise report RUN_DIR --to TRACKER`: a run's figures for experiment trackers.

Reads the run, and writes the trackers' files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnraise.cli import console
from barnraise.core.errors import BarnraiseError


def report(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run's folder.", show_default=False)],
    to: Annotated[
        list[str],
        typer.Option("--to", help="tensorboard, wandb, mlflow or trackio; may be repeated.", show_default=False),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the trackers' files; RUN_DIR/tracking if not given.")
    ] = None,
) -> None:
    """Write a run's figures for TensorBoard, Weights & Biases (offline), MLflow or trackio, from its ledger.

    Works while the run does, and after it ended or crashed. Only figures that are not there yet are written.
    """
    from barnraise.account.tracking.following import Tracking
    from barnraise.ledger import RunDirectory

    tracking = Tracking(RunDirectory.open(run_dir), to, out)
    try:
        points = tracking.advance()
    finally:
        tracking.close()
    if tracking.failures:
        raise BarnraiseError("; ".join(f"{name}: {why}" for name, why in tracking.failures.items()))
    console.say(f"{points} new points are in {tracking.folder} ({', '.join(to)})")
