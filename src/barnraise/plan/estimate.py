"""Estimates of a run's cost: parameters, memory, bytes, time.

Arithmetic on the model's config; nothing is built. Sizes are exact up to headers; the number of versions assumes that
workers run at the speeds the file gives; time assumes that training is as fast as
`plan/speed.py` says, and is right to a factor of 3.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from barnraise import staleness
from barnraise.config.schema import RunFile
from barnraise.config.trial_sections import WorkerSection
from barnraise.ledger.segments import SEGMENT_BYTES
from barnraise.models import config, memory
from barnraise.models.exchange.catalog import FULL
from barnraise.models.exchange.record import Exchange
from barnraise.models.weights import files_in
from barnraise.plan.data_files import dataset_bytes
from barnraise.plan.dataset import longest_row, row_lengths, vocabulary
from barnraise.plan.exchange import exchange_name
from barnraise.plan.metrics import wanted_of
from barnraise.plan.resolve import Plan, payload_bytes
from barnraise.plan.speed import cpu_flops
from barnraise.staleness.buffer import OVERLAPPING, least_buffer
from barnraise.training.catalog import CATALOG as OUTER
from barnraise.training.catalog import INNER

OPENED = 5
"""Memory of an opened payload over its bytes."""


SNAPSHOTS = 2
"""Snapshots of older versions that nodes may be fetching: as many as the controller keeps whatever their size."""


LEAST_GROWTH = 32 << 20
"""Bytes of payloads that arrive before a checkpoint is taken early, at least; else as many as four checkpoints."""

LEDGER_BYTES = 1500
"""Approximate growth of the ledger for a contribution: its rows in all tables and indices."""


@dataclass(frozen=True)
class Sizes:
    """The number of the model's parameters, of those that are trained, and the bytes of what travels.

    `base_bytes` are those of the frozen parts, which a worker fetches once; 0 where the whole model is trained.
    """

    parameters: int
    trained: int
    base_bytes: int
    snapshot_bytes: int
    contribution_bytes: int
    version_bytes: int


@dataclass(frozen=True)
class Accelerated:
    """The bytes that a worker needs of an accelerator's memory with one row at a time, and of main memory.

    An optimizer that is offloaded counts in main memory.
    """

    accelerator_memory_bytes: int
    accelerator_host_bytes: int


@dataclass(frozen=True)
class Estimate:
    """Bytes, counts and seconds of a whole run.

    None where the run file does not determine them.
    """

    sizes: Sizes
    accelerated: Accelerated
    contributions: int
    buffer_size: int | None
    versions: int | None
    bytes_up: int
    bytes_down: int | None
    worker_memory_bytes: int
    controller_memory_bytes: int
    disk_bytes: int
    disk_growth_bytes: int
    seconds: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return all figures in one mapping, as `check --json` prints them."""
        found = asdict(self)
        del found["sizes"], found["accelerated"]
        return asdict(self.sizes) | found | asdict(self.accelerated)


def estimate(plan: Plan) -> Estimate:
    """Estimate the run's cost; ModelError or DataError when the model cannot be described."""
    run_file, resolved = plan.run_file, described(plan)
    training = run_file.training
    exchange, model_size = plan.exchange(resolved), memory.model_size(resolved)
    exchanged = exchange.exchanged
    contribution = plan.hidden_bytes(exchange) or payload_bytes(plan.compression, exchanged)
    version = payload_bytes(plan.downlink, exchanged)
    contributions = math.ceil(training.tokens / plan.task_tokens)
    workers = run_file.workers if plan.purpose.local else []
    nodes = expected_buffer(plan, workers)
    versions = math.ceil(contributions / nodes) if nodes else None
    snapshot, base = memory.FLOAT * exchanged, base_bytes(run_file, model_size)
    sent = contributions * contribution
    if plan.masking is not None and nodes and versions:
        sent += versions * plan.masking.sums_bytes(exchanged, nodes)
    growth = contributions * LEDGER_BYTES + (sent if run_file.controller.keep_payloads else 0)
    slots = nodes or plan.buffer_size or plan.aggregation.sound_nodes
    states = _states(plan, len(workers) or slots)
    inner_states = INNER.entry(plan.inner.name).declares.moments(exchange.layout)
    batch = {"batch_size": training.step_rows, "context": longest_row(run_file)}
    return Estimate(
        sizes=Sizes(model_size, exchange.trained, base, snapshot, contribution, version),
        accelerated=_accelerated(plan, resolved, exchange, inner_states),
        contributions=contributions,
        buffer_size=nodes,
        versions=versions,
        bytes_up=sent,
        bytes_down=len(workers) * (snapshot + (versions or 0) * min(version, snapshot)) if versions else None,
        worker_memory_bytes=memory.worker(
            resolved, exchange, **batch, inner_states=inner_states, recompute=training.checkpoint_activations
        ).total,
        controller_memory_bytes=memory.controller(
            resolved,
            exchange,
            payload_bytes=OPENED * slots * contribution + 2 * version,
            outer_states=states,
            gated=bool(run_file.trust.loss_gate),
            measured=wanted_of(run_file).any,
            **batch,
        ).total,
        disk_bytes=(run_file.controller.keep_checkpoints + 1) * (2 + states) * snapshot
        + SNAPSHOTS * snapshot  # those that nodes fetch
        + memory.FLOAT * model_size  # the exported model
        + base
        + _segments(plan, sent, 2 * slots * contribution, exchanged)
        + growth
        + dataset_bytes(run_file)
        + len(workers) * math.ceil(inner_states * memory.FLOAT * exchange.trained),
        disk_growth_bytes=growth,
        seconds=_seconds(model_size * (4 if base else 6) * training.tokens, workers),  # frozen: no gradients of weights
    )


def _accelerated(plan: Plan, resolved: dict[str, Any], exchange: Exchange, states: float) -> Accelerated:
    training = plan.run_file.training
    offload = training.offload_optimizer
    scratch = INNER.entry(plan.inner.name).declares.scratch(exchange.layout)
    return Accelerated(
        memory.on_device(
            resolved,
            exchange,
            context=longest_row(plan.run_file),
            inner_states=0 if offload else states,
            scratch=0 if offload else scratch,
            recompute=training.checkpoint_activations,
        ),
        memory.beside_device(exchange, inner_states=states, offload=offload) + memory.PROCESS_BYTES,
    )


def base_bytes(run_file: RunFile, model_size: int) -> int:
    """Return the bytes of the frozen parts of a run's exchange; 0 where the whole model is trained."""
    if exchange_name(run_file).kind == FULL:
        return 0
    if run_file.model.path is None:
        return memory.FLOAT * model_size
    return sum(path.stat().st_size for path in files_in(Path(run_file.model.path).expanduser()))


def _states(plan: Plan, nodes: int) -> int:
    """Return the vectors of the model's size that the controller keeps beside the parameters."""
    moments: int = OUTER.entry(plan.outer.name).declares.moments
    return moments + bool(plan.run_file.evaluation.average) + plan.aggregation.num_kept(nodes)


def payload_growth(plan: Plan, exchanged: int) -> int:
    """Return the bytes of payloads after which a checkpoint is taken early, a few times a checkpoint's."""
    nodes = len(plan.run_file.workers) or plan.buffer_size or plan.aggregation.sound_nodes
    return max(LEAST_GROWTH, 4 * 4 * exchanged * (2 + _states(plan, nodes)))


def _segments(plan: Plan, all_bytes: int, open_bytes: int, exchanged: int) -> int:
    """Return the most bytes of payloads on the disk: since the oldest kept checkpoint, and an open segment.

    None where all payloads are kept: these are growth.
    """
    controller = plan.run_file.controller
    if controller.keep_payloads:
        return 0
    kept = controller.keep_checkpoints * payload_growth(plan, exchanged) + SEGMENT_BYTES
    return min(all_bytes, kept + open_bytes)


def described(plan: Plan) -> dict[str, Any]:
    """Return the model's config as far as the run file determines it; ModelError or DataError otherwise."""
    run_file = plan.run_file
    tokens = vocabulary(run_file)
    return config.describe(
        run_file.model.model_dump(),
        tokens.size,
        longest_row(run_file),
        bos_id=tokens.bos_id,
        eos_id=tokens.eos_id,
        pad_id=tokens.pad_id,
    )


def row_needs(plan: Plan) -> dict[int, int]:
    """Return the bytes that a worker needs to train with one row, by row length; errors as of `described`."""
    model = described(plan)
    exchange = plan.exchange(model)
    moments = INNER.entry(plan.inner.name).declares.moments(exchange.layout)
    return memory.rows_alone(
        model,
        exchange,
        row_lengths(plan.run_file),
        inner_states=moments,
        recompute=plan.run_file.training.checkpoint_activations,
    )


def expected_buffer(plan: Plan, workers: list[WorkerSection]) -> int | None:
    """Return K at the speeds in the run file, as the controller sizes its buffer; None without local workers."""
    if not workers:
        return None
    if not plan.asynchronous:
        return len(workers)
    policy = staleness.create(plan.staleness.name, **plan.staleness.options)
    delays = [OVERLAPPING if plan.overlap else 1.0] * len(workers)
    wanted = plan.buffer_size or least_buffer([worker.speed for worker in workers], policy.bound, delays)
    least = plan.masking.least if plan.masking is not None else 1
    return max(plan.aggregation.least(len(workers)), min(wanted, len(workers)), least)


def _seconds(operations: float, workers: list[WorkerSection]) -> float | None:
    """Estimate the seconds of local CPU workers that share the machine; None for other devices or no local workers."""
    if not workers or any(worker.device != "cpu" for worker in workers):
        return None
    return operations / cpu_flops(workers)
