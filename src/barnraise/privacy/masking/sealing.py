"""Seeds of one update, sealed to each trustee that may know them.

    key     = HKDF-SHA256(X25519(ephemeral, trustee), info = "barnraise share 1" | binding | trustee's number)
    sealed  = ChaCha20-Poly1305(key, nonce 0, seeds that the trustee knows, data = binding)

The ephemeral key is fresh for each update and the trustees' keys differ, so each key seals once. `binding` is the
SHA-256 of the run, node, assignment, base and terms of the update: a sealed share opens for no other update. A sealed
share does not tell its author. The member therefore signs the SHA-256 of each seed (`commitments`), and a trustee takes
only seeds that fit them.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from zmq.utils import z85

from barnraise.core.errors import InputError, PayloadError
from barnraise.transport.identity import Keys

from .committee import Committee
from .expand import SEED_BYTES, fresh_seed

KEY_BYTES = 32
TAG_BYTES = 16
_NONCE = bytes(12)


class SealingKey:
    """The secret half of a trustee's key for shares, from its 32 bytes; `public` is 64 hexadecimal digits."""

    def __init__(self, secret: bytes) -> None:
        self._key = X25519PrivateKey.from_private_bytes(secret)
        self.public = self._key.public_key().public_bytes_raw().hex()

    @classmethod
    def of(cls, keys: Keys) -> SealingKey:
        """Return the key that follows from a machine's keys, as its signing key does."""
        return cls(hmac.digest(z85.decode(keys.secret), b"barnraise sealing 1", hashlib.sha256))

    def open(self, share: bytes, binding: bytes, number: int) -> list[bytes]:
        """Return the seeds in a share (ephemeral key, then sealed seeds) for trustee `number`, which this key is of.

        PayloadError for a share of another update or trustee, or one that was changed.
        """
        try:
            key = _derived(self._key, share[:KEY_BYTES], binding, number)
            plain = ChaCha20Poly1305(key).decrypt(_NONCE, share[KEY_BYTES:], binding)
        except (InvalidTag, ValueError):  # ValueError: a point of small order, or a key of another length
            raise PayloadError("masks: a share that does not open: it is of another update or was changed") from None
        return [plain[start : start + SEED_BYTES] for start in range(0, len(plain), SEED_BYTES)]


def share_bytes(committee: Committee) -> int:
    """Return the bytes of one trustee's sealed share."""
    return committee.num_known * SEED_BYTES + TAG_BYTES


def draw_seeds(committee: Committee) -> list[bytes]:
    """Draw the seeds of one update, one for each subset of the committee."""
    return [fresh_seed() for _ in committee.subsets]


def committed(seeds: Sequence[bytes]) -> bytes:
    """Return the commitments to `seeds`: their SHA-256, one after the other."""
    return b"".join(hashlib.sha256(seed).digest() for seed in seeds)


def seal(committee: Committee, seeds: Sequence[bytes], binding: bytes) -> tuple[bytes, list[bytes]]:
    """Seal `seeds` to each trustee; return the ephemeral public key and the shares in the trustees' order.

    InputError for a trustee's key that is none.
    """
    ephemeral = X25519PrivateKey.generate()
    shares = []
    for number, trustee in enumerate(committee.trustees):
        try:
            key = _derived(ephemeral, bytes.fromhex(trustee.sealing), binding, number)
        except ValueError:
            raise InputError(
                f"masks: the sealing key of trustee {trustee.name} is none; take it from the trustee again"
            ) from None
        plain = b"".join(seeds[seed] for seed in committee.known[number])
        shares.append(ChaCha20Poly1305(key).encrypt(_NONCE, plain, binding))
    return ephemeral.public_key().public_bytes_raw(), shares


def _derived(own: X25519PrivateKey, other: bytes, binding: bytes, number: int) -> bytes:
    shared = own.exchange(X25519PublicKey.from_public_bytes(other))
    info = b"barnraise share 1" + binding + number.to_bytes(2, "big")
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=info).derive(shared)
