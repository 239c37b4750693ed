"""`barnraise simulate RUN.yaml`: the same engine under virtual time, with any number of nodes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnraise.assembly.trial import DEFAULT_NODES, planned
from barnraise.cli import console
from barnraise.config.document import read
from barnraise.core.program import program
from barnraise.core.units import bytes_text, count_text, duration_text, loss_text

if TYPE_CHECKING:
    from barnraise.assembly.simulation_report import Report


def simulate(
    run_file: Annotated[Path, typer.Argument(metavar="RUN.yaml", help="The run file.", show_default=False)],
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            min=1,
            max=1_000_000,
            help=f"How many nodes; the run file's workers, or {DEFAULT_NODES}, when not given.",
            show_default=False,
        ),
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option("--hours", help="Virtual hours, instead of the token budget.", show_default=False),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, max=2**31 - 1, help="Instead of the run file's seed.", show_default=False),
    ] = None,
    real: Annotated[bool, typer.Option("--real", help="Train with real tensors (small models).")] = False,
    churn: Annotated[bool, typer.Option("--churn", help="Nodes leave without notice and come back.")] = False,
    churn_like: Annotated[
        str | None,
        typer.Option(
            metavar="FIT|FILE",
            help="Like --churn, by a named fit or a trace: a CSV file of node, seconds, up or down.",
            show_default=False,
        ),
    ] = None,
    tokens_per_second: Annotated[
        float | None,
        typer.Option(
            "--tokens-per-second",
            help="Tokens a second of a node of speed 1 (or of median speed); by default the rate of 2 teraflops, and "
            "for a small model the rate at which a task takes half a minute.",
            show_default=False,
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(metavar="LINK", help="A preset or 10mbit/50ms, instead of the run file's.", show_default=False),
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(
            "--run-dir",
            metavar="DIR",
            help="A new folder for the run file and the ledger, to look at like a run's: status, events, report.",
            show_default=False,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Run the same engine under virtual time, with any number of nodes.

    The same state machines as in a real run, over links and machines that are modelled. Work is only costed, so
    thousands of nodes take seconds; with --real it is done, and the losses are real. With as many nodes as the run
    file has workers, the nodes are those; otherwise their speeds are drawn. The same seed gives the same ledger hash.
    A line says how far it is and how long it will take yet; where the output is piped, a new one every ten seconds.
    """
    document = read(run_file)  # before the imports: a file that cannot be read needs none of them
    from barnraise.plan.links import with_network

    plan, trial = planned(
        with_network(document, network),
        nodes=nodes,
        hours=hours,
        seed=seed,
        real=real,
        churn=churn_like or churn,
        tokens_per_second=tokens_per_second,
    )
    for warning in plan.warnings:
        console.warn(str(warning))
    from barnraise.assembly.simulation import pace_text
    from barnraise.assembly.simulation import simulate as play
    from barnraise.cli.progress import watched

    console.note(pace_text(plan, trial))
    if run_dir is None:
        result = play(plan, trial, watched)
    else:
        from barnraise.assembly.recorded import recorded

        with recorded(run_dir, plan, trial, watched, say=console.note) as watch:
            result = play(plan, trial, watch)
    if json:
        console.emit_json(result.as_dict() | ({"run_dir": str(run_dir.absolute())} if run_dir else {}))
        return
    _print(result)
    if run_dir is not None:
        console.say(f"look at it: {program()} status {run_dir}, or report {run_dir}")


def _print(result: Report) -> None:
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    for label, text in _lines(result):
        table.add_row(label, text)
    console.console().print(table)
    if result.sat is not None:
        from barnraise.cli.tables import score_tables

        for lines in score_tables(result.sat):
            console.say()
            for line in lines:
                console.console().print(line)


def _missing(result: Report) -> str:
    """Return how many nodes have nothing in the model, and why."""
    served, counted = result.dispatch.served, result.dispatch.contributors
    reasons = [
        f"{number:,} {what}"
        for number, what in (
            (result.nodes - served, "were never given a training task"),
            (served - counted, "had none accepted by the end"),
        )
        if number
    ]
    return (
        f"{result.nodes - counted:,} of {count_text(result.nodes, 'node')}: {', '.join(reasons)}; fewer nodes, more "
        "tokens or more --hours give each of them work"
    )


def _lines(result: Report) -> Iterator[tuple[str, str]]:
    from barnraise.account.facts import forecast_text, matching_text, signed

    verdicts, traffic, losses, took = result.verdicts, result.traffic, result.losses, result.duration
    speed = took.virtual_seconds / took.seconds if took.seconds > 0 else math.inf
    yield "end", f"{result.end}, after {duration_text(took.virtual_seconds)} of virtual time"
    yield "nodes", f"{result.nodes:,}, {result.utilisation:.1%} of their time in training that counts"
    if result.dispatch.contributors < result.nodes:
        yield "nothing of", _missing(result)
    yield "versions", f"{result.versions:,} from {result.tokens:,} tokens"
    rate = "-" if verdicts.acceptance_rate is None else f"{verdicts.acceptance_rate:.2%}"
    counts = f"{verdicts.accepted:,} accepted ({rate}), {verdicts.refused:,} refused, {verdicts.discarded:,} left over"
    yield "contributions", counts
    yield "signed", signed(verdicts.signed, verdicts.accepted)
    yield "staleness", f"{verdicts.staleness_mean:.1f} versions on average, {verdicts.staleness_max:,} at most"
    if verdicts.convicted:
        yield "convicted", ", ".join(verdicts.convicted)
    dispatch = result.dispatch
    yield "idle", f"{dispatch.idle:.1%} of their time without a task, {dispatch.conflicts:.1%} of tasks in conflict"
    if dispatch.matching is not None:
        yield "matching", matching_text(dispatch.matching)
    if dispatch.no_market:
        yield "matching", f"no market stands: {dispatch.no_market}"
    if dispatch.prediction_error is not None:
        told = forecast_text(dispatch.prediction_error, dispatch.predicted_within, dispatch.predictions)
        yield "forecast", told
    yield "transfer", f"up {bytes_text(traffic.bytes_up)}, down {bytes_text(traffic.bytes_down)}"
    if losses.first_loss is not None and losses.final_loss is not None:
        yield "loss", f"{loss_text(losses.first_loss)} to {loss_text(losses.final_loss)} nats a token, held out"
    for name, target in (losses.targets or {}).items():
        yield "target", f"of {name}: {target.share:.0%} of its prompts, at {target.loss:.3f} nats a token"
    if result.sat is not None:
        from barnraise.account.scores import lines

        yield "solved", "\n".join(lines(result.sat))
    fast = f"{speed:,.0f} times as fast as real time"
    yield "simulation", f"{count_text(took.events, 'event')} in {duration_text(took.seconds)} ({fast})"
    yield "ledger", result.ledger_hash
