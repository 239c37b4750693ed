"""The work of a simulated run: sizes alone, or real tensors in a temporary folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from barnraise.assembly.engine_settings import engine_settings
from barnraise.controller.settings import EngineSettings
from barnraise.core.types import Blob
from barnraise.data.ranges import RowIndex
from barnraise.emulation.costs import Costs
from barnraise.emulation.work import CostModel, Work
from barnraise.plan.dataset import vocabulary
from barnraise.plan.estimate import Estimate
from barnraise.plan.resolve import Plan
from barnraise.plan.surroundings import training_rows

NOMINAL_TOKENS = 1_000_000_000
"""Size of a dataset whose files are not there."""

SHARD_BYTES = 32 << 20
MANIFEST_BYTES = 4096


def costed(plan: Plan, cost: Estimate) -> tuple[EngineSettings, Work, str]:
    """What the engine is told, sizes alone, and the digest of version 0: no data is made, no torch imported."""
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
        payload_bytes=settings.payloads.rungs,
        span=max(part.stop - part.start for part in settings.payloads.partitions[0]),
        delta_bytes=settings.payloads.delta,
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
        robust=plan.aggregation.individual,
        evaluation_tokens=controller.evaluation_rows * plan.run_file.data.context,
        threads=controller.threads,
    )


@contextmanager
def real(plan: Plan, skipped: float) -> Iterator[tuple[EngineSettings, Work, str]]:
    """The same with dataset, model and parameter server."""
    import torch

    from barnraise.assembly import parts
    from barnraise.assembly.preparing import make_dataset
    from barnraise.data.shards import Dataset
    from barnraise.emulation.real_work import RealWork
    from barnraise.worker.building import make_trainer

    torch.set_num_threads(plan.run_file.controller.threads)
    with tempfile.TemporaryDirectory(prefix="barnraise-") as folder, _without_subnormals():
        make_dataset(plan, Path(folder) / "data")
        dataset = Dataset.open(Path(folder) / "data")
        model = parts.model_config(plan, dataset)
        module = parts.initial_model(plan, model)
        num_parameters = sum(parameter.numel() for parameter in module.parameters())
        manifest = parts.manifest_of(model, dataset, num_parameters)
        settings = engine_settings(
            plan,
            run_name=plan.run_file.run.name,
            manifest=parts.blob_of(manifest),
            num_parameters=num_parameters,
            rows=RowIndex([shard.rows for shard in dataset.meta.shards], int(skipped * dataset.num_rows)),
        )
        trainer = make_trainer(module, settings.worker)
        server = parts.parameter_server(plan, trainer.flat.vector.clone())
        blobs = parts.blob_store(dataset, manifest, server)
        evaluator = parts.evaluator_of(plan, model, dataset)
        costs = _costs(plan, num_parameters)
        yield settings, RealWork(settings.worker, server, blobs, evaluator, dataset, trainer, costs), server.digest


@contextmanager
def _without_subnormals() -> Iterator[None]:
    """Flushed to zero, as workers do; the process that simulates may have other things to compute afterwards."""
    import torch

    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
