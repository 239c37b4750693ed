"""The stages of a single contribution at its arrival: the checks before it may be accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from barnraise.compression.base import Codec, Reader
from barnraise.controller.tensors.stages.opening import codec_of
from barnraise.core import ranges
from barnraise.core.types import Contribution


@dataclass
class Arrival:
    """An arrived payload of `offer`, and the facts about its update so far."""

    offer: Contribution
    payload: Any
    reader: Reader | None = None
    norm: float = 0.0  # L2; `admission` decides about it


class Look:
    """One stage of a contribution's inspection."""

    def look(self, arrival: Arrival) -> None:
        """Inspect the arrived contribution.

        Raises PayloadError when it must be refused.
        """


class Decoded(Look):
    """Checks that it can be decoded, to finite values, by the codec that it names."""

    def __init__(self, codecs: Sequence[Codec]) -> None:
        self._codecs = codecs

    def look(self, arrival: Arrival) -> None:
        offer = arrival.offer
        size = ranges.size(offer.parameters)
        codec = codec_of(self._codecs, offer.codec, arrival.payload, size)
        arrival.reader = codec.open(arrival.payload, size, offer.base)


class Measured(Look):
    """Measures how far it would move the model."""

    def look(self, arrival: Arrival) -> None:
        assert arrival.reader is not None
        arrival.norm = arrival.reader.norm()
