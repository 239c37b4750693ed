"""Checks of a run's settings and sizes, before a worker builds anything of it.

A run that cannot work here ends with a reason, not with a machine that swaps or a controller that is flooded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from barnraise.core.errors import OptionError, RunFailedError, UnknownNameError
from barnraise.core.types import Blob
from barnraise.data.columns import copied_bytes
from barnraise.data.meta import Meta
from barnraise.models import config, memory
from barnraise.models.exchange.record import Exchange
from barnraise.privacy.encryption.digits import num_digits
from barnraise.training.catalog import COMPILES, DECAYING, INNER, PRECISIONS
from barnraise.wire.manifest import Manifest
from barnraise.wire.messages import WorkerSettings
from barnraise.worker.limits import LEAST_BYTES, Limits

SHORTEST_INTERVAL, LONGEST_INTERVAL = 0.01, 1e6
"""Seconds between heartbeats, or of a lease, that a worker accepts."""

SNAPSHOT_EXTRA = 4096
"""Bytes of a snapshot beside its parameters, at most."""


def require_intervals(heartbeat: float, lease: float) -> None:
    """Raise RunFailedError when no worker could keep these intervals, or a failure would not be noticed."""
    for name, seconds in (("heartbeat", heartbeat), ("lease", lease)):
        if not SHORTEST_INTERVAL <= seconds <= LONGEST_INTERVAL:
            raise RunFailedError(
                f"the controller asks for a {name} of {seconds:g} s, but workers keep to {SHORTEST_INTERVAL:g} s to "
                f"{LONGEST_INTERVAL:g} s; its host should set controller.{name} so"
            )


def require_size(what: str, blob: Blob, limit: int) -> None:
    """Raise RunFailedError when the controller names a description of more than `limit` bytes, before the fetch."""
    if blob.num_bytes > limit:
        raise RunFailedError(
            f"the controller's {what} has {blob.num_bytes:,} bytes, but a worker takes {limit:,}; leave this run"
        )


def require_settings(settings: WorkerSettings) -> None:
    """Raise RunFailedError when a worker cannot train with these settings.

    Codecs check their options themselves.
    """
    inner = settings.inner
    entry = INNER.entries.get(inner.optimizer)
    if entry is None or not entry.known_options <= inner.options.keys():
        known = ", ".join(f"{name} ({', '.join(sorted(found.known_options))})" for name, found in INNER.entries.items())
        raise _unfit("inner_optimizer", inner.optimizer, f"known, with their options: {known}")
    if inner.precision not in PRECISIONS:
        raise _unfit("precision", inner.precision, f"known: {', '.join(PRECISIONS)}")
    if inner.compile not in COMPILES:
        raise _unfit("compile", inner.compile, f"known: {', '.join(COMPILES)}")
    if inner.decays not in DECAYING:
        raise _unfit("weight_decay_on", inner.decays, f"known: {', '.join(DECAYING)}")
    if inner.batch_size < 1:
        raise _unfit("batch_size", inner.batch_size, "at least 1 row")


def exchange_of(manifest: Manifest, settings: WorkerSettings) -> Exchange:
    """Return what travels in a run; RunFailedError when this worker does not know its kind, or counts it otherwise."""
    try:
        exchange = Exchange.of(manifest.model, manifest.exchange, moments=settings.shares)
    except (UnknownNameError, OptionError) as error:
        raise RunFailedError(
            f"the controller exchanges what this worker cannot train ({error}); install the version of the controller"
        ) from None
    if settings.uplink.encryption is not None:
        exchange = replace(exchange, digits=num_digits(exchange.trained))
    if exchange.trained != manifest.trained:
        raise RunFailedError(
            f"the controller's manifest speaks of {manifest.trained} parameters, but its model has {exchange.trained}"
        )
    return exchange


@dataclass(frozen=True)
class MemoryFit:
    """The part of a run that fits into a worker's memory.

    `tokens` of a batch pass through the model at a time (None: as many as an accelerator's own memory takes).
    """

    tokens: int | None
    limits: Limits


def fit(
    manifest: Manifest,
    meta: Meta,
    settings: WorkerSettings,
    available: int,
    device: str,
    *,
    instead: str = memory.REMEDY,
) -> MemoryFit:
    """Return what fits into `available` bytes with the model.

    The tokens at a time are those of the longest rows of which one fits, but no more than a batch has. The rest is for
    fetched blobs, and for a task's rows. `instead`: the remedy where that is too little. ModelError or RunFailedError
    when the model cannot be built, does not read the data, or fits with no row. On an accelerator the batch and the
    trained parameters are in its memory, which reports itself when it is too small; an offloaded optimizer is here.
    """
    config.check(manifest.model, vocab_size=meta.vocab_size, context=meta.context)
    exchange = exchange_of(manifest, settings)
    lengths = tuple(meta.row_length(info) for info in meta.row_files())
    snapshot = memory.FLOAT * exchange.exchanged + SNAPSHOT_EXTRA
    moments = INNER.entry(settings.inner.optimizer).declares.moments(exchange.layout)
    if device != "cpu":
        vectors = memory.beside_device(exchange, inner_states=moments, offload=settings.inner.offload_optimizer)
        memory.require(vectors, available, "this run's vectors", instead)
        return MemoryFit(None, _limits(available - vectors, snapshot, meta, lengths))
    batch_size = settings.inner.batch_size
    tokens = longest = used = 0
    for length in meta.lengths:  # the shortest first
        row = memory.worker(
            manifest.model,
            exchange,
            batch_size=1,
            context=length,
            inner_states=moments,
            recompute=settings.inner.checkpoint_activations,
        )
        if not tokens:
            memory.require(row.allocated, available, "this run's model and one row of its batches", instead)
        if rows := min(batch_size, (available - row.vectors) // row.activations):
            longest, used = length, max(used, row.vectors + rows * row.activations)
            tokens = max(tokens, rows * length)
    measured = memory.measuring(manifest.model, exchange, context=meta.context, inner_states=moments)
    return MemoryFit(
        tokens,
        msgspec.structs.replace(
            _limits(available - used, snapshot, meta, lengths),
            longest=longest,
            longest_measured=meta.context if measured.allocated <= available else 0,
        ),
    )


def _limits(spare: int, snapshot: int, meta: Meta, lengths: tuple[int, ...]) -> Limits:
    """Return the limits where `spare` bytes are left beside the training's, which include a snapshot.

    Less a file of rows that arrives, one half is for other versions, the other for the rows of a task.
    """
    spare = max(0, spare - max(info.bytes for info in meta.row_files()))
    copied = copied_bytes(meta.fields, meta.context, meta.dtype_name)
    return Limits(fetched=snapshot + spare / 2, batches=max(LEAST_BYTES, spare / 2), lengths=lengths, copied=copied)


def _unfit(name: str, value: object, known: str) -> RunFailedError:
    return RunFailedError(f"the controller sets {name} to {str(value)[:80]!r}, which no worker can do; {known}")
