"""`barnraise check RUN.yaml`: is this run file sound, and what would the run cost?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnraise.cli import console
from barnraise.config.aliases import canonical
from barnraise.config.document import Document, read
from barnraise.config.load import build
from barnraise.config.problems import Problem, as_rows
from barnraise.core.errors import InputError, RunFileError
from barnraise.core.program import program
from barnraise.core.units import bytes_text, count_text, duration_text

if TYPE_CHECKING:
    from barnraise.plan.estimate import Estimate
    from barnraise.plan.resolve import Plan


SHOWN_LINES, SHOWN_LETTERS = 12, 160
"""Lines, and letters of each, that are shown of the first example."""

NOBODY = (
    "no contributions: trust.scores: 0.2, or training.tasks: stateless with trust.audits: 0.05, finds nodes that do "
    "not train"
)
"""The share of audited work where strangers may join and the run file names none."""

UNREAD = "no contributions: single updates are masked, encrypted or noised"
"""The same where audits and scores would read what the run protects."""

SITES = (
    "no work of a site: no other node has its rows, so none copies, audits, scores or repeats it; `barnraise verify` "
    "checks the ledger's chain and the making of versions alone"
)
"""The share of work that others repeat, where rows stay with their owners."""


def check(
    run_file: Annotated[Path, typer.Argument(metavar="RUN.yaml", help="The run file.", show_default=False)],
    serve: Annotated[bool, typer.Option("--serve", help="Check it for `serve`: without local workers.")] = False,
    lab: Annotated[
        bool, typer.Option("--lab", help="Check it for `lab`: links, and their faults, are emulated.")
    ] = False,
    simulate: Annotated[bool, typer.Option("--simulate", help="Check it for `simulate`: all is modelled.")] = False,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Print the file with the present names of keys, and do nothing else.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Say whether a run file is sound, and what the run would cost.

    Looks at the file itself, at what cannot go together, and at what this machine has: files, port, memory, disk.
    Nothing is started or changed.

    With --upgrade it prints the same run file with the present names of keys instead of old ones and other spellings.
    Comments are kept, except in a file that refers to parts of itself (*name) or is one flow mapping.
    """
    if upgrade:
        _upgrade(run_file)
        return
    try:
        document = read(run_file)
        plan, estimate = _verify(document, {"serve": serve, "lab": lab, "simulate": simulate})
    except RunFileError as error:
        if not json:
            raise
        problems = [problem for problem in error.problems if isinstance(problem, Problem)]
        rows = as_rows(problems or [Problem((), str(error))])
        console.emit_json({"ok": False, "problems": rows, "warnings": [], "estimate": None})
        raise typer.Exit(error.exit_code) from None
    if json:
        from barnraise.plan import threats
        from barnraise.plan.curve import link_ratio

        share = estimate.sizes.trained / estimate.sizes.parameters
        found = link_ratio(plan.run_file, plan.purpose, exchanged=share)
        cost = estimate.as_dict() | {"link": found and found.as_dict()}
        privacy = threats.as_dict(plan.run_file)
        sound = {"ok": True, "problems": [], "warnings": as_rows(plan.warnings), "estimate": cost, "privacy": privacy}
        console.emit_json(sound)
        return
    for warning in plan.warnings:
        console.warn(f"{run_file}{f':{warning.line}' if warning.line else ''}: {warning}")
    console.say(f"{run_file} is sound: {plan.purpose.value}, {'a' * plan.asynchronous}synchronous")
    for label, text in [*_lines(plan, estimate), *_example(plan)]:
        console.say(f"  {label:<14} {text}")
    if renamed := len(canonical(document.content).spelled):
        told = f"{count_text(renamed, 'key')} under an old name or another spelling"
        console.say(
            f"  {'names':<14} {told}: {program()} check {run_file} --upgrade prints the file with the present ones"
        )


def _upgrade(run_file: Path) -> None:
    """Print the run file with the keys' present names."""
    from barnraise.config.upgrade import upgraded

    read(run_file)  # its errors say what to do about a file that cannot be read
    found = upgraded(run_file.read_text("utf-8-sig"), str(run_file))
    if not found.commented:
        console.warn(f"{run_file}: its comments are dropped, since it has a form in which they cannot be placed")
    console.say(found.text.removesuffix("\n"))


def _verify(document: Document, wanted: dict[str, bool]) -> tuple[Plan, Estimate]:
    """`wanted`: for which command; for none `serve` or `train`, by whether workers are listed."""
    commands = [name for name, is_wanted in wanted.items() if is_wanted]
    if len(commands) > 1:
        raise InputError(f"a file is checked for one command at a time, not for {' and '.join(commands)}")
    build(document)  # before the imports: a file that does not fit the schema needs none of them
    from barnraise.plan.purpose import Purpose
    from barnraise.plan.verify import verify

    return verify(document, purpose=Purpose(commands[0]) if commands else None)


def _looked_at(plan: Plan) -> str:
    """Which share of the work is looked at for lies; empty where none is."""
    trust, told = plan.run_file.trust, list[str]()
    if trust.audits and plan.stateless:
        told.append(f"{trust.audits:.2g} of the contributions by another node that repeats them")
    if trust.scores:
        told.append(f"{trust.scores:.2g} of the contributions by their effect on the loss of their own rows")
    return ", ".join(told)


def _readable(plan: Plan) -> bool:
    """Return whether audits and scores may read the run's updates."""
    privacy = plan.run_file.privacy
    return privacy.secure_aggregation is None and privacy.homomorphic_encryption is None and plan.private is None


def _without_controller(plan: Plan) -> str:
    """Return which acknowledged work is lost if the controller's machine or network fails."""
    controller = plan.run_file.controller
    if controller.durability == "standby":
        return (
            "nothing acknowledged is lost with the controller's machine, nor in a network cut, while a standby "
            f"follows; {controller.standby_patience:g} s after the last one acknowledgements go on without"
        )
    return (
        "without a standby the run is lost with the controller's disk; with one (barnraise invite RUN_DIR --standby) "
        "a dead machine loses contributions that were acknowledged and not copied yet, and a network cut that leaves "
        "most workers with the standby also loses those that the controller acknowledges to the other workers until "
        "the cut ends (controller.durability: standby loses nothing)"
    )


def _gated(plan: Plan) -> str:
    """Return what the loss gate does, and its cost for the controller."""
    from barnraise.aggregation.defaults import GATE_PASSES
    from barnraise.plan.dataset import longest_row

    rows = plan.run_file.trust.loss_gate or 0
    tokens = float(f"{GATE_PASSES * rows * longest_row(plan.run_file):.2g}")
    return (
        f"each version on {rows} training rows: nodes without which it does better are left out; for each version the "
        f"controller computes about as much as a worker does to train on {tokens:,.0f} tokens"
    )


def _noticed(plan: Plan) -> str:
    """After how long a node that died is missed, by the size of the fleet: heartbeats get rarer where it is large."""
    from barnraise.plan.leases import leases

    there, sizes = leases(plan), [len(plan.run_file.workers)] if plan.run_file.workers else [10, 1000, 10_000]
    told = [f"{there.intervals(size)[1]:.3g} s among {count_text(size, 'node')}" for size in sizes]
    return f"a node that dies is missed after {', '.join(told)}"


def _example(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the first example as it is trained, for data of conversations and prompts."""
    from barnraise.config.data_sections import ChatData, InstructData

    if isinstance(plan.run_file.data, ChatData | InstructData):
        from barnraise.assembly.previewing import previews
        from barnraise.cli.preview import marked, sizes_of

        for found in previews(plan.run_file, 1):
            yield "example", f"{sizes_of(found)}; learnt between \u27e6 and \u27e7:"
            for line in marked(found).splitlines()[:SHOWN_LINES]:
                yield "", line[:SHOWN_LETTERS]
            yield "", f"`{program()} data preview` shows all of it, and others"


def _lines(plan: Plan, cost: Estimate) -> Iterator[tuple[str, str]]:
    """Yield the estimated cost of the run as lines."""
    from barnraise.config.data_sections import SatData
    from barnraise.plan import threats
    from barnraise.plan.curve import link_ratio
    from barnraise.plan.overhead import overhead
    from barnraise.plan.resolve import BATCH_SIZE
    from barnraise.plan.sat import rows_text

    model = plan.run_file.model
    sizes = cost.sizes
    yield "model", f"{model.architecture or model.path or model.problem}, {sizes.parameters:,} parameters"
    if sizes.base_bytes:
        yield (
            "trained",
            f"{sizes.trained:,} values; a worker without a copy of the model (join --base FOLDER) fetches its "
            f"{bytes_text(sizes.base_bytes)} once",
        )
    if isinstance(plan.run_file.data, SatData):
        yield "data", rows_text(plan.run_file)
    size = bytes_text(cost.sizes.contribution_bytes)
    codec = "encrypted" if plan.encryption else plan.compression.name
    codec = f"masked, {plan.masking.ring.bits} bits a value" if plan.masking else codec
    yield (
        "contributions",
        f"{cost.contributions:,} of {plan.task_tokens:,} tokens, {size} each ({codec})",
    )
    yield "rule", plan.rule_text
    delta = f"{bytes_text(cost.sizes.version_bytes)} each ({plan.downlink.name})"
    if cost.versions is None:
        yield "versions", f"{delta}; how many depends on the nodes that join"
    else:
        yield "versions", f"about {cost.versions:,}, each of {count_text(cost.buffer_size or 0, 'node')}, {delta}"
    down = "a snapshot and each version for every node" if cost.bytes_down is None else bytes_text(cost.bytes_down)
    snapshot = bytes_text(cost.sizes.snapshot_bytes)
    yield "transfer", f"up {bytes_text(cost.bytes_up)}, down {down}, a snapshot is {snapshot}"
    memory = bytes_text(cost.worker_memory_bytes), bytes_text(cost.controller_memory_bytes)
    yield "memory", f"{memory[0]} each worker, {memory[1]} the controller"
    if plan.run_file.training.offload_optimizer or any(worker.device != "cpu" for worker in plan.run_file.workers):
        card = cost.accelerated
        own, main = bytes_text(card.accelerator_memory_bytes), bytes_text(card.accelerator_host_bytes)
        yield "accelerator", f"{own} of its memory with one row at a time, and {main} of the machine's"
    yield (
        "disk",
        f"at most about {bytes_text(cost.disk_bytes)}: dataset, ledger, contributions between checkpoints, model",
    )
    if cost.seconds is not None:
        yield "time", f"about {duration_text(cost.seconds)} on this machine, right to a factor of 3"
    if why := plan.reasons.get(BATCH_SIZE):
        rows = plan.run_file.training.step_rows
        yield "batch size", f"{count_text(rows, 'row')} a step (auto: {why})"
    if found := link_ratio(plan.run_file, plan.purpose, exchanged=sizes.trained / sizes.parameters):
        yield "link", str(found)
    for living in [len(plan.run_file.workers)] if plan.run_file.workers else [10, 20, 50, 100]:
        nodes = cost.buffer_size or plan.aggregation.least(living)
        odds = plan.aggregation.odds(living, nodes)
        if odds is not None:
            missed = f"; no K reaches {target:g}" if (target := plan.aggregation.belief.target or 1.0) < odds else ""
            f = plan.aggregation.withstood(nodes)
            yield "liars", f"of {living} nodes K {nodes}, f {f}: more lie with probability {odds:.2g}{missed}"
    if plan.run_file.data.kind == "site":
        yield "checked", SITES
    elif (looked_at := _looked_at(plan)) or plan.purpose.value == "serve":
        yield "checked", looked_at or (NOBODY if _readable(plan) else UNREAD)
    if plan.budget is not None:
        use = "a use is a pass over the data, or lost work that is repeated"
        yield "budget", f"at most {plan.budget}; {use if plan.budget.unit == 'row' else 'each assignment counts'}"
    yield "leases", _noticed(plan)
    if plan.purpose.value == "serve":
        yield "standby", _without_controller(plan)
    if plan.run_file.trust.loss_gate:
        yield "loss gate", _gated(plan)
    if plan.run_file.workers and (said := plan.aggregation.beside_overview(len(plan.run_file.workers))):
        yield "overview", said
    if plan.purpose.local:
        yield "workers", count_text(len(plan.run_file.workers), "local worker")
    if (spent := overhead(plan, cost)) is not None:
        yield "overhead", str(spent)
    for number, line in enumerate(threats.lines(plan.run_file)):
        yield "" if number else "privacy", line
