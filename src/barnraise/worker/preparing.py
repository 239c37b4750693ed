"""The steps of a worker between the controller's welcome and its first task.

It fetches the descriptions of model and data, has the executor built, and measures the machine. All long work is on the
training thread.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from barnraise.core.errors import RunFailedError
from barnraise.core.processes import limited_memory
from barnraise.core.types import Blob, NodeProfile
from barnraise.core.units import bytes_text
from barnraise.data.meta import MAX_META_BYTES, META, Meta
from barnraise.models.memory import FLOAT, model_size
from barnraise.privacy.masking.member_roster import member_line
from barnraise.transport.reach import MAY_NAME, own_reach
from barnraise.wire.file_downloads import FileDownload
from barnraise.wire.manifest import Manifest
from barnraise.wire.messages import Welcome, WorkerSettings
from barnraise.worker import own_rows
from barnraise.worker.building import fit_of, identify, require_masks, restore_moments, restore_replica
from barnraise.worker.events import Prepared
from barnraise.worker.fetching import Fetcher
from barnraise.worker.kept import Kept
from barnraise.worker.options import Means, WorkerOptions
from barnraise.worker.task_executor import BuildExecutor, TaskExecutor
from barnraise.worker.terms import require_size

if TYPE_CHECKING:
    from barnraise.worker.moments import Moments
    from barnraise.worker.owner_budget import OwnerBudget
    from barnraise.worker.replica_file import ReplicaFile, RestoredVersion  # these import torch

PART_EXTRA = 1 << 24
"""Bytes of all frozen parts beside their parameters, at most: names and shapes."""

LEND_DISK = "lend more (--max-disk), or join with a larger machine"
"""The owner's remedy where the run's files are more than the lent disk takes."""

NET_BYTES, THREAD_BYTES = 256 << 20, 16 << 20
"""Memory beyond the lent amount at which the process fails rather than take more: for the allocator and the transport,
and for each thread. Tasks are refused long before."""


def memory_net(means: Means) -> AbstractContextManager[None]:
    """Limit the process to the memory that its owner lends, in case the estimates are wrong.

    Only where it computes on the CPU: drivers of accelerators reserve memory that they never use.
    """
    lent = means.lent().memory_bytes
    if not lent or means.device != "cpu":
        return nullcontext()
    return limited_memory(lent + NET_BYTES + means.threads * THREAD_BYTES)


@dataclass(frozen=True)
class Shell:
    """The runtime's functions for preparation.

    `get` fetches a blob that no task names. `in_training` calls a function on the training thread, `in_updating` on the
    one that takes versions in.
    """

    options: WorkerOptions
    build: BuildExecutor
    fetcher: Fetcher
    get: Callable[[Blob], Awaitable[None]]
    in_training: Callable[[Callable[[], Any]], Awaitable[Any]]
    in_updating: Callable[[Callable[[], Any]], Awaitable[Any]]
    say: Callable[[str], None]


@dataclass(frozen=True)
class Ready:
    """A worker that can train; `event` tells its machine."""

    executor: TaskExecutor
    kept: Kept
    event: Prepared


class Prepare(Protocol):
    """Prepares a process from the settings and the welcome, on a machine of this profile."""

    async def __call__(
        self, shell: Shell, settings: WorkerSettings, welcome: Welcome, profile: NodeProfile, /
    ) -> Ready: ...


async def _get_base(shell: Shell, manifest: Manifest) -> None:
    """Get the frozen parts of the model: from the worker's cache, its owner's copy, or the controller."""
    options, fetcher, in_training = shell.options, shell.fetcher, shell.in_training
    frozen, lent = manifest.exchange.frozen, options.means.lent().disk_bytes or math.inf
    whole = sum(part.blob.num_bytes for part in frozen)
    if whole > lent:
        raise RunFailedError(
            f"the run's base model has {bytes_text(whole)}, but {bytes_text(int(lent))} are lent for files; {LEND_DISK}"
        )
    left = FLOAT * await in_training(partial(model_size, manifest.model)) + PART_EXTRA if frozen else 0
    for part in frozen:
        blob, place = part.blob, options.cache / part.name
        require_size(f"frozen part {part.name}", blob, left)
        left -= blob.num_bytes
        fetcher.cache.place(blob.digest, place)
        if await in_training(partial(fetcher.cache.holds, blob)):
            continue
        if fetcher.cache.own is not None:
            shell.say(
                f"{fetcher.cache.own} has no file of {blob.num_bytes:,} bytes with the digest {blob.digest[:16]}..., "
                f"which is the run's {part.name}: it is fetched from the controller"
            )
        partial_file = place.with_name(f".{part.name}.partial")
        download = await in_training(partial(FileDownload, blob, partial_file, limit=blob.num_bytes))
        shell.say(
            f"fetching the base model, {bytes_text(blob.num_bytes)}"
            + (f", of which {bytes_text(download.num_there)} are here" if download.num_there else "")
        )
        fetcher.fetch_to_disk(download)
        await shell.get(blob)


async def prepare(shell: Shell, settings: WorkerSettings, welcome: Welcome, profile: NodeProfile) -> Ready:
    """Prepare a worker from the manifest, which was fetched, on a machine of this `profile`.

    Raises RunFailedError, ModelError, DataError and WireError where it cannot train.
    """
    options, fetcher, in_training = shell.options, shell.fetcher, shell.in_training
    require_masks(settings, options)
    content = bytes(fetcher.take(welcome.manifest))
    manifest: Manifest = await in_training(partial(Manifest.decode, content))
    require_size("description of the data", manifest.dataset, MAX_META_BYTES)
    folder = options.cache
    folder.mkdir(parents=True, exist_ok=True)
    fetcher.cache.own = Path(options.means.base).expanduser() if options.means.base else None
    fetcher.cache.place(manifest.dataset.digest, folder / META)
    if manifest.urls and fetcher.mirrors is not None:
        fetcher.mirrors.use(manifest.urls, MAY_NAME[await own_reach(options.uri)])
    await shell.get(manifest.dataset)
    meta: Meta = await in_training(partial(Meta.read, folder / META))
    for info in meta.row_files():
        fetcher.cache.place(info.sha256, folder / info.name)
    own = await _own(shell, meta, settings)
    budget = await in_training(partial(own_rows.budget_of, own, settings, options, shell.say))
    fitting = await in_training(partial(fit_of, manifest, meta, settings, options, profile.memory_bytes))
    await _get_base(shell, manifest)
    executor: TaskExecutor = await in_training(
        partial(shell.build, manifest, meta, settings, options, profile.memory_bytes, own=own.dataset if own else None)
    )
    identify(executor, welcome, options)
    if settings.uplink.masks is not None:
        line = member_line(welcome.node, options.keys.signer.public, "OWNER")
        shell.say(f"give the owners of trustees this line for their rosters (join --members FILE): {line}")
    for remark in executor.trainer.remarks:
        shell.say(remark)
    if own is None:
        fetcher.cache.on_deleted = executor.dataset.forget
    fetcher.limit = max(fetcher.limit, 8 * max(manifest.trained, len(executor.published.parameters)) + 4096)
    measured = await in_training(partial(executor.measure, profile, settings.inner.batch_size))
    kept, held, disk = await _restore(shell, executor, welcome, manifest, budget)
    fetcher.held, fetcher.cache.limit = executor.published, disk
    files = tuple(Blob(info.sha256, info.bytes) for info in meta.row_files())
    limits = msgspec.structs.replace(fitting.limits, disk=disk, own=meta.context)
    prepared = Prepared(files, measured, limits, *(held or ()))
    return Ready(executor, kept, msgspec.structs.replace(prepared, own=own.described if own else None))


async def _own(shell: Shell, meta: Meta, settings: WorkerSettings) -> own_rows.Own | None:
    """Make the worker's own rows with the run's tokenizer, where rows stay with their nodes."""
    own_rows.require_kind(settings, shell.options, meta)
    if settings.site is None:
        return None
    for info in meta.files:
        blob = Blob(info.sha256, info.bytes)
        shell.fetcher.cache.place(blob.digest, shell.options.cache / info.name)
        await shell.get(blob)
    terms = own_rows.terms_for(settings, shell.options)
    own: own_rows.Own = await shell.in_training(partial(own_rows.make, meta, terms, shell.options, shell.say))
    return own


async def _restore(
    shell: Shell, executor: TaskExecutor, welcome: Welcome, manifest: Manifest, budget: OwnerBudget | None
) -> tuple[Kept, RestoredVersion | None, float]:
    """Load what an earlier process kept: the files, the replica's version, and the bytes of disk that are left."""
    options, disk = shell.options, shell.options.means.lent().disk_bytes or math.inf
    moments: Moments | None = None
    replica: ReplicaFile | None = None
    held: RestoredVersion | None = None
    size = 2 * 2 * FLOAT * manifest.trained  # the moments, and their copy while they are written
    if options.moments is not None and not welcome.settings.stateless:
        if size <= disk / 2:
            disk -= size
            moments = await shell.in_training(
                partial(restore_moments, executor, options.moments, welcome, options.server_key, shell.say)
            )
        else:
            shell.say(f"the optimizer's moments are not kept on disk: they need {bytes_text(size)} of --max-disk")
    size = 2 * FLOAT * len(executor.published.parameters)
    if options.replica is not None:
        if size <= disk / 2:
            disk -= size
            replica, held = await shell.in_updating(
                partial(restore_replica, executor, options.replica, welcome, shell.say)
            )
        else:
            shutil.rmtree(options.replica, ignore_errors=True)  # it may be there from when more was lent
            shell.say(f"the replica is not kept on disk: it needs {bytes_text(size)} of --max-disk")
    return Kept(executor, moments, replica, budget), held, disk
