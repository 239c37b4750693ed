"""The dashboard of a run while its controller works: on where it is wanted and installed, and told in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from barnraise.core.errors import AddressError, StorageError

if TYPE_CHECKING:
    from barnraise.assembly.hosting import Host  # it imports torch

NEEDED = ("prometheus_client", "starlette", "uvicorn")
"""Packages of the extra `dashboard`."""


@contextmanager
def dashboard(host: Host, say: Callable[[str], None], warn: Callable[[str], None]) -> Iterator[None]:
    """Serve the run's dashboard while the context is open.

    The run continues without one where its extra is not installed, or its port is taken: that is told.
    """
    section = host.plan.run_file.dashboard
    if section.enabled is False:
        yield
        return
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        told = f"no dashboard: {', '.join(missing)} is not installed (pip install 'barnraise[dashboard]')"
        (warn if section.enabled else say)(told)
        yield
        return
    from barnraise.dashboard.server import Dashboard
    from barnraise.dashboard.source import HostSource

    try:
        made = Dashboard(HostSource(host), section.host, section.port)
    except (AddressError, StorageError) as error:
        warn(f"{error}; the run works without it")
        yield
        return
    with made:
        say(f"metrics: {made.url}metrics")
        yield
        if made.failed:
            warn(f"the dashboard has failed: {made.failed}")
