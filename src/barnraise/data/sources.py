"""The sources of examples that a data section names: files, folders, `datasets` folders, and how often each is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from barnraise.config.data_sections import Fields, FileData, HeldOut
from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import DataError
from barnraise.data.paths import dangling, files_of
from barnraise.data.records import RecordFile, record_file

_DICT, _STATE = "dataset_dict.json", "state.json"
_DESCRIPTIONS = {_DICT, _STATE, "dataset_info.json", "dataset_infos.json", "metadata.json", "package.json"}
"""Files of a `datasets` folder or a repository that describe it, and hold no examples."""


_SPLIT = re.compile(r"(?:^|[^a-z])(train|test|validation|valid|val|dev|eval)(?:[^a-z]|$)", re.IGNORECASE)


class Source(NamedTuple):
    """Files of examples that have the same fields and are read equally often."""

    name: str
    files: list[RecordFile]
    fields: Fields
    held_out: bool = False
    weight: float | None = None
    epochs: float = 1.0


def sources_of(data: FileData, root: Path | str = ".") -> list[Source]:
    """Return the sources of a data section: those of held-out examples first, then those to train on.

    The order of files is that of the patterns, and of their paths within one. Raises DataError where a pattern names
    nothing, or a file that holds no records.
    """
    found = []
    kept = data.held_out.files if isinstance(data.held_out, HeldOut) else []
    if kept:
        found.append(Source("held_out", record_files(kept, root), data.fields, held_out=True))
    apart = {file.path.resolve() for source in found for file in source.files}
    if data.files:
        found.append(Source("files", record_files(data.files, root, apart), data.fields))
    for number, entry in enumerate(data.mixture):
        files = record_files(entry.files, root, apart)
        found.append(
            Source(
                f"mixture[{number}]",
                files,
                entry.fields or data.fields,
                weight=entry.weight,
                epochs=entry.epochs or 1.0,
            )
        )
    return found


def only_text(patterns: Iterable[str], root: Path | str = ".") -> bool:
    """Return whether all files are plain text, and none has records; DataError as `sources_of`."""
    return not any(record_file(path, name) for pattern in patterns for path, name, _ in _named(pattern, Path(root)))


def record_files(patterns: Iterable[str], root: Path | str = ".", apart: Iterable[Path] = ()) -> list[RecordFile]:
    """Return the record files that patterns name, each once, without those in `apart`; DataError as `sources_of`."""
    seen, found = set(apart), []
    for pattern in patterns:
        for path, name, listed in _named(pattern, Path(root)):
            if (place := path.resolve()) in seen:
                continue
            seen.add(place)
            file = record_file(path, name) if path.stat().st_size else None
            if file is not None:
                found.append(file)
            elif listed and path.stat().st_size:
                raise DataError(
                    f"{name} is plain text, which has no records; give JSONL, CSV, Parquet or Arrow, or leave it out "
                    "(`jq -Rs '{text: .}' FILE > FILE.jsonl` makes a record of a text)"
                )
    if not found and not apart:
        raise DataError(f"{', '.join(patterns)}: no file with records; give JSONL, CSV, Parquet or Arrow files")
    return found


def _named(pattern: str, root: Path) -> Iterator[tuple[Path, str, bool]]:
    """Yield the files of a pattern with their names for messages, and whether the pattern names files, not a folder.

    A folder with splits gives those of the split `train`.
    """
    folder = root / Path(pattern).expanduser()
    if (folder / _DICT).is_file():
        splits = _described(folder / _DICT).get("splits", [])
        if "train" not in splits:
            names = ", ".join(f"{pattern}/{split}" for split in splits) or "none"
            raise DataError(f"{pattern} has no split named train; name one itself: {names}")
        folder = folder / "train"
    if (folder / _STATE).is_file() and (parts := _described(folder / _STATE).get("_data_files")):
        found = [folder / Path(part["filename"]).name for part in parts]
        if missing := next((path for path in found if not path.is_file()), None):
            raise DataError(f"{pattern} is not whole: {missing.name} is missing; copy the folder again")
    elif folder.is_dir():
        found = _of_train(sorted(path for path in files_of(str(folder)) if path.name not in _DESCRIPTIONS))
    else:
        found = sorted(files_of(pattern, root))
    if not found and dangling(pattern, root):
        raise DataError(f"'{pattern}' is a link that leads nowhere or back to itself; name a file")
    if not found:
        raise DataError(f"no file matches '{pattern}' (looked in {root.resolve()}); check the path")
    for path in found:
        yield path, str(path.relative_to(root) if path.is_relative_to(root) else path), not folder.is_dir()


def _of_train(files: list[Path]) -> list[Path]:
    """Return the files of a folder without those of other splits, where some have `train` in their names."""
    splits = [found[1].lower() if (found := _SPLIT.search(path.name)) else "" for path in files]
    if "train" not in splits:
        return files
    return [path for path, split in zip(files, splits, strict=True) if split in ("", "train")]


def _described(path: Path) -> dict[str, Any]:
    """Return what a file of a `datasets` folder says; DataError where it is damaged."""
    try:
        found = msgspec.json.decode(path.read_bytes())
    except (OSError, *MALFORMED) as error:
        raise DataError(f"{path} cannot be read ({error}); save the dataset again with save_to_disk") from error
    return found if isinstance(found, dict) else {}
