"""The files that a path, a folder or a glob pattern names, found one by one.

Links to folders are not followed.
"""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path


def files_of(pattern: str, root: Path | str = ".") -> Iterator[Path]:
    """Yield the files that `pattern` names, from `root`.

    `pattern` is a file, a folder (all but its hidden files) or a glob (`**` for any depth). A file may come twice where
    a pattern has two `**`. OSError where a folder cannot be read.
    """
    path = Path(root) / Path(pattern).expanduser()
    if path.is_file():
        yield path
    elif path.is_dir():
        yield from _matching(path, ["**"])
    elif glob.has_magic(str(path)):
        yield from _matching(Path(path.anchor or "."), path.relative_to(path.anchor).parts)


def dangling(pattern: str, root: Path | str = ".") -> bool:
    """Return whether `pattern` is a link that leads nowhere, or back to itself."""
    path = Path(root) / Path(pattern).expanduser()
    return path.is_symlink() and not os.path.exists(path)


def _matching(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    """Yield the files below `folder` whose path matches `parts`."""
    head, rest = parts[0], parts[1:]
    if head == "**":
        for place in _folders(folder):
            yield from _matching(place, rest or ["*"])
    elif not glob.has_magic(head):
        yield from _entered(folder / head, rest)
    elif folder.is_dir():
        for name in sorted(os.listdir(folder)):
            if fnmatch.fnmatchcase(name, head) and (name[0] != "." or head[0] == "."):
                yield from _entered(folder / name, rest)


def _entered(path: Path, rest: Sequence[str]) -> Iterator[Path]:
    if rest:
        yield from _matching(path, rest)
    elif path.is_file():
        yield path


def _folders(top: Path) -> Iterator[Path]:
    """Yield `top` and every folder below it but hidden ones."""
    for folder, names, _ in os.walk(top):
        names[:] = sorted(name for name in names if name[0] != ".")
        yield Path(folder)
