"""A run's model in the form of other programs, while it runs or afterwards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from barnraise import __version__
from barnraise.account.account import manifest, read
from barnraise.assembly.opening import require_key
from barnraise.core.errors import CorruptionError, InputError, UnknownNameError
from barnraise.core.files import private
from barnraise.data.chat_template import TEMPLATE_FILE
from barnraise.data.meta import META, Meta
from barnraise.exports.gguf_vocabulary import template_of
from barnraise.exports.model_card import CARD, CardOf, card, may_write
from barnraise.ledger import Checkpoints, LedgerView, RunDirectory, StoredCheckpoint
from barnraise.models.exchange.catalog import FORM_ALIASES, FORMS, GGUF, MODEL
from barnraise.models.problems import is_own

if TYPE_CHECKING:
    from barnraise.assembly.export_forms import ExportSource
    from barnraise.exports.round_trip import RoundTrip


@dataclass(frozen=True)
class Exported:
    """The exported version and folder; `newest` is the ledger's newest version, perhaps without a checkpoint.

    `checked` is the result of the round trip, None where there was none.
    """

    folder: Path
    version: int
    newest: int
    model_size: int
    checked: RoundTrip | None = None


def export_model(
    run: RunDirectory,
    folder: Path | None = None,
    version: int | None = None,
    *,
    form: str = MODEL,
    kind: str | None = None,
    round_trip: bool = False,
    key_file: Path | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> Exported:
    """Write the model of `version` (the newest checkpoint) to `folder`, RUN_DIR/model unless given.

    `form` is one of `FORMS`, whose default folders are RUN_DIR/adapter and RUN_DIR/gguf; `kind` is the type of a GGUF
    file's matrices. It is the average of the versions up to it where the run keeps one. With `round_trip` the written
    files are loaded, and must continue held-out texts as the trained model does. `key_file` decrypts the model of a run
    whose updates are encrypted. Raises InputError for a version
    without a checkpoint and a model that the form cannot hold, CorruptionError when there is no good checkpoint,
    StorageError when the folder cannot be written, ExportError for files that do not pass. `warn` gets messages about
    rejected checkpoints, and about what the files do not hold or the round trip does not compare.
    """
    run.require_real("export")
    form = FORM_ALIASES.get(form, form)
    if form not in FORMS:
        raise UnknownNameError("form of an exported model", form, {*FORMS, *FORM_ALIASES})
    if kind is not None and form != GGUF:
        raise InputError(f"--type {kind} is a type of a GGUF file, but the form is {form}; add --as {GGUF}")
    folder = (folder or (run.model if form == MODEL else run.path / form)).absolute()
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, but a model is a folder: give another with --to FOLDER")
    require_key(run, key_file)
    told, checkpoint = manifest(run), _checkpoint(run, version, warn)
    if is_own(told.model):
        from barnraise.assembly.own_export import export_own
        from barnraise.models import memory

        with private() if folder.is_relative_to(run.path) else nullcontext():
            export_own(run, folder, told, checkpoint, form=form, warn=warn)
        version = checkpoint.manifest.version
        return Exported(folder, version, _newest(run, version, warn), memory.model_size(told.model))
    from transformers.utils import logging

    from barnraise.assembly.export_forms import ExportSource, write
    from barnraise.models import memory

    logging.disable_progress_bar()
    version, size = checkpoint.manifest.version, memory.model_size(told.model)
    source = ExportSource.of(run, told, chat_template(tokenizer_files(run)), warn, key_file)
    if may_write(folder / CARD):
        source = source.with_file(
            CARD,
            _card(
                source, CardOf(__version__, version, size, source.base, *source.use(form, folder, kind or "f16")), warn
            ),
        )
    with private() if folder.is_relative_to(run.path) else nullcontext():
        checked = write(source, folder, checkpoint, form, kind, round_trip=round_trip)
    return Exported(folder, version, _newest(run, version, warn), size, checked)


def _card(source: ExportSource, of: CardOf, warn: Callable[[str], None]) -> bytes | None:
    """Return the model card; None where the ledger is damaged."""
    try:
        return card(read(source.run), source.told, Meta.read(source.run.data / META), of).encode()
    except CorruptionError as error:
        warn(f"no model card is written: {error}")
        return None


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
    from barnraise.data.questions import QUESTIONS
    from barnraise.data.sat.dataset import RECORD, is_set_file

    others = (RECORD, QUESTIONS)
    names = [info.name for info in Meta.read(run.data / META).files]
    names = [name for name in names if name not in others and not is_set_file(name)]
    return {name: (run.data / name).read_bytes() for name in names}


def chat_template(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return a tokenizer's files with the chat template in a file of its own, where it has one."""
    template = template_of(files)
    return files if template is None else files | {TEMPLATE_FILE: template.encode()}
