"""From a plan to a simulated run: its fleet, its work, its controller."""

from __future__ import annotations

import hashlib
import math
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from barnraise.cli import sat_summary
from barnraise.cli.engine_settings import engine_settings
from barnraise.config.schema import MAX_COUNT, Worker
from barnraise.controller.machine import Controller
from barnraise.controller.settings import EngineSettings
from barnraise.core.errors import RunFailedError
from barnraise.core.types import Blob
from barnraise.data.ranges import RowIndex
from barnraise.emulation.costs import Costs
from barnraise.emulation.fleet import Fault, Machine, lognormal_fleet
from barnraise.emulation.report import Report, report
from barnraise.emulation.simulator import Simulator
from barnraise.emulation.work import CostModel, Work
from barnraise.plan.dataset import vocabulary
from barnraise.plan.estimate import Estimate, estimate
from barnraise.plan.links import controller_link, link_of
from barnraise.plan.resolve import Plan
from barnraise.plan.surroundings import training_rows
from barnraise.transport.presets import parse

if TYPE_CHECKING:
    from barnraise.emulation.real_work import RealWork

NOMINAL_FLOPS = 2e12
"""Floating-point operations a second that a machine of speed 1.0 sustains: a good laptop's GPU."""

CONTROLLER_LINK = "1gbit"
"""The controller's own line in a simulation whose run file names none."""

OVERHEAD_PARAMETERS = 10_000_000
"""A small model keeps no machine busy: it trains as if it had this many parameters more."""

NOMINAL_TOKENS = 1_000_000_000
"""Size of a dataset whose files are not there."""

SHARD_BYTES = 32 << 20
MANIFEST_BYTES = 4096


@dataclass(frozen=True)
class Trial:
    """What to simulate: `nodes` machines around `tokens_per_second` (None: what `NOMINAL_FLOPS` makes of the model).

    `hours` of virtual time instead of the token budget; with `churn` machines leave and come back; `real` tensors.
    A `fleet` counts instead of one that is drawn. With `skipped` the run begins after that share of the rows, which
    come last: another order of the same ones.
    """

    nodes: int
    hours: float | None = None
    seed: int = 0
    real: bool = False
    churn: bool = False
    tokens_per_second: float | None = None
    fleet: Sequence[Machine] | None = None
    skipped: float = 0.0


Watch = Callable[[Simulator], AbstractContextManager[object]]


def _nobody(simulator: Simulator) -> AbstractContextManager[object]:
    return nullcontext()


def simulate(plan: Plan, trial: Trial, watch: Watch = _nobody) -> Report:
    """Play the run of `plan`, `watch` around it; RunFailedError when its training comes to nothing.

    Imports torch, and makes the dataset in a temporary folder, for real tensors alone.
    """
    cost = estimate(plan)
    rate = trial.tokens_per_second or nominal_rate(cost.parameters)
    fleet = trial.fleet if trial.fleet is not None else make_fleet(plan, trial.nodes, rate, trial.seed)
    workshop: AbstractContextManager[tuple[EngineSettings, Work, str]]
    workshop = _real(plan, trial.skipped) if trial.real else nullcontext(_costed(plan, cost))
    with workshop as (settings, work, digest):
        if trial.hours is not None:
            settings = replace(settings, tokens=MAX_COUNT)
        faults = [_fault(plan, fault.at, fault.kill, fault.join, rate) for fault in plan.run_file.faults]
        controller = Controller(settings)
        line = controller_link(plan.run_file) or parse(CONTROLLER_LINK)
        access = line.throughput(line.up), line.throughput(line.down)
        simulator = Simulator(controller, fleet, work, seed=trial.seed, access=access, churn=trial.churn, faults=faults)
        began = time.monotonic()
        with watch(simulator):
            simulator.run(digest, math.inf if trial.hours is None else trial.hours * 3600)
        seconds = time.monotonic() - began
        if simulator.failed:
            raise RunFailedError(simulator.end)
        if not trial.real:
            return report(simulator, seconds)
        real = cast("RealWork", work)
        losses = controller.state.evaluations[0][1], real.evaluate()
        model = real.evaluator.model_of(real.server.average)
        sat = sat_summary.solve(model, real.dataset) if plan.run_file.data.kind == "sat" else None
        return report(simulator, seconds, losses=losses, sat=sat)


def nominal_rate(num_parameters: int) -> float:
    """Tokens a second of a machine of speed 1.0: six operations a parameter and token."""
    return NOMINAL_FLOPS / (6 * (num_parameters + OVERHEAD_PARAMETERS))


def make_fleet(plan: Plan, nodes: int, rate: float, seed: int) -> list[Machine]:
    """The run file's workers when there are as many; else machines of random speeds, the first with their names."""
    workers = plan.run_file.workers
    if len(workers) == nodes:
        return [_machine(plan, worker, rate, index) for index, worker in enumerate(workers)]
    names = [worker.name for worker in workers]
    rng = random.Random(f"fleet {seed}")
    return lognormal_fleet(nodes, rate, cache(partial(link_of, plan.run_file)), rng, names=names)


def _machine(plan: Plan, worker: Worker, rate: float, index: int) -> Machine:
    band = worker.bandwidth_bytes_per_second
    connection = link_of(plan.run_file, index, worker).changed(up=band, down=band, delay=worker.latency_seconds)
    if worker.flops_per_second is not None:
        rate = rate * worker.flops_per_second / NOMINAL_FLOPS
    else:
        rate = rate * worker.speed
    return Machine(worker.name, rate, connection, worker.memory_bytes or 16 << 30)


def _fault(plan: Plan, at: float, kill: str | None, join: Worker | None, rate: float) -> Fault:
    newest = len(plan.run_file.workers)
    return Fault(at, kill or "", _machine(plan, join, rate, newest) if join else None)


def _costed(plan: Plan, cost: Estimate) -> tuple[EngineSettings, Work, str]:
    """Sizes alone: no data is made, no torch imported."""
    rows = training_rows(plan.run_file) or max(1, NOMINAL_TOKENS // plan.run_file.data.context)
    row_bytes = plan.run_file.data.context * (2 if vocabulary(plan.run_file).size <= 1 << 16 else 4)
    a_shard = max(1, SHARD_BYTES // row_bytes)
    shards = [min(a_shard, rows - start) for start in range(0, rows, a_shard)]
    settings = engine_settings(
        plan,
        run_name=plan.run_file.run.name,
        manifest=Blob("c" * 64, MANIFEST_BYTES),
        num_parameters=cost.parameters,
        rows=RowIndex(shards),
    )
    work: Work = CostModel(
        payload_bytes=settings.rungs,
        span=max(part.stop - part.start for part in settings.partitions[0]),
        delta_bytes=settings.update_bytes,
        shard_bytes=[count * row_bytes for count in shards],
        costs=_costs(plan, cost.parameters),
    )
    return settings, work, "e" * 64


def _costs(plan: Plan, num_parameters: int) -> Costs:
    controller = plan.run_file.controller
    return Costs(
        num_parameters,
        plan.compression.name,
        plan.downlink.name,
        robust=list(plan.aggregation.names) != ["mean"],
        evaluation_tokens=controller.evaluation_rows * plan.run_file.data.context,
        threads=controller.threads,
    )


@contextmanager
def _real(plan: Plan, skipped: float) -> Iterator[tuple[EngineSettings, Work, str]]:
    """Dataset, model and parameter server, in a temporary folder."""
    import torch

    from barnraise import aggregation, compression, training
    from barnraise.cli.hosting import make_dataset
    from barnraise.controller.blobs import BlobStore
    from barnraise.controller.evaluator import Evaluator
    from barnraise.controller.parameter_server import ParameterServer
    from barnraise.data.shards import Dataset
    from barnraise.emulation.real_work import RealWork
    from barnraise.models import build, config
    from barnraise.training.local import LocalTrainer
    from barnraise.wire.manifest import Manifest

    run_file = plan.run_file
    torch.set_num_threads(run_file.controller.threads)
    with tempfile.TemporaryDirectory(prefix="barnraise-") as folder, _without_subnormals():
        make_dataset(plan, Path(folder) / "data")
        dataset = Dataset.open(Path(folder) / "data")
        meta, section = dataset.meta, run_file.model.model_dump(exclude_none=True)
        resolved = config.describe(
            section, meta.vocab_size, meta.context, bos_id=meta.bos_id, eos_id=meta.eos_id, pad_id=meta.pad_id
        )
        module = build.create(section, resolved, run_file.run.seed)
        info = dataset.files()[0]
        num_parameters = sum(parameter.numel() for parameter in module.parameters())
        manifest = Manifest(resolved, Blob(info.sha256, info.bytes), num_parameters).encode()
        blob = Blob(hashlib.sha256(manifest).hexdigest(), len(manifest))
        rows = RowIndex([shard.rows for shard in meta.shards], int(skipped * dataset.num_rows))
        settings = engine_settings(
            plan, run_name=run_file.run.name, manifest=blob, num_parameters=num_parameters, rows=rows
        )
        trainer = LocalTrainer(
            module,
            optimizer=plan.inner.name,
            options=plan.inner.options,
            gradient_clip=run_file.training.gradient_clip,
            proximal=run_file.training.proximal,
            precision=run_file.training.precision,
        )
        codecs = [*plan.contributions, *([plan.last_compression] if plan.last_compression else [])]
        server = ParameterServer(
            trainer.flat.vector.clone(),
            0,
            rule=aggregation.create(plan.aggregation.names, **plan.aggregation.options),
            codecs=[compression.create(choice.name, **choice.options) for choice in codecs],
            downlink=compression.create(plan.downlink.name, **plan.downlink.options),
            outer=training.create(plan.outer.name, **plan.outer.options),
            alike=plan.run_file.training.normalize_steps,
            average=run_file.training.average,
            threads=run_file.controller.threads,
        )
        blobs = BlobStore(dataset, blob.digest, manifest)
        blobs.publish(server.parameters, server.digest)
        evaluator = Evaluator(resolved, dataset, run_file.controller.evaluation_rows)
        costs = _costs(plan, num_parameters)
        work = RealWork(settings.worker, server, blobs, evaluator, dataset, trainer, costs)
        yield settings, work, server.digest


@contextmanager
def _without_subnormals() -> Iterator[None]:
    """Flushed to zero, as workers do; the process that simulates may have other things to compute afterwards."""
    import torch

    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
