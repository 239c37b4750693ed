"""Construction of a worker's executor from a manifest: checks first, then building.

For the training thread; it takes long.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from barnraise.core.errors import InputError
from barnraise.data.meta import Meta
from barnraise.models.memory import REMEDY
from barnraise.training.catalog import AUTOMATIC
from barnraise.trust.signatures import RunId
from barnraise.wire.manifest import Manifest
from barnraise.wire.messages import Welcome, WorkerSettings
from barnraise.worker.options import Means
from barnraise.worker.terms import MemoryFit, exchange_of, fit, require_settings

if TYPE_CHECKING:
    from torch import nn

    from barnraise.data.shards import Dataset
    from barnraise.training.local import LocalTrainer
    from barnraise.training.problem import Problem
    from barnraise.worker.moments import Moments  # these import torch
    from barnraise.worker.options import WorkerOptions
    from barnraise.worker.replica_file import ReplicaFile, RestoredVersion
    from barnraise.worker.task_executor import MakeExecutor, TaskExecutor

LEND_MORE = "lend more of it (--max-memory), or join with a larger machine"
"""The owner's remedy where the terms are too narrow for a run."""


def make_executor(
    trainer: LocalTrainer, dataset: Dataset, settings: WorkerSettings, slowdown: float = 0.0
) -> TaskExecutor:
    """Make the usual executor of a worker's tasks, with `trainer`."""
    from barnraise.worker.executor import WorkerExecutor

    return WorkerExecutor(trainer, dataset, settings, slowdown)


def fit_of(manifest: Manifest, meta: Meta, settings: WorkerSettings, options: WorkerOptions, room: int) -> MemoryFit:
    """Return how the run fits into `room` bytes; RunFailedError or ModelError when none or not this worker can."""
    require_settings(settings)
    if settings.uplink.encryption is not None:
        from barnraise.worker.encrypting import key_of

        key_of(options.safeguards.key_file, settings.uplink.encryption)
    instead = LEND_MORE if options.means.lent().memory_bytes == room else REMEDY
    return fit(manifest, meta, settings, room, options.means.device, instead=instead)


def build_executor(
    manifest: Manifest,
    meta: Meta,
    settings: WorkerSettings,
    options: WorkerOptions,
    room: int,
    make: MakeExecutor = make_executor,
    *,
    own: Dataset | None = None,
) -> TaskExecutor:
    """Build the executor of this run on this machine, whose rows may take `room` bytes.

    RunFailedError or ModelError when it cannot work here. The folder `options.cache` holds the dataset's meta.json, and
    token shards as they are fetched; rows of this node's `own` take their place.
    """
    tokens = fit_of(manifest, meta, settings, options, room).tokens
    import torch

    from barnraise.data.shards import Dataset
    from barnraise.models.build import build_exchanged
    from barnraise.training.problems import problem_of

    torch.set_num_threads(options.means.threads)
    torch.set_flush_denormal(True)  # fading Adam moments become subnormal, which slows arithmetic by 20%
    problem = problem_of(manifest.model)
    problem.require(meta)
    module = build_exchanged(manifest.model, exchange_of(manifest, settings), options.cache)
    trainer = make_trainer(module, settings, options.means, tokens, problem)
    dataset = own or Dataset.open(options.cache, partial=True)
    executor = make(trainer, dataset, settings, options.means.slowdown)
    if (terms := settings.uplink.encryption) is not None:
        from barnraise.worker.encrypting import model_key

        executor.unlock(model_key(options.safeguards.key_file, terms, trainer.flat.layout.size))
    return executor


def make_trainer(
    module: nn.Module,
    settings: WorkerSettings,
    means: Means | None = None,
    tokens: int | None = None,
    problem: Problem | None = None,
) -> LocalTrainer:
    """Make the trainer of a run's steps on `module`, `tokens` at once, for a worker's process or a simulation."""
    from barnraise.training.device import recompute_activations
    from barnraise.training.local import LocalTrainer

    inner = settings.inner
    if inner.checkpoint_activations:
        recompute_activations(module)
    private = settings.private
    make: Callable[..., LocalTrainer] = LocalTrainer
    if private is not None and private.rate:
        from barnraise.privacy.examples.trainer import PrivateTrainer

        make = partial(PrivateTrainer, private=private, batch_size=inner.batch_size)
    return make(
        module,
        optimizer=inner.optimizer,
        options=inner.options,
        decays=inner.decays,
        gradient_clip=inner.gradient_clip,
        proximal=inner.proximal,
        precision=(means and means.precision) or inner.precision,
        device=means.device if means else "cpu",
        tokens_at_once=tokens,
        problem=problem,
        compiled=inner.compile == AUTOMATIC,
        offload=inner.offload_optimizer,
    )


def restore_replica(
    executor: TaskExecutor, folder: Path, welcome: Welcome, say: Callable[[str], None]
) -> tuple[ReplicaFile, RestoredVersion]:
    """Open the replica's file in `folder`, from which the executor continues: the file, and what the executor holds."""
    from barnraise.worker.replica_file import ReplicaFile, RestoredVersion

    file = ReplicaFile(folder, welcome.run, welcome.manifest.digest, say)
    return file, file.restore(executor.published, RestoredVersion(welcome.version, welcome.digest))


def restore_moments(
    executor: TaskExecutor, path: Path, welcome: Welcome, server_key: str, say: Callable[[str], None]
) -> Moments:
    """Open the moments' file at `path`, from which the executor continues if this node wrote it before."""
    from barnraise.worker.moments import Moments

    owner = {
        "run": welcome.run,
        "controller": server_key,
        "node": welcome.node,
        "manifest": welcome.manifest.digest,
        "optimizer": welcome.settings.inner.optimizer,
    }
    moments = Moments(path, owner, say)
    moments.restore(executor.trainer)
    return moments


def require_masks(settings: WorkerSettings, options: WorkerOptions) -> None:
    """Refuse a run without masks where its owner named trustees; InputError."""
    if (roster := options.safeguards.trustees) is not None and settings.uplink.masks is None:
        raise InputError(
            f"this run masks no updates, but --trustees {roster.source} asks for masks: ask the host, or "
            "join without --trustees if the controller may read your updates"
        )


def identify(executor: TaskExecutor, welcome: Welcome, options: WorkerOptions) -> None:
    """Tell the executor whose updates it makes."""
    from barnraise.worker.masking import MaskedMember

    run = RunId(welcome.run, options.server_key)
    executor.identify(MaskedMember(run, welcome.node, options.keys.signer, options.safeguards.trustees))
