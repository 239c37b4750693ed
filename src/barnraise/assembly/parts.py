"""The parts of a controller, each made in one place, for sockets or virtual time.

Imports torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from barnraise import aggregation, compression, training
from barnraise.aggregation.base import Rule
from barnraise.controller.tensors.adder import Adder
from barnraise.controller.tensors.blobs import BlobStore
from barnraise.controller.tensors.evaluator import Evaluator
from barnraise.controller.tensors.executor import ControllerExecutor, Report
from barnraise.controller.tensors.measurer import Measurer
from barnraise.controller.tensors.parameter_server import ParameterServer
from barnraise.controller.tensors.unmasker import Unmasker
from barnraise.core.types import Blob
from barnraise.data.shards import Dataset
from barnraise.ledger import Checkpoints, Ledger
from barnraise.models import build, config
from barnraise.models.exchange.record import Exchange
from barnraise.plan.metrics import wanted_of
from barnraise.plan.resolve import Plan
from barnraise.training.base import OuterOptimizer
from barnraise.training.repeatable import initial
from barnraise.wire.manifest import Manifest


def model_config(plan: Plan, dataset: Dataset) -> dict[str, Any]:
    """Return the model's config, with the values that the run file leaves out."""
    section, meta = plan.run_file.model.model_dump(exclude_none=True), dataset.meta
    return config.describe(
        section, meta.vocab_size, meta.context, bos_id=meta.bos_id, eos_id=meta.eos_id, pad_id=meta.pad_id
    )


def initial_model(plan: Plan, model: dict[str, Any], exchange: Exchange, folder: Path) -> nn.Module:
    """Return the model that the run starts from: drawn with its seed, or the one that the run file names.

    `folder` has the dataset, and the frozen parts of the exchange.
    """
    if exchange.name.frozen:
        return build.build_exchanged(model, exchange, folder)
    module = build.create(plan.run_file.model.model_dump(exclude_none=True), model, plan.run_file.run.seed)
    return build.prepared(module, exchange)


def initial_state(plan: Plan, model: dict[str, Any], exchange: Exchange, folder: Path) -> dict[str, Tensor]:
    """Return the initial state of the parameter server, in a checkpoint's form; `folder` has the dataset."""
    parameters = exchange.module_exchange().read(initial_model(plan, model, exchange, folder))
    return {f"outer.{name}": tensor for name, tensor in outer_optimizer(plan).state().items()} | {
        "parameters": initial(parameters, exchange)
    }


def manifest_of(model: dict[str, Any], dataset: Dataset, exchange: Exchange, urls: Sequence[str] = ()) -> bytes:
    """Return the manifest, which workers fetch first; `urls` are prefixes of copies of the run's files."""
    info = dataset.files()[0]
    return Manifest(model, Blob(info.sha256, info.bytes), exchange.trained, exchange.name, tuple(urls)).encode()


def blob_of(content: bytes) -> Blob:
    """Return the name of `content`."""
    return Blob(hashlib.sha256(content).hexdigest(), len(content))


def outer_optimizer(plan: Plan) -> OuterOptimizer:
    """Return the outer optimizer, without a history."""
    if plan.encryption:  # the rate is in the weights of the encrypted updates
        return training.create("sgd", learning_rate=1.0)
    return training.create(plan.outer.name, **plan.outer.options)


def rule_of(plan: Plan) -> Rule:
    """Return the aggregation rule of a version's updates."""
    chosen = plan.aggregation
    return aggregation.create(
        chosen.names, unguaranteed=chosen.unguaranteed, fallback=chosen.fallback, **chosen.options
    )


def parameter_server(plan: Plan, parameters: Tensor, exchange: Exchange | None = None) -> ParameterServer:
    """Return the server of a run, with `parameters` (float32 [exchanged]) as version 0 of the `exchange`."""
    codecs = [*plan.contributions, *([plan.last_compression] if plan.last_compression else [])]
    return ParameterServer(
        parameters,
        0,
        rule=rule_of(plan),
        codecs=[compression.create(choice.name, **choice.options) for choice in codecs],
        downlink=compression.create(plan.downlink.name, **plan.downlink.options),
        outer=outer_optimizer(plan),
        alike=plan.run_file.aggregation.normalize_steps,
        moments_start=exchange.moments_start if exchange else None,
        average=plan.run_file.evaluation.average,
        threads=plan.run_file.controller.threads,
        unmasker=_unmasker(plan, exchange.exchanged) if exchange else None,
        adder=Adder(plan.encryption.agreement(exchange.trained)) if exchange and plan.encryption else None,
    )


def _unmasker(plan: Plan, exchanged: int) -> Unmasker | None:
    return Unmasker(terms.terms(exchanged), terms.group) if (terms := plan.masking) else None


def blob_store(
    dataset: Dataset,
    manifest: bytes,
    server: ParameterServer,
    exchange: Exchange,
    warn: Callable[[str], None] = lambda text: None,
    folder: Path | None = None,
) -> BlobStore:
    """Return the blobs that workers may fetch: manifest, token shards, frozen parts, and the version of `server`.

    `folder` is for snapshots of older ones.
    """
    blobs = BlobStore(dataset, blob_of(manifest).digest, manifest, warn, folder, frozen=exchange.name.frozen)
    blobs.publish(server.parameters, server.digest, server.leaves)
    return blobs


def evaluator_of(
    plan: Plan,
    model: dict[str, Any],
    exchange: Exchange,
    dataset: Dataset,
    warn: Callable[[str], None] = lambda text: None,
    device: str = "cpu",
) -> Evaluator:
    """Return an evaluator of the held-out loss on as many rows as the run file says."""
    return Evaluator(model, exchange, dataset, plan.run_file.evaluation.rows, warn, device)


def measurer_of(plan: Plan, evaluator: Evaluator) -> Measurer | None:
    """Return the measurer of the run's metrics and samples; None where it has neither."""
    wanted = wanted_of(plan.run_file)
    return Measurer(evaluator, wanted) if wanted.any else None


def executor_maker(
    server: ParameterServer,
    blobs: BlobStore,
    evaluator: Evaluator,
    measurer: Measurer | None,
    ledger: Ledger,
    checkpoints: Checkpoints,
) -> Callable[[Report, Callable[[BaseException], None]], ControllerExecutor]:
    """Return a factory of the executor of these parts, for the server that it reports to.

    See `controller.shell.server.Server`.
    """

    def make(report: Report, failed: Callable[[BaseException], None]) -> ControllerExecutor:
        return ControllerExecutor(
            server, blobs, evaluator, ledger, checkpoints, measurer=measurer, report=report, failed=failed
        )

    return make
