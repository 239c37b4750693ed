"""The prefixes of a run file under which workers find copies of the run's files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec

from barnraise.config.data_sections import FileData
from barnraise.config.problems import Problem
from barnraise.config.schema import RunFile
from barnraise.wire.manifest import URL_LIMIT, Url

SCHEMES = ("https", "http", "s3")


def urls_of(run_file: RunFile) -> tuple[str, ...]:
    """Return the prefixes, in the order in which workers try them."""
    return tuple(run_file.data.urls) if isinstance(run_file.data, FileData) else ()


def url_problems(run_file: RunFile) -> Iterator[Problem]:
    """Yield what is wrong with the prefixes: they are on the ledger and reach every worker."""
    for index, url in enumerate(urls_of(run_file)):
        if why := fault(url):
            yield Problem(("data", "urls", index), why)


def fault(url: str) -> str | None:
    """Return what is wrong with a prefix; None when nothing is.

    >>> fault("https://example.org/run/"), fault("https://example.org/run")
    (None, "'https://example.org/run' does not end in a slash: the files' names follow it")
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        return f"'{url[:100]}' is no URL ({error})"
    if "@" in parts.netloc or parts.query or parts.fragment:
        bare = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        return (
            f"'{bare[:100]}' has a user, a password or a query beside it: every worker sees it; give a public address"
        )
    if parts.scheme not in SCHEMES:
        hint = "; a worker that has copies says so itself: join --base FOLDER" if parts.scheme in ("", "file") else ""
        return f"'{url[:100]}' begins with none of {', '.join(f'{one}://' for one in SCHEMES)}{hint}"
    if not parts.netloc or re.search(r"\s", url):
        return f"'{url[:100]}' names no server, or has spaces in it"
    if not parts.path.endswith("/"):
        return f"'{url[:100]}' does not end in a slash: the files' names follow it"
    try:
        msgspec.convert(url, Url)
    except msgspec.ValidationError:
        return (
            f"'{url[:100]}' is not as workers take it: lower-case https://, at most {URL_LIMIT} characters, no ? or #"
        )
    return None
