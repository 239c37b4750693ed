"""Signatures of nodes, by which third parties can check that no other node made the rows of a ledger.

Signatures are Ed25519 (RFC 8032), keys and signatures in hexadecimal digits. The signed statement is a text that names
its purpose, and then fields, each as UTF-8 behind its length in 4 bytes, the highest first; numbers are decimal:

    "barnraise contribution 2" | run | controller | node | assignment | base | steps | codec | transcript | digest
    "barnraise payload 1"      | run | controller | node | kind | assignment | base | steps | digest
    "barnraise rotation 1"     | run | controller | node | key | signer
    "barnraise masked 1"       | run | controller | node | assignment | base | model | terms | commitments | words
    "barnraise list 1"         | run | controller | trustee | list

`run` and `controller` are the run's name and its controller's public key (Z85), `digest` is the payload's SHA-256, and
`transcript` is JSON as on the ledger for a stateless task, else empty; `key` and `signer` are the new keys, of the
transport and of signatures, which the node's old key confirms. The second is for payloads of other results than
updates, whose `kind` it names. The last two are of masked updates: `model` is the digest of the base version, `terms`
the digest of what all members share, `commitments` and `words` are the SHA-256 of a masked update's parts, and `list`
is the SHA-256 of a list of them that a trustee endorses. A worker's other claims (loss, seconds) are not signed: no
decision depends on them.

The library of the signatures takes 6 MB, so it is loaded with the first one: a simulation has none.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from barnraise.core.types import Contribution, PayloadResult, Transcript, name_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

Signable = TypeVar("Signable", bound=PayloadResult)


class RunId(NamedTuple):
    """A run's identity: its name, and its controller's public key ("": a simulation, which has none)."""

    name: str
    key: str = ""


class Signer:
    """The secret half of a key, from its 32 bytes; `public` is its public half, 64 hexadecimal digits."""

    def __init__(self, seed: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw().hex()

    def sign(self, statement: bytes) -> str:
        """Return the signature of a statement, 128 hexadecimal digits."""
        return self._key.sign(statement).hex()


def verified(statement: bytes, signature: str, public: str) -> bool:
    """Return whether the holder of the key `public` signed `statement`; False also for malformed keys and signatures.

    >>> key = Signer(bytes(32))
    >>> (
    ...     verified(b"it is so", key.sign(b"it is so"), key.public),
    ...     verified(b"it is not", key.sign(b"it is so"), key.public),
    ... )
    (True, False)
    """
    from cryptography.exceptions import InvalidSignature

    try:
        _key(public).verify(bytes.fromhex(signature), statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def statement(run: RunId, node: str, made: PayloadResult) -> bytes:
    """Return the statement that `node` signs for a result with a payload that it offers."""
    if isinstance(made, Contribution):
        work = made.base, made.steps, made.codec
        return contributed(run, node, made.assignment, work, made.transcript, made.payload.digest)
    return delivered(run, node, name_of(type(made)), (made.assignment, made.base, made.steps), made.payload.digest)


def signed(run: RunId, node: str, made: Signable, signer: Signer) -> Signable:
    """Return `made` with its node's signature."""
    return msgspec.structs.replace(made, signature=signer.sign(statement(run, node, made)))


def contributed(
    run: RunId, node: str, assignment: int, work: tuple[int, int, int], transcript: Transcript | None, digest: str
) -> bytes:
    """Return the statement of a contribution from a ledger's row: `work` has its base, steps and codec."""
    told = "" if transcript is None else msgspec.json.encode(transcript).decode()
    return _statement("barnraise contribution 2", *run, node, assignment, *work, told, digest)


def delivered(run: RunId, node: str, kind: str, work: tuple[int, int, int], digest: str) -> bytes:
    """Return the statement of another payload from a ledger's row: `work` has its assignment, base and steps."""
    return _statement("barnraise payload 1", *run, node, kind, *work, digest)


def rotation(run: RunId, node: str, key: str, signer: str) -> bytes:
    """Return the statement that `node` signs with its old key when it takes new ones."""
    return _statement("barnraise rotation 1", *run, node, key, signer)


def masked(run: RunId, node: str, work: tuple[int, int, str], terms: str, parts: tuple[str, str]) -> bytes:
    """Return the statement of a masked update: `work` has its assignment, base and the base version's digest.

    `parts` has the digests of its commitments and of its words.
    """
    return _statement("barnraise masked 1", *run, node, *work, terms, *parts)


def endorsed(run: RunId, trustee: str, digest: str) -> bytes:
    """Return the statement with which a trustee endorses the list of this digest."""
    return _statement("barnraise list 1", *run, trustee, digest)


def _statement(purpose: str, *fields: str | int) -> bytes:
    parts = [str(field).encode() for field in fields]
    return purpose.encode() + b"".join(len(part).to_bytes(4, "big") + part for part in parts)


@lru_cache(maxsize=4096)
def _key(public: str) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
