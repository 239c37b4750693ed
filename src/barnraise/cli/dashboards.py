"""The dashboard of a run while its controller works: on where it is wanted and installed, and told in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from barnraise.core.errors import AddressError, InputError, StorageError

if TYPE_CHECKING:
    from barnraise.assembly.hosting import Host  # it imports torch

NEEDED = ("prometheus_client", "segno", "starlette", "uvicorn")
"""Packages of the extra `dashboard`."""


def lacking() -> str:
    """Return what the dashboard lacks, and how to install it; empty where it is there."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    return (
        f"no dashboard: {', '.join(missing)} is not installed (pip install 'barnraise[dashboard]')" if missing else ""
    )


@contextmanager
def dashboard(host: Host, say: Callable[[str], None], warn: Callable[[str], None]) -> Iterator[None]:
    """Serve the run's dashboard while the context is open.

    The run continues without one where its extra is not installed, or its port is taken: that is told.
    """
    section = host.plan.run_file.dashboard
    if section.enabled is False:
        yield
        return
    if told := lacking():
        (warn if section.enabled else say)(told)
        yield
        return
    from barnraise.dashboard.server import Dashboard, TlsFiles
    from barnraise.dashboard.source import HostSource

    certificate = TlsFiles(section.certificate, section.key) if section.certificate and section.key else None
    try:
        made = Dashboard(HostSource(host), section.host, section.port, certificate)
    except (AddressError, StorageError, InputError) as error:
        warn(f"{error}; the run works without it")
        yield
        return
    with made:
        say(f"page: {made.entry}")
        say(f"metrics: {made.url}metrics")
        yield
        if made.failed:
            warn(f"the dashboard has failed: {made.failed}")
