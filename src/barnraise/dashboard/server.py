"""The web server of a dashboard: in a thread of its own, on a socket that is bound before it starts."""

from __future__ import annotations

import errno
import logging
import socket
import ssl
import threading
from contextlib import suppress
from typing import Any, NamedTuple

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from barnraise.core.errors import AddressError, InputError
from barnraise.dashboard.access import Guard, is_loopback, token_of
from barnraise.dashboard.acting import Acting
from barnraise.dashboard.feed import Feed
from barnraise.dashboard.outlook import Outlook
from barnraise.dashboard.pages import Pages
from barnraise.dashboard.source import RunSource
from barnraise.dashboard.trial import Trials

USUAL_PORT = 8710
"""The port where none is named; a free one while another run has it."""

ANY = ("0.0.0.0", "::")
"""Addresses that stand for all of a machine's."""

MOST_REQUESTS, HEAD_SECONDS = 500, 10.0
"""Connections at one time: each open page has two that never end. Seconds in which a connection has to ask for
something: strangers could hold each file that the controller may open."""


class Bounded(H11Protocol):
    """A connection of a browser: there are MOST_REQUESTS at most, and each asks for something within HEAD_SECONDS."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > MOST_REQUESTS:
            transport.abort()
            return
        self._watch(None)

    def _watch(self, before: object) -> None:
        """End a connection that asked for nothing since the last look, and whose last answer is over."""
        if self.transport.is_closing():
            return
        idle = self.cycle is None or self.cycle.response_complete
        if idle and before is (self.cycle or self):
            self.transport.abort()
            return
        self.loop.call_later(HEAD_SECONDS, self._watch, (self.cycle or self) if idle else None)


class TlsFiles(NamedTuple):
    """The files of a certificate and of its key, in PEM."""

    chain: str
    key: str


class Dashboard:
    """Serves a run's dashboard at `url` while the context is open; `failed` is why it no longer does, if so.

    `entry` is the address that opens it for the host, with the run's token.
    """

    def __init__(self, source: RunSource, host: str, port: int | None, certificate: TlsFiles | None = None) -> None:
        """Bind a socket; `port` None takes the usual one, or a free one.

        Raises AddressError, StorageError, InputError for a certificate that cannot be used.
        """
        key = token_of(source.run)
        secure = _checked(certificate)
        self._source, self._socket = source, _bound(host, port)
        self._trials, self._outlook = Trials(source.run), Outlook(source.run)
        number = self._socket.getsockname()[1]
        named = f"[{host}]" if ":" in host else host
        self.url, self.failed = f"http{'s' if secure else ''}://{named}:{number}/", ""
        self.entry = f"{self.url}?token={key}"
        names = {"localhost", "127.0.0.1", "::1", host.lower()}
        if host in ANY:
            names |= {socket.gethostname().lower(), socket.getfqdn().lower(), *_addresses()}
        self._feed = Feed(source, self._outlook.of)
        pages = Pages(self._feed, Acting(source.run, key), self._trials)
        guard = Guard(pages.application(), frozenset(names), key, local=is_loopback(host), secure=secure)
        config = uvicorn.Config(
            guard, log_config=None, access_log=False, lifespan="off", server_header=False,
            limit_concurrency=MOST_REQUESTS, timeout_graceful_shutdown=1,
            http=Bounded, ws="none",
            ssl_certfile=certificate and certificate.chain, ssl_keyfile=certificate and certificate.key,
        )  # fmt: skip
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="dashboard", daemon=True)

    def __enter__(self) -> Dashboard:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._source.stop()
        self._feed.stop()
        self._server.should_exit = True
        self._thread.join(5.0)
        self._socket.close()
        self._trials.close()
        self._outlook.close()
        self._source.close()

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except BaseException as error:  # the run continues without its dashboard
            self.failed = f"{type(error).__name__}: {error}"


def _checked(certificate: TlsFiles | None) -> bool:
    """Return whether there is a certificate. Raises InputError where it cannot be used."""
    if certificate is None:
        return False
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate.chain, certificate.key, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        raise InputError(
            f"dashboard.certificate {certificate.chain} with dashboard.key {certificate.key} cannot be used "
            f"({error.strerror or error}): give a certificate and its key, in PEM, without a password"
        ) from None
    return True


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
