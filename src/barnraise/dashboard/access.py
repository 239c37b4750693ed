"""Access to a dashboard: this machine has it without more ado, others with the run's token."""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from contextlib import suppress

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from barnraise.core.text import printable
from barnraise.ledger import RunDirectory

TOKEN = "dashboard.token"
"""The file of a run's token, among its keys."""

HEADERS = {
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
}


class Guard:
    """Answers the requests that may be answered, and adds HEADERS to each answer.

    A request names this server as its host, by one of `names`: else another site's page could read it by a name of its
    own (DNS rebinding). Where there is a `token`, it has that too: `Authorization: Bearer TOKEN`.
    """

    def __init__(self, app: ASGIApp, names: frozenset[str], token: str = "") -> None:
        self._app, self._names, self._token = app, names, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS.items()]
            await send(message)

        refused = self._refusal({name: value.decode("latin-1") for name, value in scope["headers"]})
        await (self._app if refused is None else refused)(scope, receive, guarded)

    def _refusal(self, headers: dict[bytes, str]) -> PlainTextResponse | None:
        host = headers.get(b"host", "")
        if name_of(host) not in self._names:
            told = f"this server is not called {printable(host, 80) or 'nothing'}: use its address, or localhost\n"
            return PlainTextResponse(told, 421)
        kind, _, given = headers.get(b"authorization", "").partition(" ")
        if self._token and not (kind.lower() == "bearer" and hmac.compare_digest(given.encode(), self._token.encode())):
            told = "a token is needed, or this one is wrong: the host finds it in RUN_DIR/keys/dashboard.token\n"
            return PlainTextResponse(told, 401, {"WWW-Authenticate": "Bearer"})
        return None


def name_of(host: str) -> str:
    """Return the name in a Host header, without its port.

    >>> name_of("localhost:8710"), name_of("[::1]:8710"), name_of("::1")
    ('localhost', '::1', '::1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return (host if host.count(":") > 1 else host.partition(":")[0]).lower()


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches the address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("lab.example.org")
    (True, True, False, False)
    """
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def token_of(run: RunDirectory) -> str:
    """Return the run's token, the same each time. Raises StorageError."""
    with suppress(OSError, UnicodeDecodeError):
        known = (run.keys / TOKEN).read_text().strip()
        if re.fullmatch(r"[0-9a-f]{64}", known):
            return known
    made = secrets.token_hex(32)
    run.write_key(TOKEN, f"{made}\n".encode())
    return made
