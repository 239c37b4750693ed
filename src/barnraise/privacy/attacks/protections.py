"""Protections: what an adversary sees of the updates of a group of workers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

import numpy as np
import torch
from torch import Tensor

from barnraise import compression
from barnraise.privacy.masking.expand import add_streams, fresh_seed
from barnraise.privacy.masking.ring import Ring

VALUE_BITS, MOST_MEMBERS, SEEDS = 10, 64, 4
"""The ring of a masked message: bits of a value, members of a sum, seeds whose streams are added."""


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
        return self.added(updates[: self.members], rng)

    def sums(
        self, updates: Sequence[Tensor], lists: Sequence[Collection[int]], rng: np.random.Generator
    ) -> list[Tensor | None]:
        """Return the sum of the first list alone; a second list is refused unless it is the same."""
        found = self.added([updates[member] for member in lists[0]], rng)
        return [found if set(members) == set(lists[0]) else None for members in lists]

    def added(self, updates: Sequence[Tensor], rng: np.random.Generator) -> Tensor:
        """Return the sum of updates as it is opened."""
        return torch.stack(list(updates)).sum(0)


class AnyGroupSum(GroupSum):
    """Shows the sum of any list that the adversary names: masks without the rule of one list."""

    def sums(
        self, updates: Sequence[Tensor], lists: Sequence[Collection[int]], rng: np.random.Generator
    ) -> list[Tensor | None]:
        return [self.added([updates[member] for member in members], rng) for members in lists]


class NoisyGroupSum(GroupSum):
    """Shows the sum of `members` clipped updates with noise of multiplier * C an element, once for the sum."""

    def __init__(self, members: int, multiplier: float) -> None:
        super().__init__(members)
        self.multiplier = multiplier

    def added(self, updates: Sequence[Tensor], rng: np.random.Generator) -> Tensor:
        found = super().added([clipped(update, self.bound) for update in updates], rng)
        return found + gaussian(found, self.multiplier * self.bound, rng)


class MaskedMessage(Protection):
    """Shows one worker's words in the ring of `privacy.masking`, under the streams of fresh seeds.

    The seeds are of the system's randomness and not of `rng`: a trial cannot be repeated to the bit, as in a run. The
    adversary reads the words as signed numbers.
    """

    def seen(self, updates: Sequence[Tensor], rng: np.random.Generator) -> Tensor:
        values = clipped(updates[0], self.bound).numpy()
        ring = Ring(VALUE_BITS, MOST_MEMBERS, float(np.abs(values).max()) or 1.0)
        words = ring.quantise(values, ring.most_weight)
        add_streams(words, [fresh_seed() for _ in range(SEEDS)], ring.mask)
        return torch.from_numpy(ring.signed(words[1:]) * (ring.clip / ring.limit)).float()


def clipped(update: Tensor, bound: float) -> Tensor:
    """Return `update` scaled down to a norm of `bound` at most."""
    return update * min(1.0, bound / (float(torch.linalg.vector_norm(update)) + 1e-30))


def gaussian(like: Tensor, deviation: float, rng: np.random.Generator) -> Tensor:
    """Return Gaussian noise of this standard deviation an element, of the shape of `like`."""
    return torch.from_numpy(rng.standard_normal(tuple(like.shape), dtype=np.float32)) * deviation
