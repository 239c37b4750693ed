"""The report.md of a run, with pictures, for its host and later readers."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from barnraise.account import charts, nodes
from barnraise.account.account import Account, assignments
from barnraise.account.chronicle import Happening, of_note
from barnraise.account.doubts import states
from barnraise.account.facts import facts
from barnraise.account.markdown import fenced, markdown, table
from barnraise.account.metrics import Measurements, value_text
from barnraise.account.scores import EXPLAINED, as_json, headlines, judgement, shares, tables
from barnraise.core.processes import usable_cores
from barnraise.core.text import printable
from barnraise.core.units import bytes_text, count_text, duration_text

if TYPE_CHECKING:
    from barnraise.data.sat.scores import SatScores

FOLDER, LOSS, TIMELINE, SCORES = "report", "loss.png", "timeline.png", "sat.json"
MOST_ROWS = 60
"""Rows of a table in the report; the ledger has them all."""


def write_report(account: Account, scores: SatScores | None) -> Path:
    """Write report.md, its pictures and the scores on formulas in the run directory.

    Raises StorageError; needs no torch.
    """
    run = account.run
    folder = run.path / FOLDER
    if _measures(account):
        charts.loss_chart(folder / LOSS, account.losses, account.happenings)
    charts.timeline_chart(folder / TIMELINE, assignments(run), account.happenings, account.end)
    if scores is not None:
        run.write(folder / SCORES, json.dumps(as_json(scores), indent=1).encode())
    text = "\n".join(_lines(account, scores)) + "\n"
    run.write(run.report, text.encode())
    return run.report


def _lines(account: Account, scores: SatScores | None) -> Iterator[str]:
    yield f"# {markdown(account.run.path.name)}"
    yield ""
    yield f"{_sentence(account)} Every figure here is read from `ledger.sqlite`."
    yield ""
    yield from table(("", ""), facts(account))
    if _measures(account):
        yield from _losses(account)
    yield from _measured(account.measurements)
    if scores is not None:
        yield from _section("Held-out formulas")
        yield from _solved(scores)
    yield from _section("Workers")
    yield f"![Timeline of each worker's work]({FOLDER}/{TIMELINE})"
    yield ""
    yield from _workers(account)
    if account.refusals:
        yield from _section("Refusals")
        rows = [(f"{count:,}", reason) for reason, count in account.refusals.items()]
        yield from table(("contributions", "reason"), rows[:MOST_ROWS])
    yield from _section("Events of note")
    yield from _events(of_note(account.happenings))
    yield from _section("Machine")
    yield from table(("", ""), _machine())
    yield from _section("Run file")
    yield from fenced(account.run.run_file.read_text("utf-8", "replace").rstrip(), "yaml")


def _measures(account: Account) -> bool:
    """Return whether the run measures a loss: a simulation of costs alone has none."""
    return account.simulation is None or account.simulation.real


def _losses(account: Account) -> Iterator[str]:
    yield from _section("Loss")
    yield f"![Held-out loss against tokens and against time]({FOLDER}/{LOSS})"
    yield ""
    by_workers = any(point.owners for point in account.losses)
    header = ("version", "tokens", "seconds", "loss", *(("measured by",) if by_workers else ()))
    measured = [
        (f"{p.version}", f"{p.tokens:,}", f"{p.seconds:.1f}", f"{p.loss:.4f}", _measurer(p.owners))[: len(header)]
        for p in account.losses
    ]
    yield from table(header, _thinned(measured), right=len(header))


def _measured(found: Measurements) -> Iterator[str]:
    """Yield the values of each version by metric, and the first and the newest samples."""
    if names := found.names:
        yield from _section("Metrics")
        rows = [
            (f"{version}", *(value_text(values[name]) if name in values else "" for name in names))
            for version, values in found.values.items()
        ]
        yield from table(("version", *map(markdown, names)), _thinned(rows), right=1 + len(names))
    if found.newest is not None:
        yield from _section("Samples")
        yield "Greedy completions of the same prompts."
        for which in (found.newest, found.first):
            if which is not None and (which is found.newest or which.version != found.newest.version):
                yield ""
                yield f"Version {which.version}:"
                for sample in which.samples:
                    yield ""
                    yield from fenced(f"{sample.prompt}\n-> {sample.text}")


def _measurer(owners: int) -> str:
    return count_text(owners, "owner") if owners else "the controller"


def _sentence(account: Account) -> str:
    run = "The run" if account.simulation is None else "The run is simulated. It"
    if account.finished:
        return f"{run} is finished: {markdown(account.finished)}."
    return f"{run} is not finished."


def _section(title: str) -> Iterator[str]:
    yield ""
    yield f"## {title}"
    yield ""


def _workers(account: Account) -> Iterator[str]:
    rows = nodes.recorded(
        account.nodes, running=False, finished=bool(account.finished), doubts=states(account.dispatch.doubts)
    )
    shown = nodes.in_order_of_interest(rows, MOST_ROWS)
    totals = {node.node: node for node in account.nodes}
    header = (
        "worker", "device", "at the end", "tokens", "share", "tokens/s", "speed", "staleness mean", "max",
        "accepted", "refused", "left over", "lost", "sent",
    )  # fmt: skip
    yield from table(
        header,
        [
            (
                row.name, row.device, row.state, f"{row.tokens:,}", f"{row.share:.1%}", f"{row.rate:,.0f}",
                f"{row.speed:.2f}x", f"{totals[row.name].mean_staleness:.1f}", f"{totals[row.name].max_staleness}",
                f"{row.accepted:,}", f"{row.refused:,}", f"{totals[row.name].outcomes.discarded:,}",
                f"{row.lost or 0:,}", bytes_text(totals[row.name].num_bytes),
            )
            for row in shown
        ],
        right=11,
    )  # fmt: skip
    if len(shown) < len(rows):
        yield f"\n{len(rows) - len(shown):,} more workers are in the ledger."
    yield ""
    yield (
        "Tokens a second count the seconds of work that a worker reports; speed is this rate divided by the median. "
        "Staleness is in versions. Lost is work that the controller took back because the worker left or dropped it; "
        "other workers repeated it."
    )


def _solved(scores: SatScores) -> Iterator[str]:
    for which, tally, skill in headlines(scores):
        yield f"On {which}:"
        yield ""
        yield from table(("share", ""), shares(tally, scores.draws), right=1)
        yield ""
        yield judgement(tally, skill)
        yield ""
    for header, rows in tables(scores):
        yield from table(header, rows, right=len(header) - 1)
        yield ""
    yield EXPLAINED
    yield ""
    yield "One of these formulas, and the whole answer of the model:"
    yield ""
    yield from fenced(scores.example)


def _events(happenings: Sequence[Happening]) -> Iterator[str]:
    if not happenings:
        yield "None."
        return
    half = MOST_ROWS // 2
    left_out = len(happenings) - MOST_ROWS
    shown = list(happenings) if left_out <= 0 else [*happenings[:half], *happenings[-half:]]
    yield from table(("at", "what"), [(duration_text(item.time), item.text) for item in shown])
    if left_out > 0:
        yield f"\n{left_out:,} more between the first {half} and the last {half} are in the ledger."


def _machine() -> Iterator[tuple[str, str]]:
    """Yield facts of the controller's machine; workers' are in their table."""
    import psutil

    yield "system", f"{platform.system()} {platform.release()}, {platform.machine()}"
    yield "processor", f"{_processor()}, {count_text(usable_cores(), 'core')}"
    yield "memory", bytes_text(psutil.virtual_memory().total)
    yield "python", platform.python_version()
    for name in ("barnraise", "torch", "transformers"):
        yield name, metadata.version(name)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    named = next((line.split(":", 1)[1] for line in lines if line.startswith("model name")), platform.processor())
    return printable(named) or "unknown"


def _thinned(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return at most MOST_ROWS of the rows, evenly chosen, the first and the last among them."""
    if len(rows) <= MOST_ROWS:
        return list(rows)
    return [rows[round(index * (len(rows) - 1) / (MOST_ROWS - 1))] for index in range(MOST_ROWS)]
