"""Reasons why a worker stops: for its owner, and for the controller, which may know no paths."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from barnraise.core.errors import BarnraiseError
from barnraise.worker.options import REASON, WorkerOptions
from barnraise.worker.shortage import shortage

_QUOTED = r"""(?P<quote>['"])(?:[A-Za-z]:)?[/\\][^'"\n]*(?P=quote)"""
_BARE = r"""(?<![\w<:/\\.])(?:[A-Za-z]:\\|~?/)[^\s'",;()]+"""
_PATH = re.compile(f"{_QUOTED}|{_BARE}")
"""A quoted absolute path, or one without blanks. Addresses such as zmq://host do not match."""


def reason_of(error: BaseException) -> str:
    """Return the error's description for the owner of the machine."""
    if isinstance(error, BarnraiseError):
        return str(error)
    return shortage(error) or f"{type(error).__name__}: {error}"


def told_outside(reason: str, options: WorkerOptions) -> str:
    """Return a reason for the controller, without the paths of this machine."""
    return without_paths(reason, (options.cache, options.cache.parent, Path.home()))[:REASON]


def without_paths(text: str, folders: Iterable[Path]) -> str:
    """Return `text` for the controller: a file in one of the `folders` by its name, any other path as <path>.

    >>> without_paths("/srv/ann/train.bin is short; [Errno 2] No such file: '/opt/my run/y'", [Path("/srv/ann")])
    'train.bin is short; [Errno 2] No such file: <path>'
    """
    for folder in folders:
        text = text.replace(f"{folder}/", "").replace(str(folder), "<path>")
    return _PATH.sub("<path>", text)
