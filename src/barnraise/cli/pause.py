"""`barnraise pause RUN_DIR` and `barnraise continue RUN_DIR`: a rest that the host wants, and its end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnraise.cli import console

_RunDir = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run's folder.", show_default=False)]


def pause(
    run_dir: _RunDir,
    reason: Annotated[str, typer.Option(help="The reason, for nodes, readers and the ledger.")] = "",
) -> None:
    """Pause a run: no worker gets a task until `barnraise continue`. A controller that runs obeys at once.

    Workers stay connected and wait. Results of tasks that they have already are still accepted, and versions are made
    of them. The run stays paused when its controller is started again, or a standby takes over. `barnraise finish` ends
    a paused run as any other. Where no controller runs, the next one pauses.
    """
    from barnraise.assembly.pausing import pause as rest
    from barnraise.core.program import program
    from barnraise.ledger import RunDirectory

    run = RunDirectory.open(run_dir).require_real("pause")
    console.say(rest(run, reason))
    console.say(f"to continue it: {program()} continue {run.path}")


def continue_(run_dir: _RunDir) -> None:
    """Continue a run that `barnraise pause` paused. A controller that runs obeys at once.

    A run whose controller was interrupted or killed is started again by `barnraise resume`.
    """
    from barnraise.assembly.pausing import carry_on
    from barnraise.ledger import RunDirectory

    console.say(carry_on(RunDirectory.open(run_dir).require_real("continue")))
