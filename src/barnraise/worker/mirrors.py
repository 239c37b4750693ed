"""Files of a run from URLs instead of its controller: ranges of bytes, checked by digest like all others.

The run file names the prefixes, the manifest brings them. A prefix is the choice of a host whom the worker need not
trust: the worker connects to no address that its controller may not send it to (`transport.reach`), whatever a name
resolves to and wherever a server redirects. It sends no credentials, and reads as many bytes as it asked for. A file
that does not come, or comes wrong, is fetched from the controller.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import Callable, Collection, Coroutine, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from barnraise.core.text import printable
from barnraise.transport.reach import AddressReach, reach
from barnraise.wire.manifest import web_address
from barnraise.wire.messages import Chunk, Fetch
from barnraise.worker.events import Event, Fetched, Tick

if TYPE_CHECKING:
    import aiohttp

TOTAL_SECONDS, SILENT_SECONDS = 120.0, 20.0
"""Time of one range, and of a server's silence, after which the controller is asked."""

MOST_FAILURES = 3
"""Ranges in a row that a prefix may fail before it is not asked any more."""


class Downloads(Protocol):
    """The downloads of a worker, as `fetching.Fetcher` keeps them."""

    files: dict[str, Path]

    def has_failed(self, digest: str) -> bool: ...

    def lost(self, digest: str) -> None: ...

    def chunk(self, message: Chunk, data: bytes, now: float) -> int: ...


class RefusedAddressError(OSError):
    """The server's address is in a network to which the controller may not send the worker."""


class Mirrors:
    """Takes the requests for files that lie under a prefix, and gives their bytes to the `fetcher`.

    `put` takes the events that follow, `spawn` runs a coroutine.
    """

    def __init__(
        self,
        fetcher: Downloads,
        put: Callable[[Event], None],
        spawn: Callable[[Coroutine[Any, Any, None]], Any],
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._fetcher, self._put, self._spawn = fetcher, put, spawn
        self._say = say
        self._prefixes: list[str] = []
        self._may: Collection[AddressReach] = ()
        self._failures: dict[str, int] = {}  # by prefix
        self._elsewhere: set[str] = set()  # digests of files that the controller sends
        self._running: set[Fetch] = set()
        self._session: aiohttp.ClientSession | None = None

    def use(self, prefixes: Iterable[str], may: Collection[AddressReach]) -> None:
        """Fetch files from these prefixes, the first that answers, from now on, at addresses of the reach `may`."""
        self._prefixes, self._may = list(prefixes), may
        if self._prefixes and not _installed():
            self._say("files are fetched from the controller, not from the run's URLs: those need aiohttp, as in "
                      "`pip install 'barnraise[urls]'`")  # fmt: skip
            self._prefixes = []

    def takes(self, request: Fetch) -> bool:
        """Begin a request that a prefix may answer; False when it is the controller's to answer."""
        if not self._prefixes or not self._may_have(request.digest):
            return False
        if request not in self._running:
            self._running.add(request)
            self._spawn(self._fetch(request, self._prefixes[0]))
        return True

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _may_have(self, digest: str) -> bool:
        """Return whether a prefix may have a file: one that came with wrong bytes is the controller's to send."""
        return digest in self._fetcher.files and digest not in self._elsewhere and not self._fetcher.has_failed(digest)

    async def _fetch(self, request: Fetch, prefix: str) -> None:
        try:
            data = await self._read(prefix, request)
        except (OSError, ValueError, EOFError, TimeoutError, asyncio.IncompleteReadError) as error:
            self._give_up(request, prefix, error)
            whole = 0
        else:
            self._failures.pop(prefix, None)
            whole = self._fetcher.chunk(Chunk(request.digest, request.offset), data, time.monotonic())
        finally:
            self._running.discard(request)
        # The time that it took says nothing of the controller's link; a tick lets the next ranges be requested.
        self._put(Fetched(request.digest, 0) if whole else Tick())

    def _give_up(self, request: Fetch, prefix: str, error: Exception) -> None:
        name = self._fetcher.files[request.digest].name
        if request.digest not in self._elsewhere:
            why = printable(str(error) or type(error).__name__, 200)
            self._say(f"{name} is fetched from the controller: {prefix} does not give it ({why})")
        self._elsewhere.add(request.digest)
        self._failures[prefix] = self._failures.get(prefix, 0) + 1
        if self._failures[prefix] >= MOST_FAILURES and prefix in self._prefixes:
            self._prefixes.remove(prefix)
        self._fetcher.lost(request.digest)

    async def _read(self, prefix: str, request: Fetch) -> bytes:
        """Read a range of a file; an OSError or ValueError says why it does not come."""
        from aiohttp import ClientError

        begin, size = request.offset, request.num_bytes
        url = web_address(prefix) + quote(self._fetcher.files[request.digest].name)
        try:
            async with self._connected().get(url, headers={"Range": f"bytes={begin}-{begin + size - 1}"}) as answer:
                if answer.status != 206:
                    raise ValueError(f"the server answers {answer.status} to a request for a part of the file")
                return await answer.content.readexactly(size)
        except ClientError as error:
            raise OSError(str(error)) from None

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            import aiohttp

            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=8, socket_factory=self._socket),
                timeout=aiohttp.ClientTimeout(
                    total=TOTAL_SECONDS, sock_read=SILENT_SECONDS, sock_connect=SILENT_SECONDS
                ),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _socket(self, info: tuple[Any, ...]) -> socket.socket:
        """Return a socket for an address that a name resolved to, or a redirect led to; OSError when it is refused."""
        address = str(info[4][0])
        if reach(address) not in self._may:
            raise RefusedAddressError(errno.EACCES, f"{address} is in a network that the run's own address is not in")
        return socket.socket(*info[:3])


def _installed() -> bool:
    from importlib.util import find_spec

    return find_spec("aiohttp") is not None
