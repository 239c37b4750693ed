"""The files of text data: existence, readability, kind, and the approximate number of rows."""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from barnraise.config.data_sections import (
    ChatData,
    Fields,
    FileData,
    HeldOut,
    InstructData,
    RowsData,
    SatData,
    TokenizedData,
)
from barnraise.config.problems import Path as Key
from barnraise.config.problems import Problem
from barnraise.config.schema import RunFile
from barnraise.config.site_sections import SiteData
from barnraise.core.errors import DataError, nearest
from barnraise.core.types import MOST_ROW_RANGES
from barnraise.data.lengths import named
from barnraise.data.paths import dangling, files_of
from barnraise.data.recognise import recognise
from barnraise.plan.dataset import data_problems, mean_row, row_lengths, sat_options, tokenizer_of, vocabulary
from barnraise.plan.sat import sat_rows

BYTES_A_TOKEN = 4
"""Bytes of text a token, for a tokenizer that is not `bytes`."""

MASK_BITS = 2
"""Bits of a token in the masks of rows with examples."""

MOST_OPENED = 1000
"""Files of a pattern that are opened before a run; all are when the dataset is made."""


def file_problems(run_file: RunFile) -> Iterator[Problem]:
    """Yield the problems of the files that the data section names."""
    data = run_file.data
    if isinstance(data, TokenizedData):
        yield from _tokenizer_problems(data)
    if isinstance(data, SiteData):
        yield from _public_problems(data)
    if not isinstance(data, FileData):
        return
    lengths = row_lengths(run_file)
    total, need = 0, sum(lengths) + lengths[-1]  # a row of each, and one held out; a token is at least a byte
    yield from _contradictions(data)
    records = data.kind != "text" or _has_records(data)
    need = 0 if records else need  # the size of records says little of their text
    for key, pattern, fields in named_files(data):
        more = files_of(pattern)
        files = list(islice(more, MOST_OPENED))
        if not files:
            why = _nothing(pattern)
        else:
            why = _record_fault(data, pattern, fields) if records else _not_text(files)
        if why:
            yield Problem(key, why)
            need = 0
        total += sum(map(_size, files))
        while total < need and (file := next(more, None)) is not None:
            total += _size(file)
    if total < need and (data.files or data.mixture):
        rows = f"two rows of {lengths[0]}" if len(lengths) == 1 else f"rows of {named((*lengths, lengths[-1]))}"
        text = f"hold {total} bytes, but {rows} tokens need {need}; give more text, or lower context"
        yield Problem(("data", "files"), text)


def _tokenizer_problems(data: TokenizedData) -> Iterator[Problem]:
    """Yield the problem of a tokenizer that is not there."""
    if data.tokenizer not in (None, "bytes") and not Path(data.tokenizer).expanduser().exists():
        text = f"there is no tokenizer at '{data.tokenizer}'{near(data.tokenizer)}; give `bytes`, or a folder or file"
        yield Problem(("data", "tokenizer"), text)


def _public_problems(data: SiteData) -> Iterator[Problem]:
    """Yield the problems of the host's own held-out files."""
    for at, pattern in enumerate(data.public_held_out):
        files = list(islice(files_of(pattern), MOST_OPENED))
        if why := _not_text(files) if files else _nothing(pattern):
            yield Problem(("data", "public_held_out", at), why)


def empty_files(run_file: RunFile) -> Iterator[Problem]:
    """Yield a warning for each file that is named itself, and is empty."""
    for key, name, _ in named_files(run_file.data) if isinstance(run_file.data, FileData) else []:
        path = Path(name).expanduser()
        if path.is_file() and not _size(path):
            yield Problem(key, f"'{name}' is empty")


def named_files(data: FileData) -> Iterator[tuple[Key, str, Fields]]:
    """Yield the key and the text of every file, folder or pattern for training or evaluation, and its fields' names."""
    yield from ((("data", "files", at), pattern, data.fields) for at, pattern in enumerate(data.files))
    for number, entry in enumerate(data.mixture):
        for at, pattern in enumerate(entry.files):
            yield ("data", "mixture", number, "files", at), pattern, entry.fields or data.fields
    if isinstance(data.held_out, HeldOut):
        for at, pattern in enumerate(data.held_out.files):
            yield ("data", "held_out", "files", at), pattern, data.fields


def _contradictions(data: FileData) -> Iterator[Problem]:
    """Yield problems of keys that exclude or need each other."""
    if data.files and data.mixture:
        yield Problem(("data", "files"), "is given beside data.mixture; move it into the mixture as a source")
    if not data.files and not data.mixture:
        yield Problem(("data", "files"), "is missing; give a list of files, folders or patterns, or a data.mixture")
    weights = [number for number, entry in enumerate(data.mixture) if entry.weight is not None]
    if weights and len(weights) < len(data.mixture):
        without = next(number for number in range(len(data.mixture)) if number not in weights)
        text = f"has no weight, but data.mixture[{weights[0]}] has one; give a weight to all sources, or to none"
        yield Problem(("data", "mixture", without), text)
    for number, entry in enumerate(data.mixture):
        if entry.weight is not None and entry.epochs is not None:
            text = "has a weight and epochs; keep one: a weight tells the epochs"
            yield Problem(("data", "mixture", number), text)
    if isinstance(data.held_out, HeldOut):
        yield from _choices(data.held_out)


def _choices(held_out: HeldOut) -> Iterator[Problem]:
    """Yield problems of a choice of held-out examples that says too little or too much."""
    place = ("data", "held_out")
    chosen = [name for name in ("share", "files", "field") if getattr(held_out, name)]
    if len(chosen) != 1:
        has = f"has {' and '.join(chosen)}" if chosen else "has no choice"
        yield Problem(place, f"{has}; give one of share, files or field")
    if held_out.by is not None and held_out.share is None:
        yield Problem((*place, "by"), "counts only beside a share; give `share` too, or leave it out")
    if bool(held_out.values) != (held_out.field is not None):
        yield Problem(place, "needs both `field` and `values`, as in {field: split, values: [test]}")


def training_rows(run_file: RunFile, enough: float = math.inf) -> int:
    """Estimate the rows to train on, counted until there are `enough`; 0 where the files do not tell."""
    data = run_file.data
    if isinstance(data, RowsData | SiteData):
        return 0
    if not isinstance(data, FileData):
        return sat_rows(run_file)
    token_bytes = (1 if tokenizer_of(run_file) == "bytes" else BYTES_A_TOKEN) / (1 - held_out_share(data))
    size, row_bytes = 0, mean_row(run_file) * token_bytes
    trained = [*data.files, *(pattern for entry in data.mixture for pattern in entry.files)]
    sizes = (size for pattern in trained for size in map(_size, files_of(pattern)))
    while size < enough * row_bytes and (more := next(sizes, None)) is not None:
        size += more
    return int(size / row_bytes)


def held_out_share(data: FileData) -> float:
    """Return the share of the examples that is held out: 0 where files or a field tell, which is not known yet."""
    held_out = data.held_out
    return (held_out.share or 0.0) if isinstance(held_out, HeldOut) else held_out


def dataset_bytes(run_file: RunFile) -> int:
    """Estimate the bytes of the dataset on the disk: all rows, held-out ones included, as token ids.

    Rows of conversations and prompts have masks too: which tokens are learnt, and where examples begin. 0 for the rows
    of a problem, which only it knows.
    """
    token_bytes = 2 if vocabulary(run_file).size <= 1 << 16 else 4
    data = run_file.data
    if isinstance(data, RowsData | SiteData):
        return 0
    share, others = (held_out_share(data), 0) if isinstance(data, FileData) else (0.0, data.held_out)
    rows = training_rows(run_file) / (1 - share) + others
    packed = sat_options(run_file).packing if isinstance(data, SatData) else isinstance(data, ChatData | InstructData)
    masks = MASK_BITS / 8 if packed else 0.0
    return int(rows * mean_row(run_file) * (token_bytes + masks))


def few_rows(run_file: RunFile) -> Iterator[Problem]:
    """Yield a warning when a task would pass over all rows too often."""
    if data_problems(run_file):
        return  # no rows can be counted
    training = run_file.training
    wanted = training.local_steps * training.step_rows
    rows = training_rows(run_file, enough=wanted / MOST_ROW_RANGES + 1)
    most = MOST_ROW_RANGES * rows
    if 0 < most < wanted:
        text = (
            f"is {training.local_steps}, but the data has about {rows} rows, and a task goes around them at most "
            f"{MOST_ROW_RANGES} times: it will be of about {max(1, most // training.step_rows)} steps; "
            "give more data, or lower local_steps or batch_size"
        )
        yield Problem(("training", "local_steps"), text)


def near(pattern: str) -> str:
    """Return a suggestion for a path that does not exist, as the end of a sentence."""
    path = Path(pattern).expanduser()
    if not path.parent.is_dir():
        if glob.has_magic(pattern):
            return "; put text files there, or name others"
        return f" (there is no folder {path.parent})"
    close = nearest(path.name, os.listdir(path.parent))
    return f"; did you mean '{path.with_name(close)}'?" if close else ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # deleted in the meantime
        return 0


def _nothing(pattern: str) -> str:
    if dangling(pattern):
        return f"'{pattern}' is a link that leads nowhere or back to itself; name a file"
    return f"no file matches '{pattern}' in {Path.cwd()}{near(pattern)}"


def _not_text(files: list[Path]) -> str:
    """Return why the first file that is not text cannot be trained on, and the number of others; empty for none."""
    found = [(path, why) for path in files if (why := _refused(path))]
    if not found:
        return ""
    path, why = found[0]
    more = f" ({len(found) - 1} more file{'s' * (len(found) > 2)} cannot be trained on either)" if found[1:] else ""
    return f"'{path}' {why}{more}"


def _refused(path: Path) -> str:
    try:
        found = recognise(path)
    except OSError as error:
        return f"cannot be read ({error.strerror}); change its permissions, or leave it out"
    return f"is {found}" if found else ""


def _has_records(data: FileData) -> bool:
    """Return whether a file that the data section names holds records that can be read."""
    for _, pattern, _ in named_files(data):
        for path in islice(files_of(pattern), MOST_OPENED):
            with suppress(OSError):
                if (found := recognise(path)) and found.form:
                    return True
    return False


def _record_fault(data: FileData, pattern: str, fields: Fields) -> str:
    """Return why the files of a pattern cannot be read, or why the first record of one makes no example."""
    from barnraise.data.gathering import first_fault  # brings numpy, which text does not need here

    try:
        return first_fault(data, pattern, fields)
    except DataError as error:
        return str(error)
