"""The commands as Python calls: `barnraise.train`, `simulate`, `serve` and `join`.

A run file is given as its path, as a mapping of its sections, or loaded before. `say` gets the lines that a command
would print beside its result; without it a call is silent. Every error raised on purpose is a BarnraiseError
(`barnraise.core.errors`), whose message has a remedy.

In the main thread the first SIGINT or SIGTERM asks for a good end, as it does of a command, and a second one ends the
process at once; afterwards signals are handled as before. In another thread the calls leave signals alone.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from barnraise.config.load import Source, document
from barnraise.core.errors import InputError
from barnraise.core.signals import handed_back

if TYPE_CHECKING:
    from barnraise.assembly.ending import Summary
    from barnraise.assembly.simulation_report import Report
    from barnraise.ledger import RunDirectory
    from barnraise.plan.purpose import Purpose
    from barnraise.plan.resolve import Plan
    from barnraise.transport import Invite
    from barnraise.worker.options import Given, Outcome

Say = Callable[[str], None]
Result = TypeVar("Result")


def _nobody(text: str) -> None:
    """Ignore a line."""


def train(run_file: Source, *, network: str | None = None, problem: Any = None, say: Say = _nobody) -> Summary:
    """Train with a controller and local workers on this machine, to an exported model.

    For one machine, and for trials of many: `network` emulates such links between them, a preset (cellular, satellite
    ...) or 10mbit/50ms, instead of the run file's. Workers are processes that load nothing of the calling script, so it
    needs no `if __name__ == "__main__"`; with a `problem` in the script itself it does.

    `problem` is what to train instead of a language model: a subclass of `barnraise.Problem`, or an instance with
    options. The sections `model` and, where the problem makes its rows, `data` may then be left out.

    Returns a summary of the run: `run_dir`, `model_dir`, `final_loss`, and every figure in `account`. When a signal
    interrupted it (`interrupted`), it can be resumed: `barnraise resume RUN_DIR`. Raises RunFileError for an invalid
    run file, before anything is made, RunFailedError when no worker is left, StorageError when the disk fails.
    """
    from barnraise.plan.purpose import TRAIN

    plan = _verified(with_problem(run_file, problem), TRAIN, say, network)
    from barnraise.assembly.embedded import train_new
    from barnraise.assembly.voice import Voice

    return _complete(train_new(plan, Voice.of(say)))


def serve(
    run_file: Source,
    *,
    uses: int = 100,
    hours: float = 168.0,
    problem: Any = None,
    invited: Callable[[str], None] = _nobody,
    say: Say = _nobody,
) -> Summary:
    """Run the controller alone, for workers with an invite, to an exported model.

    For workers on other machines: it listens on controller.host and controller.port of the run file. `invited` gets the
    invite, good for `uses` machines and `hours`, once it listens; the line is a secret, and is in RUN_DIR/keys/invite
    too. `problem` is what to train, as in `train`: workers must have it, since code is never sent. Returns and raises
    as `train` does; AddressError when it cannot listen there.
    """
    from barnraise.plan.purpose import SERVE

    plan = _verified(with_problem(run_file, problem), SERVE, say)
    from barnraise.assembly.serving import Invitation, serve_new
    from barnraise.assembly.voice import Voice

    def hand(run: RunDirectory, invite: Invite, file: Path) -> None:
        invited(str(invite))

    return _complete(serve_new(plan, Voice.of(say), Invitation(uses, hours, hand)))


def join(
    invite: str,
    *,
    name: str = "",
    network: str | None = None,
    home: str | os.PathLike[str] | None = None,
    problem: Any = None,
    say: Say = _nobody,
    **given: Unpack[Given],
) -> Outcome:
    """Work for an invite's run until it is over.

    Needs nothing but the invite, and the class of the run's `problem` where that is neither of a package nor named by
    the environment. `name` is this machine's in the run, its host name unless given; `home` where keys and
    fetched data are kept; for trials, `network` emulates a link. The means may be `given` as for `barnraise join`:
    `device`, `threads` and the others of `worker.options.Given`.

    Returns the `reason` of the end. Raises InviteError for a refused invite, AddressError when no controller can be
    reached, RunFailedError when the worker had to stop before the run is over.
    """
    from barnraise.assembly.joining import join as work

    if problem is not None:
        from barnraise.models.problems import register

        register(problem)
    return _complete(work(invite, say, name=name, network=network, home=None if home is None else Path(home), **given))


def simulate(
    run_file: Source,
    *,
    nodes: int | None = None,
    hours: float | None = None,
    seed: int | None = None,
    real: bool = False,
    churn: bool | str = False,
    tokens_per_second: float | None = None,
    network: str | None = None,
    problem: Any = None,
    run_dir: Path | str | None = None,
    say: Say = _nobody,
) -> Report:
    """Run a simulation under virtual time, with any number of nodes: the engine of a real run on modelled machines.

    It predicts how a fleet would perform. `nodes` are the run file's workers unless given, else machines of random
    speeds around `tokens_per_second`; `hours` of virtual time count instead of the token budget, `seed` and `network`
    instead of the run file's. With `churn` nodes leave without notice and return: as preemptible GPUs do (True), as the
    fit of that name, or as that trace file. Work is only costed, so thousands of nodes take seconds; `real` trains
    tensors, and the losses are real. `problem` is what to train, as in `train`. One seed, one `ledger_hash`. A new
    folder `run_dir` gets the run file and the ledger, to look at like a run's.

    Raises RunFileError, OptionError, RunDirectoryError for a folder that is not empty, ModelError when this machine
    cannot hold the real tensors, and RunFailedError when training fails.

    >>> run_file = {
    ...     "model": {"architecture": "gpt2", "config": {"hidden_size": 64, "num_layers": 2, "num_heads": 2}},
    ...     "data": {"kind": "text", "files": ["corpus/*.txt"]},
    ...     "training": {"tokens": 1_000_000},
    ... }
    >>> report = simulate(run_file, nodes=20)
    >>> report.nodes, report.tokens >= 1_000_000, report.ledger_hash == simulate(run_file, nodes=20).ledger_hash
    (20, True, True)
    """
    from barnraise.assembly.simulation import simulate as play
    from barnraise.assembly.trial import planned
    from barnraise.plan.links import with_network

    plan, trial = planned(
        with_network(document(with_problem(run_file, problem)), network),
        nodes=nodes,
        hours=hours,
        seed=seed,
        real=real,
        churn=churn,
        tokens_per_second=tokens_per_second,
    )
    _warn(plan, say)
    if run_dir is None:
        return play(plan, trial)
    from barnraise.assembly.recorded import recorded

    with recorded(Path(run_dir), plan, trial, say=say) as watch:
        return play(plan, trial, watch)


def with_problem(run_file: Source, problem: Any) -> Source:
    """Return the run file's sections with a `problem`, a class or an instance, in the place of its model."""
    if problem is None:
        return run_file
    from barnraise.models.problems import register

    name, options = register(problem)
    content = document(run_file).content
    rows = {"data": {"kind": "rows"}} if problem.columns else {}
    return rows | content | {"model": {"problem": name, "problem_options": options}}


def _verified(run_file: Source, purpose: Purpose, say: Say, network: str | None = None) -> Plan:
    from barnraise.plan.links import with_network
    from barnraise.plan.verify import verify

    plan, _ = verify(with_network(document(run_file), network), purpose=purpose)
    _warn(plan, say)
    return plan


def _warn(plan: Plan, say: Say) -> None:
    for warning in plan.warnings:
        say(f"warning: {warning}")


def _complete(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end, in an event loop of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with handed_back():
            return asyncio.run(work)
    work.close()
    raise InputError(
        "an event loop runs in this thread already (as in a notebook), and this call would block it: call it in "
        "another thread, as in `await asyncio.to_thread(barnraise.train, 'run.yaml')`"
    )
