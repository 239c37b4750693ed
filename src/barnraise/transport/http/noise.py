"""The handshake of the HTTP transport: Noise_IK_25519_ChaChaPoly_SHA256, by its specification (revision 34).

    <- s                      the client knows the controller's key from its invite
    -> e, es, s, ss           the client's key, readable to the controller alone
    <- e, ee, se              both keys are proven; the session's keys depend on two keys that no side keeps

An attacker who records everything and steals both machines' keys later can read nothing. The first message alone can be
replayed, and could be forged by a thief of the *controller's* key: so the controller trusts a client only when the
first sealed request has come, which takes the client's secret key and this session's. Every error raises WireError.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from zmq.utils import z85

from barnraise.core.errors import WireError
from barnraise.transport.identity import Keys

PROTOCOL = b"Noise_IK_25519_ChaChaPoly_SHA256"
PROLOGUE = b"barnraise http 1"
KEY_BYTES, TAG_BYTES = 32, 16


@dataclass(frozen=True)
class Ciphers:
    """A session's two keys, one a direction.

    Never use a nonce twice with one of them.
    """

    send: ChaCha20Poly1305
    receive: ChaCha20Poly1305


class _Symmetric:
    """The SymmetricState of the specification: the transcript's hash, and the key that follows from it."""

    def __init__(self, prologue: bytes, server_public: bytes) -> None:
        self._hash = self._chain = PROTOCOL  # 32 bytes: the name itself
        self._cipher: ChaCha20Poly1305 | None = None
        self._nonce = 0
        self.mix_hash(prologue)
        self.mix_hash(server_public)

    def mix_hash(self, data: bytes) -> None:
        self._hash = hashlib.sha256(self._hash + data).digest()

    def mix_key(self, private: X25519PrivateKey, public: bytes) -> None:
        try:
            secret = private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:  # a point of small order: the result would be public
            raise WireError("handshake: a public key that is none") from None
        self._chain, key = self._expand(secret)
        self._cipher, self._nonce = ChaCha20Poly1305(key), 0

    def _expand(self, material: bytes) -> tuple[bytes, bytes]:
        temporary = _mac(self._chain, material)
        first = _mac(temporary, b"\x01")
        return first, _mac(temporary, first + b"\x02")

    def seal(self, content: bytes) -> bytes:
        sealed = self._keyed().encrypt(self._next(), content, self._hash)
        self.mix_hash(sealed)
        return sealed

    def open(self, sealed: bytes) -> bytes:
        try:
            content = self._keyed().decrypt(self._next(), sealed, self._hash)
        except InvalidTag:
            raise WireError("handshake: altered, or meant for another key") from None
        self.mix_hash(sealed)
        return content

    def _keyed(self) -> ChaCha20Poly1305:
        if self._cipher is None:
            raise WireError("handshake: nothing is sealed before a key was agreed on")
        return self._cipher

    def _next(self) -> bytes:
        self._nonce += 1
        return nonce(0, self._nonce - 1)

    def split(self) -> tuple[ChaCha20Poly1305, ChaCha20Poly1305]:
        """Return the session's keys: from the client, and from the controller."""
        first, second = self._expand(b"")
        return ChaCha20Poly1305(first), ChaCha20Poly1305(second)


class Initiator:
    """The client's side of one handshake; `ephemeral` is given in tests only."""

    def __init__(
        self, keys: Keys, server_key: str, prologue: bytes = PROLOGUE, ephemeral: X25519PrivateKey | None = None
    ) -> None:
        self._static, self._server = _private(keys), z85.decode(server_key)
        self._ephemeral = ephemeral or X25519PrivateKey.generate()
        self._state = _Symmetric(prologue, self._server)

    def start(self, payload: bytes = b"") -> bytes:
        """Return the first message; it can be replayed, so `payload` must have no effect by itself."""
        ephemeral = _public(self._ephemeral)
        self._state.mix_hash(ephemeral)
        self._state.mix_key(self._ephemeral, self._server)
        static = self._state.seal(_public(self._static))
        self._state.mix_key(self._static, self._server)
        return ephemeral + static + self._state.seal(payload)

    def finish(self, message: bytes) -> tuple[bytes, Ciphers]:
        """Return the controller's payload, and the session's keys: the sender holds the controller's key."""
        if len(message) < KEY_BYTES + TAG_BYTES:
            raise WireError(f"handshake: an answer of {len(message)} bytes, but it has {KEY_BYTES + TAG_BYTES} or more")
        ephemeral = message[:KEY_BYTES]
        self._state.mix_hash(ephemeral)
        self._state.mix_key(self._ephemeral, ephemeral)
        self._state.mix_key(self._static, ephemeral)
        payload = self._state.open(message[KEY_BYTES:])
        from_client, from_server = self._state.split()
        return payload, Ciphers(send=from_client, receive=from_server)


class Responder:
    """The controller's side of one handshake."""

    def __init__(self, keys: Keys, prologue: bytes = PROLOGUE, ephemeral: X25519PrivateKey | None = None) -> None:
        self._static = _private(keys)
        self._ephemeral = ephemeral or X25519PrivateKey.generate()
        self._state = _Symmetric(prologue, _public(self._static))

    def accept(self, message: bytes) -> tuple[str, bytes]:
        """Return the client's public key (Z85), possibly from a replay, and its message's payload."""
        head = 2 * KEY_BYTES + TAG_BYTES
        if len(message) < head + TAG_BYTES:
            raise WireError(f"handshake: a message of {len(message)} bytes, but it has {head + TAG_BYTES} or more")
        self._theirs = message[:KEY_BYTES]
        self._state.mix_hash(self._theirs)
        self._state.mix_key(self._static, self._theirs)
        self._client = self._state.open(message[KEY_BYTES:head])
        self._state.mix_key(self._static, self._client)
        payload = self._state.open(message[head:])
        return z85.encode(self._client).decode("ascii"), payload

    def reply(self, payload: bytes = b"") -> tuple[bytes, Ciphers]:
        """Return the second message, and the session's keys."""
        ephemeral = _public(self._ephemeral)
        self._state.mix_hash(ephemeral)
        self._state.mix_key(self._ephemeral, self._theirs)
        self._state.mix_key(self._ephemeral, self._client)
        message = ephemeral + self._state.seal(payload)
        from_client, from_server = self._state.split()
        return message, Ciphers(send=from_server, receive=from_client)


def nonce(channel: int, counter: int) -> bytes:
    """Return the 12 bytes for message `counter` of `channel`; channel 0 is Noise's own."""
    return channel.to_bytes(4, "big") + counter.to_bytes(8, "little")


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _private(keys: Keys) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(z85.decode(keys.secret))


def _public(key: X25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()
