"""The heads of HTTP requests that are accepted.

Pure: bytes in, bytes out. A head that two readers understand in two ways lets a client smuggle a request past a proxy.
So only the strict form of RFC 9112 is read: lines end with CR LF, none is folded, and one Content-Length of digits says
how long the body is.
"""

from __future__ import annotations

import re
from http import HTTPStatus

from barnraise.core.errors import WireError

HEAD_BYTES = 8192
"""Request line and headers."""

HEAD_LINES = 100
"""Header lines of a head, at most."""

_BARE = re.compile(rb"(?<!\r)\n|\r(?!\n)")
_LENGTH = re.compile(rb"content-length:[ \t]*([^\r]*?)[ \t]*", re.IGNORECASE)


class HttpRefusal(WireError):
    """A request that is answered with this status alone."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


def whole_head(received: bytes) -> bytes | None:
    """Return the head that `received` begins with, its empty line included; None while it is incomplete.

    Raises HttpRefusal for one that is too long, or not in the strict form.

    >>> whole_head(b"POST / HTTP/1.1\\r\\nHost: h\\r\\n\\r\\nbody")
    b'POST / HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n'
    """
    end = received.find(b"\r\n\r\n")
    head = received[: end + 4] if end >= 0 else received
    if len(head) > HEAD_BYTES or head.count(b"\n") > HEAD_LINES:
        raise HttpRefusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    if _BARE.search(head.removesuffix(b"\r")) or head.startswith(b"\r"):
        raise HttpRefusal(HTTPStatus.BAD_REQUEST)
    if b"\n " in head or b"\n\t" in head:  # some readers continue the line before here
        raise HttpRefusal(HTTPStatus.BAD_REQUEST)
    return head if end >= 0 else None


def content_length(head: bytes) -> int:
    """Return the body's length that a head announces; 0 when it announces none.

    Raises HttpRefusal.

    >>> content_length(b"POST / HTTP/1.1\\r\\nContent-Length: 5\\r\\n\\r\\n")
    5
    """
    found = [match[1] for line in head.split(b"\r\n")[1:] if (match := _LENGTH.fullmatch(line))]
    if not found:
        return 0
    if len(found) > 1 or not re.fullmatch(rb"[0-9]+", found[0]):
        raise HttpRefusal(HTTPStatus.BAD_REQUEST)
    if len(found[0]) > 12:
        raise HttpRefusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return int(found[0])
