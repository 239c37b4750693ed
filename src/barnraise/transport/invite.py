"""Invites, which admit a machine to a run by one line of text, and the controller's book of their tokens.

An invite names the controller (address and public key) and carries a secret. A worker proves that it holds one with

    proof = HMAC-SHA256(verifier, "barnraise enrol 2" | server key | worker key | name | nonce | signer),
    verifier = SHA256("barnraise" | secret),

each field behind its length, so that the proof is valid for these keys (the transport's, and `signer`, which signs the
worker's contributions; "" for machines that submit none), this name and this controller only. The book keeps the
verifier and never the secret: a reader of the book cannot write an invite again, but could make a proof, so the book
belongs in a file of mode 0600, beside the controller's secret key, which is more valuable.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from zmq.utils import z85

from barnraise.core.errors import CorruptionError, InviteError
from barnraise.trust.roles import OBSERVER, WORKER

SECRET_BYTES = 32

_FORMAT, _FORMAT_HTTP = 1, 2
_FIXED = struct.Struct(">B32s32s8sQI")  # format, server key, secret, token, expiry (Unix seconds), uses; then the role
_HTTP = struct.Struct(">BH")  # format 2, before the role: the index of the scheme of `port`, and the HTTP port
_SCHEMES = ("zmq", "xmlrpc")
_CHECK_BYTES = 6
_LINE = re.compile(r"(barnraise://(\[[^\]\s]+\]|[^:/#\s\[\]]+):(\d{1,5})/([^/#\s]*))#([A-Za-z0-9_-]+)")
_COPY = "ask the host for a new one (barnraise invite RUN_DIR) or copy the whole line again"


@dataclass(frozen=True)
class Invite:
    """The controller's address, its public key, and a secret for admission.

    Show it to the invited machine only.
    """

    host: str
    port: int
    run: str
    server_key: str
    token: str  # 16 hexadecimal digits: names the token, is no secret
    secret: bytes = field(repr=False)
    expires: int  # Unix seconds
    uses: int = 1
    role: str = WORKER
    scheme: str = "zmq"  # protocol on `port`
    http_port: int = 0  # port of XML-RPC over HTTP; 0: none

    @classmethod
    def create(
        cls,
        host: str,
        port: int,
        run: str,
        server_key: str,
        *,
        now: float,
        lifetime: float,
        uses: int = 1,
        scheme: str = "zmq",
        http_port: int = 0,
        role: str = WORKER,
    ) -> Invite:
        """Create an invite with a fresh secret, good for `uses` machines and `lifetime` seconds."""
        if uses < 1 or lifetime <= 0:
            raise InviteError(
                f"an invite for {uses} machines and {lifetime:g} seconds admits no machine: both must be > 0"
            )
        secret, token = secrets.token_bytes(SECRET_BYTES), secrets.token_hex(8)
        return cls(
            host,
            port,
            run,
            server_key,
            token=token,
            secret=secret,
            expires=int(now + lifetime),
            uses=min(uses, 2**32 - 1),
            role=role,
            scheme=scheme,
            http_port=http_port,
        )

    @property
    def uri(self) -> str:
        """Return the addresses to dial: one, or two separated by a space, the better one first."""
        first = f"{self.scheme}://{_bracketed(self.host)}:{self.port}"
        return f"{first} xmlrpc://{_bracketed(self.host)}:{self.http_port}" if self.http_port else first

    def __str__(self) -> str:
        start = f"barnraise://{_bracketed(self.host)}:{self.port}/{self.run}"
        server_key, token = z85.decode(self.server_key), bytes.fromhex(self.token)
        http = _HTTP.pack(_SCHEMES.index(self.scheme), self.http_port)
        old = http == _HTTP.pack(0, 0)  # all versions can read it
        version = _FORMAT if old else _FORMAT_HTTP
        body = _FIXED.pack(version, server_key, self.secret, token, self.expires, self.uses)
        body += (b"" if old else http) + self.role.encode()
        line = f"{start}#{_code(start, body)}"
        assert _LINE.fullmatch(line), line
        return line

    @classmethod
    def parse(cls, text: str, now: float) -> Invite:
        """Parse the invite in `text`, in which a terminal may have broken lines.

        InviteError gives the defect.
        """
        line = "".join(text.split())
        if not line.startswith("barnraise://"):
            raise InviteError(f"{line.split('#')[0][:40]!r} is not an invite: it must start with barnraise://; {_COPY}")
        match = _LINE.fullmatch(line)
        start, host, port, run, code = match.groups() if match else ("", "", "0", "", "")
        decoded = base64.urlsafe_b64decode(code + "=" * (-len(code) % 4)) if len(code) % 4 != 1 else b""
        body = decoded[:-_CHECK_BYTES]
        if len(body) < _FIXED.size or code != _code(start, body):
            raise InviteError(f"the invite is incomplete or altered ({len(line)} characters, wrong checksum); {_COPY}")
        version, server_key, secret, token, expires, uses = _FIXED.unpack_from(body)
        rest, scheme, http_port = body[_FIXED.size :], 0, 0
        if version == _FORMAT_HTTP and len(rest) >= _HTTP.size:
            (scheme, http_port), rest = _HTTP.unpack_from(rest), rest[_HTTP.size :]
        if version not in (_FORMAT, _FORMAT_HTTP) or scheme >= len(_SCHEMES):
            raise InviteError(
                f"the invite has format {version}, but only {_FORMAT} and {_FORMAT_HTTP} are understood: install the "
                "barnraise version of the controller"
            )
        if run in (".", ".."):  # it names folders
            raise InviteError(f"the invite is to a run {run!r}, and no run is called so; {_COPY}")
        invite = cls(
            host.strip("[]"),
            int(port),
            run,
            z85.encode(server_key).decode(),
            token=token.hex(),
            secret=secret,
            expires=expires,
            uses=uses,
            role=rest.decode("utf-8", "replace"),
            scheme=_SCHEMES[scheme],
            http_port=http_port,
        )
        if now >= expires:
            raise InviteError(
                f"the invite expired at {_time(expires)} and this machine's clock says {_time(now)}: "
                "ask the host for a new one (barnraise invite RUN_DIR)"
            )
        return invite


def proof(secret: bytes, server_key: str, worker_key: str, name: str, nonce: str, signer: str = "") -> str:
    """Return a worker's proof for an `Enrol`: 64 hexadecimal digits that only a holder of `secret` can compute."""
    return _mac(verifier(secret), server_key, worker_key, name, nonce, signer)


def verifier(secret: bytes) -> bytes:
    """Return the controller's record of a secret (32 bytes)."""
    return hashlib.sha256(b"barnraise" + secret).digest()


@dataclass(frozen=True)
class Token:
    """The controller's record of an invite."""

    id: str
    verifier: str = field(repr=False)  # hexadecimal
    expires: int
    uses: int  # machines that it still admits
    role: str
    revoked: bool = False
    came: Mapping[str, str] = field(
        default_factory=dict
    )  # keys that used it, with their networks; where either matters

    def refuses(self, now: float) -> str:
        """Return why it admits no machine now; empty while it does."""
        if self.revoked:
            return "the host has taken this invite back: ask for a new one"
        if now >= self.expires:
            return f"the invite expired at {_time(self.expires)}: ask the host for a new one"
        return "" if self.uses else "the invite is used up: ask the host for one with more uses"


class TokenBook:
    """The tokens of a run, as a pure record: time is an argument, and the caller stores `to_dict` durably."""

    def __init__(self) -> None:
        self.tokens: dict[str, Token] = {}

    def add(self, invite: Invite) -> None:
        """Accept `invite` from now on."""
        mark = verifier(invite.secret).hex()
        self.tokens[invite.token] = Token(invite.token, mark, invite.expires, invite.uses, invite.role)

    def proven(
        self, token: str, proof: str, *, server_key: str, worker_key: str, name: str, nonce: str, signer: str = ""
    ) -> Token:
        """Return the token that `proof` shows the worker to hold, whether it still admits machines or not.

        InviteError for a wrong proof. A token that does not exist and a wrong proof get the same answer after the same
        work.
        """
        known = self.tokens.get(token)
        key = bytes.fromhex(known.verifier) if known else bytes(SECRET_BYTES)
        right = hmac.compare_digest(_mac(key, server_key, worker_key, name, nonce, signer).encode(), proof.encode())
        if known is None or not right:
            raise InviteError(f"the invite was not issued by this run, or was altered: {_COPY}")
        return known

    def verify(
        self,
        token: str,
        proof: str,
        *,
        server_key: str,
        worker_key: str,
        name: str,
        nonce: str,
        now: float,
        signer: str = "",
        listed: bool = False,
    ) -> Token:
        """Return the `proven` token if it admits the worker.

        InviteError when it admits no machine (any more); a worker that is `listed`, or used it before, is admitted by a
        used-up one, too.
        """
        known = self.proven(
            token, proof, server_key=server_key, worker_key=worker_key, name=name, nonce=nonce, signer=signer
        )
        free = listed or worker_key in known.came
        if refusal := replace(known, uses=1).refuses(now) if free else known.refuses(now):
            raise InviteError(refusal)
        return known

    def revoke(self, token: str) -> None:
        """Admit no further machine by this token."""
        self.tokens[token] = replace(self.tokens[token], revoked=True)

    def spend(self, token: str, key: str = "", network: str = "", *, listed: bool = False) -> None:
        """Record the admission of a machine with `key`.

        It takes one use, unless the machine is `listed`, or is an observer that was admitted before. Where networks
        count, the machine's `network` is recorded.
        """
        known = self.tokens[token]
        if not listed and key not in known.came:
            assert known.uses > 0, "verify comes first"
            known = replace(known, uses=known.uses - 1)
        if network or known.role == OBSERVER:
            known = replace(known, came={**known.came, key: network})
        self.tokens[token] = known

    def num_of(self, network: str) -> int:
        """Return how many machines of this network were admitted."""
        return sum(place == network for token in self.tokens.values() for place in token.came.values())

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return plain values for JSON."""
        return {token.id: asdict(token) for token in self.tokens.values()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Mapping[str, Any]]) -> TokenBook:
        """Return the book that `to_dict` described; CorruptionError for other content."""
        book = cls()
        try:
            for name, fields in content.items():
                token = Token(**fields)
                sound = len(bytes.fromhex(token.verifier)) == 32 and token.id == name and type(token.came) is dict
                if not sound or type(token.expires) is not int or type(token.uses) is not int:
                    raise ValueError(name)
                book.tokens[name] = token
        except (AttributeError, TypeError, ValueError) as error:
            raise CorruptionError(f"the book of invites is damaged ({error}): delete it and invite again") from None
        return book


def _mac(key: bytes, *fields: str) -> str:
    message = b"barnraise enrol 2"
    for text in fields:
        content = text.encode()
        message += len(content).to_bytes(4, "big") + content
    return hmac.new(key, message, hashlib.sha256).hexdigest()


def _code(start: str, body: bytes) -> str:
    """Return the text behind the # of an invite: the body and a checksum of the whole line."""
    check = hashlib.sha256(start.encode() + b"#" + body).digest()[:_CHECK_BYTES]
    return base64.urlsafe_b64encode(body + check).decode().rstrip("=")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _time(seconds: float) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, OSError, ValueError):
        return f"{seconds:.0f} s after 1970"
