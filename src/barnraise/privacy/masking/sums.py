"""Sums of masked updates, group by group, and the masks that trustees take off them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from barnraise.core.errors import PayloadError

from . import packing
from .expand import add_streams
from .payload import MaskedUpdate
from .terms import MaskTerms
from .trustee import Expansion

Array: TypeAlias = NDArray[Any]


def expanded(work: Expansion) -> Iterator[Iterator[bytes]]:
    """Yield for each portion an iterator of the packed sums of its seeds' streams, one for each group of the list.

    The sums are made as they are taken: memory is that of one group's words.
    """
    for of_portion in work.portions:
        yield (_expanded(work.terms, seeds) for seeds in of_portion)


def sums_digest(packed: Iterable[bytes | memoryview]) -> str:
    """Return the SHA-256 of a portion's packed sums, by which trustees confirm each other."""
    digest = hashlib.sha256()
    for one in packed:
        digest.update(one)
    return digest.hexdigest()


class GroupSums:
    """The sums of a list's masked updates by group, from which portions are taken off until the plain sums remain."""

    def __init__(self, terms: MaskTerms, groups: Sequence[Sequence[int]]) -> None:
        self.terms, self._groups = terms, groups
        self.sums = [np.zeros(terms.num_words, terms.ring.dtype) for _ in groups]
        self._of = {place: number for number, group in enumerate(groups) for place in group}

    def add(self, place: int, update: MaskedUpdate) -> None:
        """Add the update of the entry at `place` of the list."""
        self.terms.ring.add(self.sums[self._of[place]], update.read())

    def subtract(self, packed: bytes | memoryview) -> None:
        """Take off the masks of one portion: the packed sums of all groups, one after the other.

        PayloadError for another length.
        """
        view, each = memoryview(packed), self.terms.word_bytes
        if view.nbytes != each * len(self.sums):
            raise PayloadError(
                f"masks: {view.nbytes} bytes of masks, but {len(self.sums)} groups take {each * len(self.sums)}"
            )
        ring = self.terms.ring
        for number, total in enumerate(self.sums):
            part = view[number * each : (number + 1) * each]
            ring.subtract(total, packing.unpack(part, self.terms.num_words, ring.bits, ring.dtype))

    def means(self) -> list[tuple[Array, float] | str]:
        """Return each group's weighted mean (float32) with its sum of weights, or why its sum cannot be honest.

        Weights are shares of the largest one.
        """
        ring, found = self.terms.ring, list[tuple[Array, float] | str]()
        for group, total in zip(self._groups, self.sums, strict=True):
            reason = ring.refusal(total, len(group))
            found.append(reason or ring.decode(total, len(group)))
        return found


def _expanded(terms: MaskTerms, seeds: Sequence[bytes]) -> bytes:
    words = np.zeros(terms.num_words, terms.ring.dtype)
    add_streams(words, seeds, terms.ring.mask)
    return packing.pack(words, terms.ring.bits)
