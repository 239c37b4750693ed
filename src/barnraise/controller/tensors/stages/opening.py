"""The first stages: payloads are opened, each by the codec that its contribution names, and weighed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from barnraise.compression.base import Codec, Reader
from barnraise.controller.state.actions import Held
from barnraise.controller.tensors.stages.base import Making, Row, Stage
from barnraise.core import ranges
from barnraise.core.errors import CorruptionError, PayloadError, VersionRefusedError
from barnraise.core.threads import Crew
from barnraise.ledger.decisions import UNKNOWN_CODEC


def codec_of(codecs: Sequence[Codec], number: int, payload: Any, size: int) -> Codec:
    """Return the codec that a contribution names.

    Raises PayloadError when there is none of that number.
    """
    if number == UNKNOWN_CODEC:  # in an old ledger without codecs: length and tag tell it
        return next((codec for codec in codecs if codec.wrote(payload, size)), codecs[0])
    if not 0 <= number < len(codecs):
        raise PayloadError(f"is written in codec {number}, but this run has {len(codecs)}")
    return codecs[number]


class Open(Stage):
    """Makes a row of each slot that holds contributions and is not excluded.

    All payloads are read and checked.
    """

    def __init__(self, codecs: Sequence[Codec], crew: Crew) -> None:
        self._codecs, self._crew = codecs, crew

    def prepare(self, making: Making) -> None:
        """Open all payloads; VersionRefusedError names those that cannot be decoded (`void`) or read (`lost`)."""
        void: dict[int, str] = {}
        lost: dict[int, str] = {}
        payloads: list[tuple[Held, Any, int]] = []
        counted = [slot for slot in making.slots if slot.contributions and not slot.excluded]
        for slot in counted:
            for held in slot.contributions:
                try:
                    size = ranges.size(slot.parameters)
                    payloads.append((held, making.read(held.assignment), size))
                except CorruptionError as error:
                    lost[held.assignment] = str(error)

        def open_one(given: tuple[Held, Any, int]) -> Reader | None:
            held, payload, size = given
            try:
                return codec_of(self._codecs, held.codec, payload, size).open(payload, size)
            except PayloadError as error:
                void[held.assignment] = str(error)
            return None

        readers = self._crew.each(open_one, payloads)
        if void or lost:
            raise VersionRefusedError(making.version, void=void, lost=lost)
        following = iter(reader for reader in readers if reader is not None)
        making.rows = [Row(slot, list(islice(following, len(slot.contributions)))) for slot in counted]


class Weigh(Stage):
    """Weighs each row by the work of its contributions; where rows count `alike`, by freshness and trust alone."""

    def __init__(self, alike: bool) -> None:
        self._alike = alike

    def prepare(self, making: Making) -> None:
        for row in making.rows:
            weights = [held.weight for held in row.slot.contributions]
            total = sum(weights)
            row.shares = [weight / total if total else 0.0 for weight in weights]
            row.weight = row.slot.freshness * row.slot.trust if self._alike else total
