"""`barnraise attack privacy RUN`: what each attack learns of a member's rows under each protection."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnraise.cli import console
from barnraise.core.errors import InputError

if TYPE_CHECKING:
    from barnraise.privacy.attacks.runner import AttackResult

HEAD = "attack | protection | successes | 95% interval | control | test | p | h | score | control's score"


def privacy(
    run: Annotated[
        Path, typer.Argument(metavar="RUN.yaml|RUN_DIR", help="A run file, or a run directory.", show_default=False)
    ],
    trials: Annotated[int, typer.Option(min=1, max=1_000_000, help="Trials of each attack and protection.")] = 100,
    attacks: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Attacks, with commas between them; by default all.")
    ] = None,
    protections: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Protections, with commas between them, as NAME or NAME:VALUE:VALUE; by default the usual ones.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the table to this file, too.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Measure what attacks learn of a member's rows, under each protection.

    An attack plays trials on the run's model, data and codec, beside a control that sees nothing of the victim. The
    table has the successes with their exact interval (Clopper and Pearson), those of the control, the test of the
    difference, Cohen's h and the mean scores. A model is attacked as the run starts it. Updates are of at most 4 local
    steps on 2 rows of 16 tokens: with less data in an update, attacks succeed more.
    """
    from barnraise.privacy.attacks.catalog import ATTACKS, parse_protection

    wanted = _names(attacks) or list(ATTACKS.entries)
    protected = _names(protections)
    for name in wanted:
        ATTACKS.entry(name)
    for text in protected:
        parse_protection(text)
    if out is not None and not out.parent.is_dir():
        raise InputError(f"{out.parent} is no folder, so {out.name} cannot be written there; make it first")
    if not run.exists():
        raise InputError(f"{run} does not exist; give a run file or a run directory")
    from barnraise.assembly.privacy_attacks import attack_run
    from barnraise.config import load

    subject = run if run.is_dir() else load(run)
    found = attack_run(subject, wanted, protected, trials=trials, tell=console.note, each=_say)
    if out is not None:
        out.write_text(markdown(found), encoding="utf-8")
    if json:
        console.emit_json({"trials": trials, "results": [result.as_dict() for result in found]})
    else:
        console.say(markdown(found))


def markdown(results: list[AttackResult]) -> str:
    """Return the table of results in Markdown."""
    columns = HEAD.count("|") + 1
    return "\n".join([f"| {HEAD} |", "|" + "---|" * columns, *map(_row, results)]) + "\n"


def _row(result: AttackResult) -> str:
    attacked, control, compared = result.attacked, result.control, result.comparison
    cells = [
        result.attack,
        result.protection,
        f"{attacked.successes} of {attacked.trials}",
        f"{attacked.low:.1%} to {attacked.high:.1%}",
        f"{control.successes}",
        compared.test,
        f"{compared.p_value:.2g}",
        f"{compared.effect:.2f}",
        f"{result.mean_score:.3f}",
        f"{result.mean_control:.3f}",
    ]
    return f"| {' | '.join(cells)} |"


def _say(result: AttackResult) -> None:
    attacked = result.attacked
    console.note(f"{result.attack}, {result.protection}: {attacked.successes} of {attacked.trials}")


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]
