"""POST requests over one HTTP/1.1 connection that is kept, through a proxy where the environment names one.

A request that fails on a connection kept from before is repeated once on a new one: proxies and servers close idle
connections without notice. Callers therefore send only requests that may arrive twice.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import time
import urllib.request
from urllib.parse import unquote, urlsplit

import h11

from barnraise.core.errors import AddressError
from barnraise.transport.base import Address
from barnraise.transport.names import numeric

CONNECT_SECONDS = 10.0
READ_BYTES = 1 << 18


class HttpError(AddressError):
    """A request without an answer: `status` is HTTP's instead, 0 for no response at all.

    `arrived` tells whether the request may have been carried out all the same.
    """

    def __init__(self, text: str, status: int = 0, *, arrived: bool = True) -> None:
        super().__init__(text)
        self.status, self.arrived = status, arrived


class HttpClient:
    """One connection to `address`, for one request at a time."""

    def __init__(self, address: Address) -> None:
        host = f"[{address.host}]" if ":" in address.host else address.host
        self._address = self._target = address
        self._headers = [("Host", f"{host}:{address.port}"), ("Content-Type", "text/xml"), ("User-Agent", "barnraise")]
        self._prefix = ""
        proxy = proxy_for(address)
        if proxy is not None:
            try:
                split = urlsplit(proxy)
                self._target = Address("http", split.hostname or "", split.port or 80)
            except ValueError as error:
                raise AddressError(
                    f"the proxy that HTTP_PROXY names cannot be read ({error}): write it as http://host:port, or list "
                    f"{address.host} in NO_PROXY"
                ) from None
            self._prefix = f"http://{host}:{address.port}"
            if split.username:
                login = f"{unquote(split.username)}:{unquote(split.password or '')}".encode()
                self._headers.append(("Proxy-Authorization", f"Basic {base64.b64encode(login).decode()}"))
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._written = False  # whether a part of the present request was written
        self.body_seconds = 0.0  # from the head of the last answer to its end

    @property
    def where(self) -> str:
        """Return the dialled address in words."""
        text = f"{self._address.host}, port {self._address.port}"
        return f"{text} (through the proxy {self._target.host}:{self._target.port})" if self._prefix else text

    async def post(self, path: str, body: bytes, *, limit: int, seconds: float) -> bytes:
        """Return the body of the answer, at most `limit` bytes, within `seconds`.

        HttpError when there is none.
        """
        self._written = False
        if self._streams is not None and self._streams[0].at_eof():
            self.close()
        try:
            async with asyncio.timeout(seconds):
                if self._streams is not None:
                    try:
                        return await self._try(path, body, limit)
                    except (OSError, EOFError):
                        self.close()
                return await self._try(path, body, limit)
        except TimeoutError:
            self.close()
            raise HttpError(f"no answer from {self.where} within {seconds:g} s", arrived=self._written) from None
        except (OSError, EOFError, h11.ProtocolError) as error:
            self.close()
            why = f"nothing answers at {self.where} ({_brief(error)})"
            raise HttpError(why, arrived=self._written) from None
        except BaseException:  # cancelled, or refused: its answer must not be read as the next one's
            self.close()
            raise

    async def _try(self, path: str, body: bytes, limit: int) -> bytes:
        if self._streams is None:
            async with asyncio.timeout(CONNECT_SECONDS):
                host = await numeric(self._target)
                self._streams = await asyncio.open_connection(host, self._target.port, limit=READ_BYTES)
            self._http = h11.Connection(h11.CLIENT)
        reader, writer = self._streams
        headers = [*self._headers, ("Content-Length", str(len(body)))]
        request = h11.Request(method="POST", target=self._prefix + path, headers=headers)
        data = [self._http.send(request), self._http.send(h11.Data(data=body)), self._http.send(h11.EndOfMessage())]
        self._written = True
        writer.write(b"".join(chunk or b"" for chunk in data))
        await writer.drain()
        answer = bytearray()
        status, began = 0, time.monotonic()
        while not isinstance(event := await self._event(reader), h11.EndOfMessage):
            if isinstance(event, h11.ConnectionClosed):
                raise EOFError
            if isinstance(event, h11.Response):
                status = event.status_code
                began = time.monotonic()
            elif isinstance(event, h11.Data):
                answer += event.data
                if len(answer) > limit:
                    raise HttpError(f"{self.where} answers with more than {limit} bytes", status)
        self.body_seconds = time.monotonic() - began
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        else:
            self.close()
        if status != 200:
            raise HttpError(f"{self.where} answers with HTTP status {status}", status, arrived=status != 404)
        return bytes(answer)

    async def _event(self, reader: asyncio.StreamReader) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            data = await reader.read(READ_BYTES)
            if not data and self._http.their_state is h11.SEND_RESPONSE:
                raise EOFError  # the peer closed before it began to answer, or within its answer
            self._http.receive_data(data)
        return event

    def close(self) -> None:
        """Close the connection; the next request dials again."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def _brief(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return (error.strerror if isinstance(error, OSError) else str(error)) or "it hung up"


def proxy_for(address: Address) -> str | None:
    """Return the URL of the proxy from HTTP_PROXY and NO_PROXY for `address`; None for none, and for this machine."""
    try:
        local = ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        local = address.host == "localhost"
    if local or urllib.request.proxy_bypass(f"{address.host}:{address.port}"):
        return None
    proxy = urllib.request.getproxies().get("http")
    return proxy if proxy and urlsplit(proxy).scheme == "http" else None
