"""The work of a simulated run: sizes alone, or real tensors in a temporary folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from barnraise.assembly.engine_settings import engine_settings
from barnraise.assembly.trial import Trial
from barnraise.controller.state.settings import EngineSettings
from barnraise.core.types import Blob
from barnraise.data.lengths import rows_of, shards_of
from barnraise.data.ranges import RowIndex
from barnraise.emulation.attacks.catalog import talks
from barnraise.emulation.attacks.lying import Lying
from barnraise.emulation.conduct import HONEST, Conduct
from barnraise.emulation.costs import FLOPS, ControllerCosts, NodeCosts
from barnraise.emulation.work import ControllerWork, CostedControllerWork, CostedNodeWork, MakeNodeWork, NodeWork
from barnraise.models import memory
from barnraise.models.exchange.record import Exchange
from barnraise.plan.attacks import attacks_of
from barnraise.plan.data_files import training_rows
from barnraise.plan.dataset import longest_row, mean_row, row_lengths, shard_bytes, vocabulary
from barnraise.plan.estimate import Estimate, described
from barnraise.plan.resolve import Plan
from barnraise.trust.signatures import RunId

if TYPE_CHECKING:
    from barnraise.worker.task_executor import MakeExecutor

NOMINAL_TOKENS = 1_000_000_000
"""Size of a dataset whose files are not there."""

MANIFEST_BYTES = 4096


class SimulatedWork(NamedTuple):
    """The engine's settings, the controller's work and each node's, and the digest of version 0."""

    settings: EngineSettings
    controller: ControllerWork
    node: MakeNodeWork
    digest: str


def costed(plan: Plan, cost: Estimate, flops: float | None = None) -> SimulatedWork:
    """Return work as sizes alone: no data is made, no torch imported. `flops` as in `Trial`."""
    model = described(plan)
    exchange = plan.exchange(model)
    rows = training_rows(plan.run_file) or max(1, NOMINAL_TOKENS // mean_row(plan.run_file))
    token_bytes = 2 if vocabulary(plan.run_file).size <= 1 << 16 else 4
    lengths, held_out = row_lengths(plan.run_file), plan.run_file.evaluation.rows
    shards = shards_of(rows_of(rows, lengths), shard_bytes(plan.run_file) // token_bytes)
    settings = engine_settings(
        plan,
        run=RunId(plan.run_file.run.name),
        manifest=Blob("c" * 64, MANIFEST_BYTES),
        model=model,
        exchange=exchange,
        rows=RowIndex([count for _, count in shards], lengths=[length for length, _ in shards]),
        held_out=held_out,
        token_bytes=token_bytes,
    )
    file_bytes = [length * count * token_bytes for length, count in (*shards, (lengths[-1], held_out))]
    controller = CostedControllerWork(
        settings.payloads.delta, file_bytes, _controller_costs(plan, exchange, model, flops)
    )
    largest = max(fragment.stop - fragment.start for fragment in settings.payloads.partitions[0])
    sizes = settings.payloads.rungs, largest, _node_costs(plan, exchange)
    honest = CostedNodeWork(*sizes)
    lying = {name: CostedNodeWork(*sizes, conduct) for name, conduct in _conducts(plan).items()}
    return SimulatedWork(settings, controller, lambda name: lying.get(name, honest), "e" * 64)


def _conducts(plan: Plan) -> dict[str, Conduct]:
    """Return the conducts of nodes that lie in their messages and timing."""
    return {name: Lying(attack, name) for _, name, attack in attacks_of(plan.run_file) if talks(attack)}


def _node_costs(plan: Plan, exchange: Exchange) -> NodeCosts:
    return NodeCosts(exchange.trained, plan.compression.name, plan.downlink.name)


def _controller_costs(plan: Plan, exchange: Exchange, model: Mapping[str, Any], flops: float | None) -> ControllerCosts:
    controller = plan.run_file.controller
    return ControllerCosts(
        exchange.trained,
        plan.compression.name,
        plan.downlink.name,
        model_size=memory.model_size(model),
        robust=plan.aggregation.needs == "rows",
        evaluation_tokens=plan.run_file.evaluation.rows * longest_row(plan.run_file),
        row_tokens=longest_row(plan.run_file),
        flops=flops or FLOPS * controller.threads,
    )


@contextmanager
def real(plan: Plan, trial: Trial, executors: Mapping[str, MakeExecutor]) -> Iterator[SimulatedWork]:
    """Make dataset, model and parameter server; nodes named in `executors` have their own executors.

    Attacking nodes have attackers' executors.
    """
    import torch

    from barnraise.assembly import parts
    from barnraise.assembly.base_model import named_exchange
    from barnraise.assembly.preparing import make_dataset
    from barnraise.data.shards import Dataset
    from barnraise.emulation.attacks.board import Board
    from barnraise.emulation.attacks.catalog import create
    from barnraise.emulation.attacks.executor import making, watched
    from barnraise.emulation.real_work import RealControllerWork, RealNodeWork
    from barnraise.emulation.skewed import Skew
    from barnraise.training.repeatable import initial
    from barnraise.worker.building import make_executor, make_trainer
    from barnraise.worker.options import Means

    torch.set_num_threads(plan.run_file.controller.threads)
    with tempfile.TemporaryDirectory(prefix="barnraise-") as folder, _without_subnormals():
        make_dataset(plan, Path(folder) / "data")
        dataset = Dataset.open(Path(folder) / "data")
        model = parts.model_config(plan, dataset)
        exchange = plan.exchange(model, named_exchange(plan, model, dataset.folder))
        module = parts.initial_model(plan, model, exchange, dataset.folder)
        manifest = parts.manifest_of(model, dataset, exchange)
        settings = engine_settings(
            plan,
            run=RunId(plan.run_file.run.name),
            manifest=parts.blob_of(manifest),
            model=model,
            exchange=exchange,
            rows=dataset.rows_from(int(trial.skipped * dataset.num_rows)),
            held_out=dataset.meta.held_out.rows,
            token_bytes=dataset.meta.token_bytes,
        )
        evaluator = parts.evaluator_of(plan, model, exchange, dataset, device=trial.device)
        trainer = make_trainer(module, settings.worker, Means(trial.device), problem=evaluator.problem)
        server = parts.parameter_server(plan, initial(trainer.flat.vector.cpu(), exchange), exchange)
        blobs = parts.blob_store(dataset, manifest, server, exchange)
        node_costs = _node_costs(plan, exchange)
        attacks = {name: attack for _, name, attack in attacks_of(plan.run_file)}
        board = Board(parts.rule_of(plan))
        conducts = _conducts(plan)
        skew = Skew(dataset, trial.skew, plan.run_file.run.seed) if trial.skew else None
        seen = any(create(attack).sees for attack in attacks.values())
        makers = {name: making(attack, name, board) for name, attack in attacks.items()} | dict(executors)

        def rows_of(name: str) -> Dataset:
            return skew.of(name) if skew else dataset

        def node(name: str) -> NodeWork:
            make = makers.get(name) or (watched(name, board) if seen else make_executor)
            return RealNodeWork(trainer, rows_of(name), settings.worker, node_costs, make, conducts.get(name, HONEST))

        costs = _controller_costs(plan, exchange, model, trial.flops)
        measurer = parts.measurer_of(plan, evaluator)
        controller = RealControllerWork(server, blobs, evaluator, dataset, costs, rows_of, measurer=measurer)
        yield SimulatedWork(settings, controller, node, server.digest)


@contextmanager
def _without_subnormals() -> Iterator[None]:
    """Flush subnormal numbers to zero in the body, as workers do; the process may compute other things later."""
    import torch

    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
