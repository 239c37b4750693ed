"""`barnraise forecast RUN_DIR`: when a run ends, and what changes if nodes join or leave, or settings change.

Reads, never writes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnraise.cli import console

if TYPE_CHECKING:
    from rich.text import Text

    from barnraise.assembly.forecasting import Forecast
    from barnraise.assembly.run_forecast import Compared, RunForecast
    from barnraise.assembly.what_if import WhatIf

MOST_STEPS = 1_000_000


def forecast(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run's folder.", show_default=False)],
    join: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT[:N]",
            help="What if machines join: phone, laptop, desktop, server, a node of the run to be like, or "
            "TOKENS_PER_SECOND@LINK. May be given more than once.",
            show_default=False,
        ),
    ] = None,
    leave: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", help="What if a node leaves. May be given more than once.", show_default=False),
    ] = None,
    local_steps: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_STEPS, help="What if tasks have this number of local steps.", show_default=False),
    ] = None,
    density: Annotated[
        float | None,
        typer.Option(help="What if contributions send this share of their values (0 to 1).", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Say when a run ends, with an interval that holds the end in 80% of cases, and what would change that.

    The simulator plays the rest of the run several times, with the speeds, links, departures and returns that the
    ledger shows. Works while the run does, and of an interrupted run as if it continued now. Without options some usual
    changes are compared; with options all of them are one change. A change of settings may also change what the model
    learns, of which a forecast says nothing.
    """
    from barnraise.assembly.run_forecast import of_run
    from barnraise.ledger import RunDirectory

    run = RunDirectory.open(run_dir).require_real("forecast")
    found = of_run(run)
    asked = _asked(found, join or [], leave or [], local_steps, density)
    unchanged = found.unchanged
    compared = [found.compare(change) for change in (asked or found.standard())] if asked or not found.problem else []
    if found.problem:
        console.warn(f"the simulator was not used, and no change is compared: {found.problem}")
    if json:
        console.emit_json({"run_dir": str(run.path), **unchanged.as_json(), "changes": [c.as_json() for c in compared]})
        return
    condition = "" if run.holder() is not None else ", if it is resumed now"
    if found.found.resting is not None:
        condition = ", if the host continues it now"
    console.show(_lines(run.path.name, unchanged, compared, condition))


def _asked(
    found: RunForecast, join: Sequence[str], leave: Sequence[str], steps: int | None, density: float | None
) -> list[WhatIf]:
    """Return the one change that the options describe, if any."""
    from barnraise.assembly.what_if import WhatIf, density_change, steps_change
    from barnraise.core.errors import OptionError
    from barnraise.core.text import printable

    if density is not None and not 0.0 < density <= 1.0:
        raise OptionError(f"--density {density:g}: a share is above 0 and at most 1")
    joining = tuple(found.joining(text) for text in join)
    leaving = tuple(dict.fromkeys(found.leaving(name) for name in leave))
    settings = [steps_change(steps)] if steps is not None else []
    settings += [density_change(density)] if density is not None else []
    labels = [f"{one.count} {printable(one.what, 40)} join{'s' * (one.count == 1)}" for one in joining]
    labels += [f"{printable(name, 40)} leaves" for name in leaving]
    labels += [change.label for change in settings]
    keys = {key: value for change in settings for key, value in change.keys.items()}
    return [WhatIf(", ".join(labels), joining, leaving, keys)] if labels else []


def _lines(name: str, found: Forecast, compared: Sequence[Compared], condition: str) -> list[Text]:
    from rich.text import Text

    from barnraise.cli.columns import columns
    from barnraise.cli.status import ends_text
    from barnraise.core.text import printable
    from barnraise.core.units import count_text

    done = found.tokens / found.budget
    head = (
        f"{done:.1%} of {found.budget:,} tokens, {count_text(found.present, 'worker')} present, "
        f"{found.rate:,.0f} tokens/s so far"
    )
    when = f", {_clock(found.left)}" if not condition and found.left < math.inf else ""
    lines = [
        Text.assemble((printable(name), "bold"), "  ", head),
        Text.assemble(("ends ", "dim"), ends_text(found), when, condition),
    ]
    basis = f"from {count_text(found.contributions, 'contribution')}"
    if found.simulated is not None:
        basis += f"; the simulator with the same nodes is {found.simulated:.2f} times as fast as the run was"
    lines.append(Text(f"     {basis}", "dim"))
    if compared:
        rows = [["what if", "change", "ends"]]
        rows += [[printable(one.change.label), _later(one.seconds), ends_text(one.forecast)] for one in compared]
        lines += [Text(), *columns(rows, "<><")]
    return lines


def _later(seconds: float) -> str:
    from barnraise.core.units import duration_text

    if not math.isfinite(seconds):
        return "-"
    if abs(seconds) < 0.5:
        return "as soon"
    return f"{duration_text(abs(seconds))} {'later' if seconds > 0 else 'sooner'}"


def _clock(seconds: float) -> str:
    """Return the time of day, with the date unless it is today."""
    there = time.localtime(time.time() + seconds)
    today = there[:3] == time.localtime()[:3]
    return time.strftime("at %H:%M" if today else "on %Y-%m-%d at %H:%M", there)
