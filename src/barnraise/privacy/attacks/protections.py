"""Protections: what an adversary sees of the updates of a group of workers."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import Tensor

from barnraise import compression

RING_BITS = 32
"""Bits of a word of the ring in which masks are added."""


class Protection(ABC):
    """Base class of protections; an update is a float32 vector [d].

    `members` workers form a group, the victim among them. `bound` is the norm that updates are clipped to, set by the
    setting to the median norm of updates on public rows.
    """

    members = 1
    name = ""
    bound = 1.0

    @abstractmethod
    def seen(self, updates: Sequence[Tensor], rng: np.random.Generator) -> Tensor:
        """Return the vector that the adversary sees of the group; the first update is the victim's."""

    def sums(
        self, updates: Sequence[Tensor], lists: Sequence[Collection[int]], rng: np.random.Generator
    ) -> list[Tensor | None]:
        """Return the sum that the adversary learns of each list of members; None where it is withheld.

        Each worker sends one message. Unless a subclass hides the messages, the adversary adds them as it likes.
        """
        messages = [self.seen([update], rng) for update in updates]
        return [torch.stack([messages[member] for member in members]).sum(0) for members in lists]


class PlainUpdate(Protection):
    """Shows each update as it is."""

    def seen(self, updates: Sequence[Tensor], rng: np.random.Generator) -> Tensor:
        return updates[0].clone()


class EncodedUpdate(Protection):
    """Shows each update as a codec of `barnraise.compression` leaves it."""

    def __init__(self, codec: str, **options: object) -> None:
        self.codec = compression.create(codec, **options)

    def seen(self, updates: Sequence[Tensor], rng: np.random.Generator) -> Tensor:
        return self.codec.decode(self.codec.encode(updates[0]))


class NoisyUpdate(Protection):
    """Clips each update to the bound C, and adds Gaussian noise of standard deviation multiplier * C an element.

    Abadi et al. 2016, algorithm 1, for a whole update in place of an example's gradient.
    """

    def __init__(self, multiplier: float) -> None:
        self.multiplier = multiplier

    @property
    def deviation(self) -> float:
        """Return the standard deviation of the noise in one element."""
        return self.multiplier * self.bound

    def seen(self, updates: Sequence[Tensor], rng: np.random.Generator) -> Tensor:
        return clipped(updates[0], self.bound) + gaussian(updates[0], self.deviation, rng)


class GroupSum(Protection):
    """Shows the sum of `members` updates, as masks leave it: one list is opened, and no other."""

    def __init__(self, members: int) -> None:
        self.members = members

    def seen(self, updates: Sequence[Tensor], rng: np.random.Generator) -> Tensor:
        return torch.stack(list(updates[: self.members])).sum(0)

    def sums(
        self, updates: Sequence[Tensor], lists: Sequence[Collection[int]], rng: np.random.Generator
    ) -> list[Tensor | None]:
        """Return the sum of the first list alone; a second list is refused unless it is the same."""
        opened = [set(members) == set(lists[0]) for members in lists]
        found = torch.stack([updates[member] for member in lists[0]]).sum(0)
        return [found.clone() if allowed else None for allowed in opened]


class AnyGroupSum(GroupSum):
    """Shows the sum of any list that the adversary names: masks without the rule of one list."""

    def sums(
        self, updates: Sequence[Tensor], lists: Sequence[Collection[int]], rng: np.random.Generator
    ) -> list[Tensor | None]:
        return [torch.stack([updates[member] for member in members]).sum(0) for members in lists]


class NoisyGroupSum(GroupSum):
    """Shows the sum of `members` clipped updates with noise of multiplier * C an element, once for the sum."""

    def __init__(self, members: int, multiplier: float) -> None:
        super().__init__(members)
        self.multiplier = multiplier

    def seen(self, updates: Sequence[Tensor], rng: np.random.Generator) -> Tensor:
        found = super().seen([clipped(update, self.bound) for update in updates], rng)
        return found + gaussian(found, self.multiplier * self.bound, rng)


class MaskedUpdate(Protection):
    """Shows one masked message: the update in a ring of 32-bit words, plus an AES-256-CTR stream of a fresh key.

    The key is of the system's randomness and not of `rng`: a trial cannot be repeated to the bit, as in a run.
    """

    def seen(self, updates: Sequence[Tensor], rng: np.random.Generator) -> Tensor:
        step = self.bound / 2 ** (RING_BITS - 2)
        limit = 2 ** (RING_BITS - 1) - 1
        values = np.rint(clipped(updates[0], self.bound).numpy().astype(np.float64) / step).clip(-limit, limit)
        words = values.astype(np.int64).astype(np.uint32) + stream(secrets.token_bytes(32), values.size)
        return torch.from_numpy(words.view(np.int32).astype(np.float64) * step).float()


def stream(key: bytes, words: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """Return `words` words of the key stream of AES-256 in counter mode; a key is used once."""
    encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(encryptor.update(bytes(4 * words)), np.uint32)


def clipped(update: Tensor, bound: float) -> Tensor:
    """Return `update` scaled down to a norm of `bound` at most."""
    return update * min(1.0, bound / (float(torch.linalg.vector_norm(update)) + 1e-30))


def gaussian(like: Tensor, deviation: float, rng: np.random.Generator) -> Tensor:
    """Return Gaussian noise of this standard deviation an element, of the shape of `like`."""
    return torch.from_numpy(rng.standard_normal(tuple(like.shape), dtype=np.float32)) * deviation
