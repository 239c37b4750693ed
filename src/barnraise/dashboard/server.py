"""The web server of a dashboard: in a thread of its own, on a socket that is bound before it starts."""

from __future__ import annotations

import errno
import logging
import socket
import threading
from contextlib import suppress

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from barnraise.core.errors import AddressError, BarnraiseError
from barnraise.core.text import printable
from barnraise.dashboard.access import Guard, is_loopback, token_of
from barnraise.dashboard.metrics import CONTENT_TYPE, exposition
from barnraise.dashboard.source import RunSource

USUAL_PORT = 8710
"""The port where none is named; a free one while another run has it."""

ANY = ("0.0.0.0", "::")
"""Addresses that stand for all of a machine's."""


def application(source: RunSource) -> Starlette:
    """Return the pages of one run."""

    async def metrics(request: Request) -> Response:
        try:
            content = await run_in_threadpool(lambda: exposition(source.look()))
        except BarnraiseError as error:
            return PlainTextResponse(f"the run cannot be read now: {printable(str(error), 500)}\n", 503)
        return Response(content, media_type=CONTENT_TYPE)

    return Starlette(routes=[Route("/metrics", metrics)])


class Dashboard:
    """Serves a run's dashboard at `url` while the context is open; `failed` is why it no longer does, if so."""

    def __init__(self, source: RunSource, host: str, port: int | None) -> None:
        """Bind a socket; `port` None takes the usual one, or a free one. Raises AddressError, StorageError."""
        token = "" if is_loopback(host) else token_of(source.run)
        self._source, self._socket = source, _bound(host, port)
        number = self._socket.getsockname()[1]
        self.url, self.failed = f"http://{f'[{host}]' if ':' in host else host}:{number}/", ""
        names = {"localhost", "127.0.0.1", "::1", host.lower()}
        if host in ANY:
            names |= {socket.gethostname().lower(), socket.getfqdn().lower(), *_addresses()}
        config = uvicorn.Config(
            Guard(application(source), frozenset(names), token), log_config=None, access_log=False, lifespan="off",
            server_header=False, limit_concurrency=100, timeout_graceful_shutdown=1,
        )  # fmt: skip
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="dashboard", daemon=True)

    def __enter__(self) -> Dashboard:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._server.should_exit = True
        self._thread.join(5.0)
        self._socket.close()
        self._source.close()

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except BaseException as error:  # the run continues without its dashboard
            self.failed = f"{type(error).__name__}: {error}"


def _addresses() -> set[str]:
    """Return this machine's addresses."""
    import psutil

    return {address.address.partition("%")[0].lower() for each in psutil.net_if_addrs().values() for address in each}


def _bound(host: str, port: int | None) -> socket.socket:
    """Return a listening socket. Raises AddressError."""
    wanted = USUAL_PORT if port is None else port
    try:
        return _listening(host, wanted)
    except OSError as error:
        if port is None and error.errno == errno.EADDRINUSE:
            with suppress(OSError):
                return _listening(host, 0)
        raise AddressError(
            f"the dashboard cannot listen on {host}:{wanted} ({error.strerror or error}): choose another "
            "dashboard.host or dashboard.port"
        ) from None


def _listening(host: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(128)
    except BaseException:
        made.close()
        raise
    return made
