"""XML-RPC for the HTTP transport: a call with one base64 argument, answered with one base64 value or a fault.

Any XML-RPC client can make and read these (`xmlrpc.client.ServerProxy` does in a test). Nothing else is read: elements
in any other place, attributes, document types, entities and processing instructions are refused where they begin, so
that a document costs a small multiple of its size at the most. The caller checks sizes.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from xml.parsers import expat
from xml.sax.saxutils import escape

from barnraise.core.errors import WireError

PATH = "/RPC2"
OPEN, EXCHANGE = "barnraise.open", "barnraise.exchange"

REFUSED, OTHER_KEY, BUSY, NOT_NEXT = 1, 2, 3, 4
"""Codes of faults: a revoked key, a handshake for another key, too many requests, a request out of order."""

HANDSHAKE_BYTES = 4096
"""Largest call or response of a handshake, and the most that a stranger may send."""

OVERHEAD = 512
"""Bytes of a call or response around its base64."""

_START = b"<?xml version='1.0'?>\n"
_CALL = {"methodCall/methodName", "methodCall/params/param/value/base64"}
_VALUE = "methodResponse/params/param/value/base64"
_MEMBER = "methodResponse/fault/value/struct/member/"
_RESPONSE = {_VALUE, _MEMBER + "name", _MEMBER + "value/int", _MEMBER + "value/i4", _MEMBER + "value/string"}
_LEAVES = {"call": _CALL, "response": _RESPONSE}


class CallFault(WireError):
    """An XML-RPC fault of the other side, which is not authenticated."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def limit(content_bytes: int) -> int:
    """Return the size of the largest call or response for `content_bytes`, with some clients' line breaks."""
    return -(-content_bytes // 57) * 77 + OVERHEAD


def write_call(method: str, argument: bytes) -> bytes:
    """Return the document that calls `method`."""
    head = f"<methodCall><methodName>{method}</methodName><params><param><value><base64>".encode()
    return _START + head + _encode(argument) + b"</base64></value></param></params></methodCall>"


def write_response(value: bytes) -> bytes:
    """Return the document that answers a call."""
    head = b"<methodResponse><params><param><value><base64>"
    return _START + head + _encode(value) + b"</base64></value></param></params></methodResponse>"


def write_fault(code: int, text: str) -> bytes:
    """Return the document of a fault with its reason."""
    members = f"<member><name>faultCode</name><value><int>{code}</int></value></member>"
    members += f"<member><name>faultString</name><value><string>{escape(text[:300])}</string></value></member>"
    body = f"<methodResponse><fault><value><struct>{members}</struct></value></fault></methodResponse>"
    return _START + body.encode("utf-8", "replace")


def read_call(document: bytes) -> tuple[str, bytes]:
    """Return method and argument of a call.

    WireError for any other document.
    """
    found = _read(document, "call")
    if sorted(found) != sorted(_CALL) or any(len(texts) != 1 for texts in found.values()):
        raise WireError("XML-RPC: a call has a method name and one base64 argument")
    return found["methodCall/methodName"][0].strip()[:64], _decode(found["methodCall/params/param/value/base64"][0])


def read_response(document: bytes) -> bytes:
    """Return the value of a response.

    Raises CallFault, and WireError for any other document.
    """
    found = _read(document, "response")
    if list(found) == [_VALUE] and len(found[_VALUE]) == 1:
        return _decode(found[_VALUE][0])
    if _VALUE in found or not found:
        raise WireError("XML-RPC: a response has one base64 value, or a fault")
    codes = [text.strip() for name in ("int", "i4") for text in found.get(f"{_MEMBER}value/{name}", [])]
    words = "".join(found.get(_MEMBER + "value/string", [])[:1])
    raise CallFault(
        int(codes[0]) if codes and codes[0].isdecimal() and len(codes[0]) < 10 else 0, ascii(words)[1:-1][:300]
    )


def _read(document: bytes, kind: str) -> Mapping[str, list[str]]:
    """Return the texts of the elements that hold some, by path."""
    reader = _XmlReader(_LEAVES[kind])
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.buffer_size = 1 << 16
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = reader.refuse
    parser.XmlDeclHandler = reader.declared
    parser.ProcessingInstructionHandler = parser.ExternalEntityRefHandler = parser.CommentHandler = reader.refuse
    if not document.startswith(b"<") or b"\x00" in document:  # UTF-16 begins with a mark, or has zeros
        raise WireError("XML-RPC: a document begins with '<', in UTF-8")
    try:
        parser.Parse(document, True)
    except (expat.ExpatError, ValueError, UnicodeError) as error:
        raise WireError(f"XML-RPC: {ascii(str(error))[1:-1][:100]}") from None
    return reader.found


class _XmlReader:
    """Follows a document along the allowed paths."""

    def __init__(self, leaves: set[str]) -> None:
        self._leaves = leaves
        self._inner = {leaf[:at] for leaf in leaves for at, letter in enumerate(leaf) if letter == "/"}
        self._path = ""
        self.found: dict[str, list[str]] = {}

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        path = f"{self._path}/{name}" if self._path else name
        if path not in self._leaves and path not in self._inner:
            raise WireError(f"XML-RPC: no element {ascii(name)[:40]} belongs here")
        if attributes:
            raise WireError("XML-RPC: elements have no attributes")
        self._path = path
        if path in self._leaves:
            texts = self.found.setdefault(path, [])
            texts.append("")
            if len(texts) > 2:  # a fault has two members
                raise WireError("XML-RPC: an element too many")

    def declared(self, version: str, encoding: str | None, standalone: int) -> None:
        if (encoding or "utf-8").lower() not in ("utf-8", "us-ascii"):
            raise WireError("XML-RPC: documents are in UTF-8")

    def end(self, name: str) -> None:
        self._path = self._path.rpartition("/")[0]

    def text(self, text: str) -> None:
        if self._path in self._leaves:
            self.found[self._path][-1] += text
        elif not text.isspace():
            raise WireError("XML-RPC: text where none belongs")

    def refuse(self, *_: object) -> int:
        raise WireError("XML-RPC: no document types, entities, comments or processing instructions are read")


def _encode(content: bytes) -> bytes:
    return binascii.b2a_base64(content, newline=False)


def _decode(text: str) -> bytes:
    try:
        return binascii.a2b_base64("".join(text.split()), strict_mode=True)
    except ValueError as error:
        raise WireError(f"XML-RPC: base64: {str(error)[:100]}") from None
