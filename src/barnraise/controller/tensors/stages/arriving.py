"""The stages of a single contribution at its arrival: the checks before it may be accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from barnraise.compression.base import Codec, Reader
from barnraise.controller.tensors.stages.opening import codec_of
from barnraise.core import ranges
from barnraise.core.types import Contribution, PayloadResult


@dataclass
class Arrival:
    """An arrived payload of `result`, and the facts about its update so far."""

    result: PayloadResult
    payload: Any
    reader: Reader | None = None
    norm: float = 0.0  # L2; `admission` decides about it


class Look:
    """One stage of a contribution's inspection."""

    def look(self, arrival: Arrival) -> None:
        """Inspect the arrived contribution.

        Raises PayloadError when it must be refused.
        """


class Headed(Look):
    """Checks the header that its codec wrote, and its length, without a look at its numbers."""

    def __init__(self, codecs: Sequence[Codec]) -> None:
        self._codecs = codecs

    def look(self, arrival: Arrival) -> None:
        codec, size, support = _expected(self._codecs, arrival)
        codec.header(arrival.payload, size, support)


class Decoded(Look):
    """Checks that it can be decoded, to finite values, by the codec that it names."""

    def __init__(self, codecs: Sequence[Codec]) -> None:
        self._codecs = codecs

    def look(self, arrival: Arrival) -> None:
        codec, size, support = _expected(self._codecs, arrival)
        arrival.reader = codec.open(arrival.payload, size, support)


class Measured(Look):
    """Measures how far it would move the model."""

    def look(self, arrival: Arrival) -> None:
        assert arrival.reader is not None
        arrival.norm = arrival.reader.norm()


def _expected(codecs: Sequence[Codec], arrival: Arrival) -> tuple[Codec, int, int]:
    """Return the codec of an update, the number of its elements, and that of its support."""
    offer = arrival.result
    assert isinstance(offer, Contribution), "other payloads are not looked into"
    size = ranges.size(offer.parameters)
    return codec_of(codecs, offer.codec, arrival.payload, size), size, offer.support
