"""From a plan to a simulated run: its fleet, its work, its controller."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast

from barnraise.account.market import expected
from barnraise.assembly import solving
from barnraise.assembly.simulated_work import SimulatedWork, costed, real
from barnraise.assembly.simulation_report import Readings, Report, report
from barnraise.assembly.trial import Trial
from barnraise.config.trial_sections import WorkerSection
from barnraise.config.values import MAX_COUNT
from barnraise.controller.machine import Controller
from barnraise.core.errors import RunFailedError
from barnraise.core.units import count_text, duration_text
from barnraise.emulation.churn import DEFAULT, MakeChurn, churn_of
from barnraise.emulation.fleet import USUAL_MEMORY, Machine, lognormal_fleet
from barnraise.emulation.simulator import Simulator
from barnraise.faults.simulation import FaultySimulator
from barnraise.models import memory
from barnraise.plan.attacks import attacks_of
from barnraise.plan.estimate import estimate
from barnraise.plan.links import controller_link, link_of
from barnraise.plan.resolve import Plan
from barnraise.transport.links.presets import parse

if TYPE_CHECKING:
    from barnraise.emulation.attacks.base import Target
    from barnraise.emulation.real_work import RealControllerWork
    from barnraise.worker.task_executor import MakeExecutor

NOMINAL_FLOPS = 2e12
"""Floating-point operations a second that a machine of speed 1.0 sustains: a good laptop's GPU."""

CONTROLLER_LINK = "1gbit"
"""The controller's own line in a simulation whose run file names none."""

OVERHEAD_PARAMETERS = 10_000_000
"""A small model does not use a machine fully: it trains as if it had this many parameters more."""

TASK_SECONDS = 30.0
"""Seconds that a task takes a node of speed 1 at least, where the pace is not given. At 2 teraflops a task of a small
model takes a moment, and a virtual day of a thousand nodes would be hundreds of millions of them."""

Watch = Callable[[Simulator], AbstractContextManager[object]]


def unwatched(simulator: Simulator) -> AbstractContextManager[object]:
    """Run a simulation without anything beside it."""
    return nullcontext()


def simulate(
    plan: Plan,
    trial: Trial,
    watch: Watch = unwatched,
    executors: Mapping[str, MakeExecutor] = {},
    aims: Mapping[str, Mapping[str, Any]] | None = None,
) -> Report:
    """Simulate the run of `plan`, with `watch` around it; RunFailedError when its training fails.

    Imports torch, and makes the dataset in a temporary folder, for real tensors alone. With these, `executors` make the
    executors of the nodes that they name, and the report says how near the model is to the targets of `aims`, the
    sections of attacks by name (None: those of the plan's workers).
    """
    cost = estimate(plan)
    rate = trial.tokens_per_second or default_rate(plan, cost.sizes.parameters)
    fleet = trial.fleet if trial.fleet is not None else make_fleet(plan, trial.nodes, rate, trial.seed)
    workshop: AbstractContextManager[SimulatedWork]
    workshop = real(plan, trial, executors) if trial.real else nullcontext(costed(plan, cost, trial.flops))
    with workshop as (settings, work, node_work, digest):
        if trial.hours is not None:
            settings = replace(settings, tokens=MAX_COUNT)
        memory.require_room(settings.tasks.needs.memory, {machine.name: machine.memory_bytes for machine in fleet})
        line = controller_link(plan.run_file) or parse(CONTROLLER_LINK)
        access = line.throughput(line.up), line.throughput(line.down)
        options: dict[str, Any] = {
            "seed": trial.seed,
            "access": access,
            "churn": _churn(plan, trial, fleet),
        }
        readings = Readings()
        options["observers"] = [readings.observe]
        parts = Controller(settings), fleet, work, node_work
        simulator = (
            FaultySimulator(*parts, faults=plan.faults, machine_of=partial(_joining, plan, rate), **options)
            if plan.faults
            else Simulator(*parts, **options)
        )
        began = time.monotonic()
        with watch(simulator):
            simulator.run(digest, math.inf if trial.hours is None else trial.hours * 3600)
        seconds = time.monotonic() - began
        if simulator.failed:
            raise RunFailedError(simulator.end)
        tasks = simulator.controller.settings.tasks
        market = expected(
            plan.scheduler.name, tasks.rows.sizes, tasks.local_steps * tasks.batch_size, ordered=tasks.rows.ordered
        )
        if not trial.real:
            return report(simulator, readings, seconds, market=market)
        done = cast("RealControllerWork", work)
        evaluator = done.tensors.evaluator
        model = evaluator.model_of(done.server.average)
        losses = simulator.controller.state.record.evaluations[0][1], evaluator.loss(model)
        sat = solving.solve(model, done.dataset, plan.run_file) if plan.run_file.data.kind == "sat" else None
        wanted = {name: attack for _, name, attack in attacks_of(plan.run_file)} if aims is None else aims
        targets = _targets(wanted, model, done) or None
        return report(simulator, readings, seconds, market=market, losses=losses, targets=targets, sat=sat)


def _targets(aims: Mapping[str, Mapping[str, Any]], model: Any, done: RealControllerWork) -> dict[str, Target]:
    """Return how near `model` is to the targets of attacks of these sections."""
    from barnraise.emulation.attacks.catalog import create

    found = {}
    for name, section in aims.items():
        attack = create(section)
        attack.meet(done.dataset)
        if (target := attack.target(model, done.dataset)) is not None:
            found[name] = target
    return found


def nominal_rate(model_size: int) -> float:
    """Return the tokens a second of a machine of speed 1.0: six operations a parameter and token."""
    return NOMINAL_FLOPS / (6 * (model_size + OVERHEAD_PARAMETERS))


def default_rate(plan: Plan, model_size: int) -> float:
    """Return the default tokens a second of a machine of speed 1.0.

    Fewer for a small model, whose tasks would be over in a moment, unless the run file gives machines' operations a
    second.
    """
    if any(worker.flops_per_second is not None for worker in plan.run_file.workers):
        return nominal_rate(model_size)
    return min(nominal_rate(model_size), plan.task_tokens / TASK_SECONDS)


def pace_text(plan: Plan, trial: Trial) -> str:
    """Describe how fast machines are, and why."""
    rate = trial.tokens_per_second or default_rate(plan, estimate(plan).sizes.parameters)
    chosen = "as given" if trial.tokens_per_second else "--tokens-per-second sets another pace"
    seconds = duration_text(plan.task_tokens / rate)
    return (
        f"simulating {count_text(trial.nodes, 'node')}; one of speed 1 trains on {rate:,.4g} tokens a second "
        f"({chosen}): a task of {plan.task_tokens:,} tokens takes it {seconds}"
    )


def make_fleet(plan: Plan, nodes: int, rate: float, seed: int) -> list[Machine]:
    """Return the run file's workers if as many; else machines of random speeds, the first with their names."""
    workers = plan.run_file.workers
    if len(workers) == nodes:
        return [_machine(plan, worker, rate, index) for index, worker in enumerate(workers)]
    names = [worker.name for worker in workers]
    rng = random.Random(f"fleet {seed}")
    return lognormal_fleet(nodes, rate, cache(partial(link_of, plan.run_file)), rng, names=names)


def _machine(plan: Plan, worker: WorkerSection, rate: float, index: int) -> Machine:
    band = worker.bandwidth_bytes_per_second
    connection = link_of(plan.run_file, index, worker).changed(up=band, down=band, delay=worker.latency_seconds)
    if worker.flops_per_second is not None:
        rate = rate * worker.flops_per_second / NOMINAL_FLOPS
    else:
        rate = rate * worker.speed
    return Machine(worker.name, rate, connection, worker.memory_bytes or USUAL_MEMORY)


def _churn(plan: Plan, trial: Trial, fleet: Sequence[Machine]) -> MakeChurn | None:
    joining = [section.join.name for section in plan.run_file.faults if section.join is not None]
    names = [*(machine.name for machine in fleet), *joining]
    return churn_of(DEFAULT if trial.churn is True else trial.churn, names) if trial.churn else None


def _joining(plan: Plan, rate: float, worker: WorkerSection) -> Machine:
    """Return the machine of a worker that a fault adds."""
    return _machine(plan, worker, rate, len(plan.run_file.workers))
