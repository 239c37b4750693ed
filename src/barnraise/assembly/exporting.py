"""A run's model in Hugging Face format, while it runs or afterwards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from barnraise.account.account import manifest
from barnraise.config.load import load
from barnraise.core.errors import CorruptionError, InputError, UnknownNameError
from barnraise.core.files import private
from barnraise.ledger import Checkpoints, LedgerView, RunDirectory, StoredCheckpoint
from barnraise.models.exchange.catalog import ADAPTER, FORMS, MODEL
from barnraise.models.problems import is_own


@dataclass(frozen=True)
class Exported:
    """The exported version and folder; `newest` is the ledger's newest version, perhaps without a checkpoint."""

    folder: Path
    version: int
    newest: int
    model_size: int


def export_model(
    run: RunDirectory,
    folder: Path | None = None,
    version: int | None = None,
    *,
    form: str = MODEL,
    warn: Callable[[str], None] = lambda text: None,
) -> Exported:
    """Write the model of `version` (the newest checkpoint) to `folder`, RUN_DIR/model unless given.

    With `form` adapter its adapters alone are written, by default to RUN_DIR/adapter. It is the average of the versions
    up to it where the run keeps one. Raises InputError for a version without a checkpoint, CorruptionError when there
    is no good checkpoint, StorageError when the folder cannot be written. `warn` gets messages about rejected
    checkpoints.
    """
    if form not in FORMS:
        raise UnknownNameError("form of an exported model", form, FORMS)
    folder = (folder or (run.path / form if form == ADAPTER else run.model)).absolute()
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, but a model is a folder: give another with --to FOLDER")
    told, checkpoint = manifest(run), _checkpoint(run, version, warn)
    if is_own(told.model):
        from barnraise.assembly.own_export import export_own
        from barnraise.models import memory

        with private() if folder.is_relative_to(run.path) else nullcontext():
            export_own(run, folder, told, checkpoint, form=form, warn=warn)
        version = checkpoint.manifest.version
        return Exported(folder, version, _newest(run, version, warn), memory.model_size(told.model))
    tensors = checkpoint.tensors("parameters", ("average", "parameters"))
    from transformers.utils import logging

    from barnraise.models import memory
    from barnraise.models.exchange.record import Exchange
    from barnraise.models.export import export as write
    from barnraise.models.export import export_adapter

    logging.disable_progress_bar()
    exchange = Exchange.of(told.model, told.exchange)
    vector = tensors.get("average", tensors["parameters"])
    with private() if folder.is_relative_to(run.path) else nullcontext():
        if form == ADAPTER:
            export_adapter(folder, told.model, exchange, vector, run.data, _base_of(run))
        else:
            write(folder, told.model, exchange, vector, run.data, tokenizer_files(run))
    version = checkpoint.manifest.version
    return Exported(folder, version, _newest(run, version, warn), memory.model_size(told.model))


def _base_of(run: RunDirectory) -> str:
    """Return the folder of the model that the run's adapters belong to; the run's own base where it has no other."""
    return load(run.run_file).model.path or str(run.data)


def _newest(run: RunDirectory, exported: int, warn: Callable[[str], None]) -> int:
    """Return the ledger's newest version; where the ledger is damaged the one that was `exported`."""
    try:
        with LedgerView(run.ledger) as view:
            return max(view.totals().version, exported)
    except CorruptionError as error:
        warn(f"whether the run made later versions than {exported} is not known: {error}")
        return exported


def _checkpoint(run: RunDirectory, version: int | None, warn: Callable[[str], None]) -> StoredCheckpoint:
    checkpoints = Checkpoints(run.checkpoints)
    if version is not None:
        known = checkpoints.readable()
        if version not in known:
            names = ", ".join(map(str, known)) or "none"
            raise InputError(f"{run.path} has no checkpoint of version {version}; it has: {names}")
        known[version].verify()
        return known[version]
    latest = checkpoints.load_latest()
    for rejected in latest.rejected:
        warn(f"checkpoint {rejected.path.name} is passed over: {rejected.reason}")
    if latest.checkpoint is None:
        raise CorruptionError(f"{run.path} has no checkpoint that can be used; restore one from a backup")
    return latest.checkpoint


def tokenizer_files(run: RunDirectory) -> dict[str, bytes]:
    """Return the files by which `AutoTokenizer.from_pretrained` finds the tokenizer of the run's dataset."""
    from barnraise.data.meta import META, Meta
    from barnraise.data.sat import BACKTRACKING, RECORD

    names = [info.name for info in Meta.read(run.data / META).files if info.name not in (RECORD, BACKTRACKING)]
    return {name: (run.data / name).read_bytes() for name in names}
