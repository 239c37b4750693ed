"""`barnraise attack MATRIX.yaml`: which rule withstands which attack, measured by simulations that train.

`barnraise attack privacy RUN` measures what attacks learn of a member's rows.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from barnraise.cli import console
from barnraise.cli.attack_privacy import privacy
from barnraise.config.document import read
from barnraise.core.units import count_text, duration_text

if TYPE_CHECKING:
    from barnraise.assembly.trials import MatrixProgress


MATRIX = "matrix"
"""The command that is meant where an argument names none: `attack FILE` is `attack matrix FILE`."""


class AttackGroup(TyperGroup):
    """A group of commands of which one is meant unless another is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the usual command in front of arguments that begin with no command's name."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [MATRIX, *args]
        return super().parse_args(ctx, args)


attack = typer.Typer(
    cls=AttackGroup,
    add_completion=False,
    no_args_is_help=True,
    help="Find out which aggregation rule withstands which attack (`attack MATRIX.yaml`), and what updates show of "
    "rows (`attack privacy RUN`).",
)


@attack.command(MATRIX)
def matrix(
    matrix_file: Annotated[Path, typer.Argument(metavar="MATRIX.yaml", help="The matrix file.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The folder of the results; by default the file's name without its ending.",
            show_default=False,
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="Runs at a time; by default as many as cores.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Find out which aggregation rule withstands which attack.

    Each combination of the matrix file's lists is a simulation that trains, beside runs of the same seeds without the
    liars. DIR holds the result of each run (so an interrupted matrix continues), a table, a heat map and the verdicts.
    """
    document = read(matrix_file)
    from barnraise.plan.matrix import planned

    plan = planned(document)
    from barnraise.account.trials import markdown
    from barnraise.assembly.trials import play_matrix

    folder = out or matrix_file.with_suffix("")
    runs = len({cell.key for cell in plan.cells})
    console.note(f"{count_text(runs, 'run')} into {folder}")
    try:
        verdicts = play_matrix(plan, folder, processes or os.cpu_count() or 1, _say)
    except KeyboardInterrupt:
        console.note(f"interrupted; {folder} keeps the results so far, and the same command continues")
        raise
    if json:
        console.emit_json({"folder": str(folder), "verdicts": [verdict.as_dict() for verdict in verdicts]})
    else:
        console.say(markdown(verdicts))


def _say(progress: MatrixProgress) -> None:
    cell, found = progress.cell, progress.found
    loss = "no model" if found.loss is None else f"{found.loss:.3f}"
    what = f"{cell.rule}, {cell.attack}, seed {cell.seed}, {cell.setting}"
    console.note(f"{progress.done}/{progress.runs}  {what}: {loss} after {duration_text(found.took)}")


attack.command("privacy")(privacy)
