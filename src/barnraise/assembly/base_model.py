"""The frozen base of a run that trains less than its model: files of a checkpoint beside the dataset.

Imports torch where the base is made from scratch.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from barnraise.core.errors import StorageError
from barnraise.core.types import Blob
from barnraise.ledger.checkpoints import describe
from barnraise.models.exchange.catalog import FULL
from barnraise.models.weights import ONE, files_in
from barnraise.plan.exchange import exchange_name
from barnraise.plan.resolve import Plan
from barnraise.wire.manifest import ExchangeName, FrozenPart

PREFIX = "frozen-"
"""The beginning of the names of such files."""


def named_exchange(plan: Plan, model: dict[str, Any], folder: Path) -> ExchangeName:
    """Return the name of what travels in a run, with its frozen parts, which are written to `folder` if they lack.

    A checkpoint's files are linked, and copied where the disk has no links: they have the digests that the files of
    another machine's copy of the checkpoint have. Raises StorageError or ModelError.
    """
    name = exchange_name(plan.run_file)
    if name.kind == FULL:
        return name
    if not list(folder.glob(f"{PREFIX}*.safetensors")):
        _write(plan, model, folder)
    parts = []
    for path in sorted(folder.glob(f"{PREFIX}*.safetensors")):
        found = describe(path)
        parts.append(FrozenPart(path.name, Blob(found.sha256, found.num_bytes)))
    return ExchangeName(name.kind, name.options, tuple(parts))


def _write(plan: Plan, model: dict[str, Any], folder: Path) -> None:
    path = plan.run_file.model.path
    try:
        if path is not None:
            for file in files_in(Path(path).expanduser()):
                _link(file, folder / f"{PREFIX}{file.name}")
            return
        from safetensors.torch import save_model

        from barnraise.models.build import build

        save_model(build(model, plan.run_file.run.seed), str(folder / f"{PREFIX}{ONE}"), metadata={"format": "pt"})
    except OSError as error:
        raise StorageError(f"{folder} cannot take the base model ({error}); free some space") from error


def _link(file: Path, to: Path) -> None:
    try:
        os.link(file.resolve(), to)
    except OSError:
        shutil.copyfile(file, to)
