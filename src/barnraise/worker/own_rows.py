"""The rows of a worker whose data stay with it: made from its owner's files, in the run's form, before its first task.

A fault of them is said here, and not to the controller: a reason may quote a file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from barnraise.core.errors import DataError, InputError, RunFailedError
from barnraise.core.sites import OwnRows, SiteTerms
from barnraise.data.meta import Meta
from barnraise.wire.messages import WorkerSettings
from barnraise.worker.options import WorkerOptions

if TYPE_CHECKING:
    from barnraise.data.site_rows import OwnDataset
    from barnraise.worker.owner_budget import OwnerBudget

OWN = "own"
"""The folder of a worker's own rows, beside its keys."""

NOT_PREPARED = "its own files cannot be made into rows of this run; its owner is told why"


def require_kind(settings: WorkerSettings, options: WorkerOptions, meta: Meta) -> None:
    """Raise RunFailedError where a run needs a worker's own rows and there are none, or the other way round.

    DataError where neither the run nor the worker has rows.
    """
    if settings.site is not None and options.own is None:
        raise RunFailedError("this run trains on rows that stay with their owners: name your files with --data FILES")
    if settings.site is None and options.own is not None:
        raise RunFailedError("this run sends its own rows and needs none of yours: join without --data")
    if settings.site is None and not meta.shards:
        raise DataError("the controller's dataset has no rows to train on")


def terms_for(settings: WorkerSettings, options: WorkerOptions) -> SiteTerms:
    """Return the run's terms with the more reserved releases of run and owner."""
    assert settings.site is not None
    assert options.own is not None
    releases = settings.site.releases.within(options.own.releases)
    return msgspec.structs.replace(settings.site, releases=releases)


class Own(NamedTuple):
    """A worker's own rows, and their description for the controller."""

    dataset: OwnDataset
    described: OwnRows


def folder_of(options: WorkerOptions) -> Path:
    """Return the folder of the own rows, their salt, and the count of what they spend."""
    assert options.own is not None
    return Path(options.own.folder) if options.own.folder else options.cache.parent / OWN


def budget_of(
    own: Own | None, settings: WorkerSettings, options: WorkerOptions, say: Callable[[str], None]
) -> OwnerBudget | None:
    """Return the count of what the own rows spend where their owner limits it; errors as of `OwnerBudget`."""
    if own is None or options.own is None or (limit := options.own.limit) is None:
        return None
    from barnraise.worker.owner_budget import OwnerBudget

    releases = terms_for(settings, options).releases
    budget = OwnerBudget(folder_of(options), limit, settings, releases, own.described.digest)
    say(f"own rows: this run may spend epsilon {limit.epsilon:g} at delta {limit.delta:g}; {budget.spent:.3g} is spent")
    return budget


def make(meta: Meta, terms: SiteTerms, options: WorkerOptions, say: Callable[[str], None]) -> Own:
    """Make the worker's own rows, and their description for the controller.

    Raises RunFailedError with a reason that quotes nothing of the files, after `say` has told the whole one.
    """
    from barnraise.data import site_rows

    assert options.own is not None
    folder = folder_of(options)
    try:
        own = site_rows.prepared(folder, options.own.files, meta, options.cache, terms)
        described = site_rows.described(own, folder, terms)
    except InputError as error:
        say(f"own files: {error}")
        raise RunFailedError(NOT_PREPARED) from error
    say(f"own rows: {own.num_rows:,} of {meta.context} tokens, {own.meta.held_out.rows:,} held out; they stay here")
    return Own(own, described)
