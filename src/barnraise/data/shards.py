"""Token shards: a dataset as a folder of memory-mapped rows.

    meta.json            what the rows are (`Meta`), written last: a folder without it is not a dataset
    train-00000.bin ...  rows one after the other; a row of text is `length` token ids, little-endian uint16 (uint32
                         when the vocabulary needs it), others have the columns that meta.json names
    held_out.bin         the same, never trained on, rows of the longest length
    tokenizer.json ...   whatever is needed to read the tokens back

Rows are shuffled once, when they are written, so any contiguous range is a random sample. All rows of a shard are of
one length. Where there are several lengths, shards of each take turns, and the held-out rows are of the longest. A
dataset may come from another machine: names, sizes and token ids are checked before they are used, hashes when asked
for.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from msgspec import UNSET
from msgspec.structs import replace

from barnraise.core.errors import BarnraiseError, DataError, StorageError
from barnraise.core.files import fsync_directory, write_file
from barnraise.core.types import RowRange
from barnraise.data.columns import LENGTH, TOKENS, TRAINED, Rows, check_limits, filled, loaded, stored
from barnraise.data.lengths import SHARD_BYTES, named, shards_of
from barnraise.data.meta import (
    HELD_OUT,
    MAX_SHARD_BYTES,
    META,
    FileInfo,
    Format,
    Meta,
    Targets,
    check_name,
)
from barnraise.data.ranges import RowIndex, distinct

__all__ = [
    "Dataset",
    "FileInfo",
    "Format",
    "Meta",
    "RowIndex",
    "Targets",
    "labels",
    "row_lengths",
    "write",
]

IGNORED = -100  # the label that cross-entropy leaves out
_REMEDY = "put the file back from a copy, or make the dataset again"
_MAX_MAPS = 64  # every mapping holds a file descriptor

Chunk = npt.NDArray[Any] | Mapping[str, npt.NDArray[Any]]
"""Rows to write: token ids [any, length], or an array for each column by name."""


def write(
    folder: Path | str,
    form: Format,
    train: Iterable[Chunk] | None,
    held_out: Chunk | Iterable[Chunk],
    *,
    later: Sequence[Iterable[Chunk]] = (),
    lengths: Sequence[int] = (),
    files: Mapping[str, bytes] | Callable[[], Mapping[str, bytes]] | None = None,
    seed: int = 0,
    shard_bytes: int = SHARD_BYTES,
) -> Meta:
    """Write a dataset; the same input and seed give the same bytes.

    `train` yields arrays [any, context] of token ids, or [any, one of `lengths`], and is streamed to disk; None where
    the rows stay with their nodes;
    `held_out` is [n, context], or yields such arrays; both are shuffled with `seed`. Where rows have several
    columns, each chunk is an array for each column by name. The rows of each entry of `later` come in shards behind
    those of `train`, and are shuffled in themselves. `files` are the tokenizer's, by name; a function is called for
    them once all rows were taken. A dataset already in `folder` is replaced once the new one is whole; a folder
    with anything else in it is refused. Raises DataError (no rows, wrong shape, token id outside the vocabulary,
    unwritable folder) and StorageError (disk full).
    """
    form.check()
    folder = Path(folder).absolute()
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        _check_replaceable(folder)
        partial.mkdir(parents=True)
        rng = np.random.default_rng(seed)
        chunks = [held_out] if isinstance(held_out, np.ndarray | Mapping) else held_out
        held = np.concatenate([np.zeros(0, form.stored_type(form.context)), *_held(chunks, form)])
        if len(held) == 0 and train is not None:
            raise DataError(f"no held-out row of {form.context} tokens; give more data or a larger held-out share")
        parts = (*([train] if train is not None else []), *later)
        scattered = [_scattered(partial, form, part, lengths or (form.context,)) for part in parts]
        beside = files() if callable(files) else files or {}
        meta = _write(partial, form, scattered, held, files=beside, rng=rng, shard_bytes=shard_bytes)
        _replace(folder, partial)
    except OSError as error:
        raise _os_error(folder, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return meta


class Dataset:
    """A dataset folder opened for reading.

    Shards are mapped on first use; views stay valid after eviction.
    """

    def __init__(self, folder: Path, meta: Meta) -> None:
        """Use `Dataset.open`, which checks the folder."""
        self.folder, self.meta = folder, meta
        self.index = self.rows_from(0)
        self._maps: dict[str, Rows] = {}

    @classmethod
    def open(cls, folder: Path | str, *, verify: bool = False, partial: bool = False) -> Self:
        """Open a folder and check sizes against meta.json; with `verify` also every hash.

        `partial` accepts absent files, and treats those of a wrong length as absent (a worker fetches shards as tasks
        name them); asking for their rows is a DataError. Everything wrong with the folder is a DataError that names the
        file.
        """
        folder = Path(folder)
        try:
            meta = Meta.read(folder / META)
            for info in meta.contents():
                path = folder / info.name
                if partial and not (path.is_file() and path.stat().st_size == info.bytes):
                    continue
                check_file(folder, info, verify=verify)
        except OSError as error:
            raise _os_error(folder, error) from error
        return cls(folder, meta)

    @property
    def num_rows(self) -> int:
        """Return the number of training rows in all shards: one epoch."""
        return self.index.total

    def forget(self, name: str) -> None:
        """Drop the mapping of a deleted shard: its disk space is free once no view of it is used."""
        self._maps.pop(name, None)

    def rows_from(self, first: int) -> RowIndex:
        """Return the training rows as a circle that begins at row `first`."""
        shards = self.meta.shards
        lengths = [self.meta.row_length(shard) for shard in shards]
        ordered = self.meta.ordered is True
        return RowIndex([shard.rows for shard in shards], first, lengths=lengths, ordered=ordered)

    def rows(self, shard: int, start: int, stop: int) -> Rows:
        """Return rows start..stop-1 of a training shard, read-only: a structured array with a field for each column.

        The column `tokens` is [stop - start, the shard's row length].
        """
        if not 0 <= shard < len(self.meta.shards):
            raise DataError(f"shard {shard} asked for, but {self.folder} has shards 0 to {len(self.meta.shards) - 1}")
        info = self.meta.shards[shard]
        if not 0 <= start < stop <= info.rows:
            raise DataError(f"rows {start} to {stop} asked for, but {info.name} has rows 0 to {info.rows}")
        return self._checked_view(info, start, stop)

    def distinct(self, rows: Iterable[RowRange]) -> list[RowRange]:
        """Return ranges that hold each of these training rows once."""
        return distinct(rows)

    def held_out(self, limit: int | None = None) -> Rows:
        """Return the first `limit` held-out rows (all when None), as `rows` does."""
        info = self.meta.held_out
        return self._checked_view(info, 0, info.rows if limit is None else max(1, min(limit, info.rows)))

    def held_out_part(self, start: int, stop: int) -> Rows:
        """Return held-out rows start..stop-1, as far as there are any, as `rows` does."""
        info = self.meta.held_out
        return self._checked_view(info, start, min(stop, info.rows))

    def files(self) -> list[FileInfo]:
        """Return name, bytes and sha256 of every file that a worker on another machine needs; meta.json first."""
        content = (self.folder / META).read_bytes()
        return [_info(META, content), *self.meta.contents()]

    def _checked_view(self, info: FileInfo, start: int, stop: int) -> Rows:
        meta = self.meta
        rows = loaded(self._map(info)[start:stop], meta.fields, meta.row_length(info), meta.dtype_name)
        try:
            check_limits(rows, meta.fields, meta.vocab_size)
        except DataError as error:
            raise DataError(f"{self.folder / info.name} holds {error}; make the dataset again") from error
        return rows

    def _map(self, info: FileInfo) -> Rows:
        if info.name not in self._maps:
            try:
                check_file(self.folder, info)
                row, path = self.meta.stored_type(self.meta.row_length(info)), self.folder / info.name
                mapped = np.memmap(path, dtype=row, mode="r", shape=(info.rows,)) if info.rows else np.empty(0, row)
            except (OSError, ValueError) as error:
                raise DataError(f"{self.folder / info.name} cannot be read ({error})") from error
            if len(self._maps) >= _MAX_MAPS:
                del self._maps[next(iter(self._maps))]
            self._maps[info.name] = mapped
        return self._maps[info.name]


def labels(tokens: npt.NDArray[np.integer], form: Format) -> npt.NDArray[np.int64]:
    """Return the training labels of `tokens` [n, length] as int64 [n, length]: the tokens, or -100 for no target.

    Not shifted: Hugging Face models shift inside. Padding is never a target. With `form.targets`, only tokens strictly
    after an `after` token up to and including the next `until` token are; a row may hold several such regions.
    """
    ids = tokens.astype(np.int64)
    wanted = np.ones(ids.shape, dtype=bool)
    if form.targets is not None:
        opens, closes = ids == form.targets.after, ids == form.targets.until
        places = np.where(opens | closes, np.arange(ids.shape[1]), -1)
        last = np.maximum.accumulate(places, axis=1)[:, :-1]  # the last event before each token but the first
        wanted[:, 0] = False
        wanted[:, 1:] = (last >= 0) & np.take_along_axis(opens, np.maximum(last, 0), axis=1)
    if form.pad_id is not None:
        wanted &= ids != form.pad_id
    return np.where(wanted, ids, IGNORED)


def row_lengths(rows: Rows, form: Format) -> npt.NDArray[np.int64]:
    """Count the tokens of each row before the padding at its end: int64 [n]; a row of padding counts as full."""
    names = rows.dtype.names or ()
    if TRAINED in names:  # nothing is learnt behind the last of them
        behind = np.argmax(rows[TRAINED][:, ::-1], axis=1)
        return np.asarray(rows[TRAINED].shape[1] - behind, np.int64)
    tokens = rows[TOKENS] if TOKENS in names else None
    if tokens is None or form.pad_id is None:
        return np.full(len(rows), form.context if tokens is None else tokens.shape[1])
    filled = tokens != form.pad_id
    lengths: npt.NDArray[np.int64] = tokens.shape[1] - np.argmax(filled[:, ::-1], axis=1)
    return lengths


def check_file(folder: Path, info: FileInfo, *, verify: bool = False) -> None:
    """Raise DataError unless `folder` holds the file of `info`: its size, and with `verify` its sha256."""
    path = folder / info.name
    if not path.is_file():
        raise DataError(f"{path} is missing; {_REMEDY}")
    size = path.stat().st_size
    if size != info.bytes:
        raise DataError(f"{path} has {size} bytes, but {META} says {info.bytes}; {_REMEDY}")
    if verify:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != info.sha256:
            raise DataError(f"{path} does not match its sha256 in {META}, it is damaged; {_REMEDY}")


def _held(chunks: Iterable[Chunk], form: Format) -> Iterator[Rows]:
    """Yield held-out rows as they lie in a file."""
    return (_checked(chunk, form, (form.context,))[1] for chunk in chunks)


def _scattered(folder: Path, form: Format, train: Iterable[Chunk], lengths: Sequence[int]) -> dict[int, Rows]:
    """Return the rows of `train` by their length, in files of their own; DataError where a length has none."""
    paths = {length: folder / f"rows-{length}" for length in lengths}
    with ExitStack() as stack:
        files = {length: stack.enter_context(path.open("wb")) for length, path in paths.items()}
        for chunk in train:
            length, rows = _checked(chunk, form, lengths)
            files[length].write(rows.tobytes())
    found: dict[int, Rows] = {}
    for length, path in paths.items():
        count = path.stat().st_size // form.row_bytes(length)
        if count == 0:
            raise DataError(f"no training row of {length} tokens; give more data or a smaller context")
        found[length] = np.memmap(path, dtype=form.stored_type(length), mode="r", shape=(count,))
        path.unlink()  # the mapping keeps its bytes
    return found


def _write(
    folder: Path,
    form: Format,
    train: Sequence[Mapping[int, Rows]],
    held: Rows,
    *,
    files: Mapping[str, bytes],
    rng: np.random.Generator,
    shard_bytes: int,
) -> Meta:
    size = min(shard_bytes, MAX_SHARD_BYTES)
    most = min(size * length // form.row_bytes(length) for part in train for length in part) if train else 1
    shards: list[FileInfo] = []
    for number, (length, shard) in enumerate(chain.from_iterable(_shuffled(part, most, rng) for part in train)):
        info = _put(folder, f"train-{number:05d}.bin", shard.tobytes(), rows=len(shard))
        shards.append(replace(info, length=UNSET if length == form.context else length))
    held_info = _put(folder, HELD_OUT, held[rng.permutation(len(held))].tobytes(), rows=len(held))
    infos = [_put(folder, check_name(name), content) for name, content in sorted(files.items())]
    meta = Meta.of(form, shards=shards, held_out=held_info, files=infos)
    _put(folder, META, meta.encode())
    return meta


def _check_replaceable(folder: Path) -> None:
    """Raise DataError unless `folder` is absent, empty, or only a dataset: nothing else is ever deleted."""
    if not folder.exists():
        return
    found = {path.name for path in folder.iterdir()}
    if META in found:
        try:
            found -= {META, *(info.name for info in Meta.read(folder / META).contents())}
        except DataError:
            found = {META}  # from another program, or too damaged to tell which files belong to it
    if found:
        raise DataError(f"{folder} holds other files ({min(found)}); give an empty or new folder")


def _replace(folder: Path, new: Path) -> None:
    old = new.with_suffix(".old")
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    fsync_directory(folder.parent)
    if old.exists():
        shutil.rmtree(old)


def _checked(chunk: Chunk, form: Format, lengths: Sequence[int]) -> tuple[int, Rows]:
    """Return the length of a chunk's rows, and the rows as they lie in a file; DataError unless they fit the format."""
    arrays = chunk if isinstance(chunk, Mapping) or chunk.dtype.names else {TOKENS: chunk}
    names, wanted = list(arrays if isinstance(arrays, Mapping) else arrays.dtype.names or ()), form.fields
    if sorted(names) != sorted(column.name for column in wanted):
        columns = ", ".join(column.name for column in wanted)
        raise DataError(f"rows with the columns {', '.join(names)} given, but the dataset has {columns}")
    length = form.context
    for column in wanted:
        if LENGTH in column.shape:
            shape, axis = arrays[column.name].shape, 1 + column.shape.index(LENGTH)
            if len(shape) != 1 + len(column.shape) or shape[axis] not in lengths:
                has = f"the dataset has rows of {named(lengths)} tokens"
                raise DataError(f"rows of shape {list(shape)} given, but {has}")
            length = shape[axis]
            break
    rows = filled(arrays, wanted, length, form.vocab_size, form.dtype_name)
    return length, stored(rows, wanted, length, form.dtype_name)


def _shuffled(train: Mapping[int, Rows], most: int, rng: np.random.Generator) -> Iterator[tuple[int, Rows]]:
    """Yield the length and the rows of each shard of at most `most` tokens; rows of a length are in random order."""
    layout = shards_of({length: len(rows) for length, rows in train.items()}, most)
    orders = {length: rng.permutation(len(rows)) for length, rows in train.items()}
    for length, count in layout:
        chosen, orders[length] = orders[length][:count], orders[length][count:]
        yield length, train[length][np.sort(chosen)][rng.permutation(count)]


def _info(name: str, content: bytes, rows: int = 0) -> FileInfo:
    return FileInfo(name=name, rows=rows, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def _put(folder: Path, name: str, content: bytes, rows: int = 0) -> FileInfo:
    write_file(folder / name, content)
    return _info(name, content, rows)


def _os_error(folder: Path, error: OSError) -> BarnraiseError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        return StorageError(f"{folder}: {error.strerror}; free some space", "then make the dataset again")
    return DataError(f"{folder}: {error.strerror or error}; check the path and its permissions")
