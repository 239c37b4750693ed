"""Access to a dashboard: this machine may read without more ado, all else takes a token."""

from __future__ import annotations

import ipaddress
import re
import secrets
from contextlib import suppress
from urllib.parse import parse_qs, urlencode

from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from barnraise.core.errors import InputError, StorageError
from barnraise.core.text import printable
from barnraise.dashboard import passes
from barnraise.dashboard.passes import LOCAL, Pass
from barnraise.ledger import RunDirectory

TOKEN = "dashboard.token"
"""The file of a run's token, among its keys."""

HEADERS = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"cross-origin-resource-policy": b"same-origin",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
}

MARK = b"x-barnraise"
"""A header of each request that changes something: another site's page cannot send it without being asked first."""

FORWARDED = {b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"}
"""Headers of a request that a proxy passes on: it comes from elsewhere, whatever its address is."""

COOKIE_SECONDS = 30 * 86_400


class Guard:
    """Answers the requests that may be answered, and adds HEADERS to each answer.

    A request names this server as its host, by one of `names`: else another site's page could read it by a name of its
    own (DNS rebinding). Its token is in `Authorization: Bearer TOKEN`, in a cookie, or in the address: that one becomes
    a cookie. Without a token a visitor may read where `local` says so. A request that changes something comes from a
    page of this server (MARK, Origin). The pass is handed on as scope["pass"].
    """

    def __init__(self, app: ASGIApp, names: frozenset[str], key: str, *, local: bool, secure: bool = False) -> None:
        self._app, self._names, self._key = app, names, key
        self._local, self._secure = local, secure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name.lower() for name, _ in message["headers"]}
                more = [(name, value) for name, value in HEADERS.items() if name not in there]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        answer = self._answer(scope, {name: value.decode("latin-1") for name, value in scope["headers"]})
        await (self._app if answer is None else answer)(scope, receive, guarded)

    def _answer(self, scope: Scope, headers: dict[bytes, str]) -> Response | None:
        """Return the answer of a request that is not handed on; else None, with its pass in the scope."""
        host = headers.get(b"host", "")
        if name_of(host) not in self._names:
            told = f"this server is not called {printable(host, 80) or 'nothing'}: use its address, or localhost\n"
            return PlainTextResponse(told, 421)
        changes = scope["method"] not in ("GET", "HEAD")
        if changes and not self._from_here(headers, host):
            return PlainTextResponse("such a request comes from a page of this server alone\n", 403)
        given = parse_qs(scope["query_string"].decode("latin-1"))
        if "token" in given and not changes:
            return self._welcome(scope, given, headers)
        try:
            scope["pass"] = self._pass(headers, host)
        except InputError as error:
            return PlainTextResponse(f"{error}\n", 401, {"WWW-Authenticate": "Bearer"})
        return None

    def _pass(self, headers: dict[bytes, str], host: str) -> Pass:
        kind, _, bearer = headers.get(b"authorization", "").partition(" ")
        token = bearer if kind.lower() == "bearer" else _cookie(headers.get(b"cookie", ""), _cookie_name(host))
        if token:
            try:
                return passes.read(self._key, token)
            except InputError:
                if bearer or not self._local:  # a cookie may be of another run that had the port
                    raise
        if not self._local or FORWARDED & headers.keys():
            raise InputError(
                "a token is needed: the host finds it in RUN_DIR/keys/dashboard.token, or gives you a link"
            )
        return Pass(LOCAL)

    def _welcome(self, scope: Scope, given: dict[str, list[str]], headers: dict[bytes, str]) -> Response:
        """Return the answer to an address with a token: the same without it, and a cookie.

        The cookie comes with links in mails and other pages, too: a mark tells which requests may change something.
        """
        host = headers.get(b"host", "")
        token = given.pop("token")[0]
        try:
            passes.read(self._key, token)
        except InputError as error:
            return PlainTextResponse(f"{error}\n", 401)
        rest = urlencode(given, doseq=True)
        made = RedirectResponse("/" + scope["path"].lstrip("/") + (f"?{rest}" if rest else ""), 303)
        if self._is_host(headers, host):
            return made  # a host who tries a link that was made for others stays the host
        made.set_cookie(
            _cookie_name(host), token, max_age=COOKIE_SECONDS, httponly=True, samesite="lax", secure=self._secure
        )
        return made

    def _is_host(self, headers: dict[bytes, str], host: str) -> bool:
        with suppress(InputError):
            return self._pass(headers, host).acts
        return False

    def _from_here(self, headers: dict[bytes, str], host: str) -> bool:
        origin = headers.get(b"origin")
        fitting = origin is None or origin.partition("://")[2].lower() == host.lower()
        return MARK in headers and fitting and headers.get(b"sec-fetch-site", "same-origin") == "same-origin"


def _cookie_name(host: str) -> str:
    """Return the name of the cookie for a Host header: browsers send cookies to all ports of a machine."""
    port = host.rpartition(":")[2]
    return f"barnraise-{port}" if port.isdecimal() and not host.endswith("]") else "barnraise"


def _cookie(header: str, name: str) -> str:
    return cookie_parser(header).get(name, "")


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
    """Return the run's token, the same each time; another one for a sealed run or a simulation."""
    with suppress(OSError, UnicodeDecodeError):
        known = (run.keys / TOKEN).read_text().strip()
        if re.fullmatch(r"[0-9a-f]{64}", known):
            return known
    made = secrets.token_hex(32)
    if not run.seal.is_file() and run.simulation is None:
        with suppress(StorageError):
            run.write_key(TOKEN, f"{made}\n".encode())
    return made
