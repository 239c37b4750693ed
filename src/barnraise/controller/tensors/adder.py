"""Encrypted updates on the controller's side: their headers and residues, and the sum of a version, without a key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from barnraise.controller.state.actions import Slot
from barnraise.controller.tensors.stages.arriving import Arrival, Look
from barnraise.controller.tensors.stages.base import ReadPayload, Sum, Whole
from barnraise.core.errors import CorruptionError, PayloadError, VersionRefusedError
from barnraise.privacy.encryption.digits import from_digits, to_digits
from barnraise.privacy.encryption.envelope import Agreement, Ciphertext, decode, total


class Adder(Look):
    """Adds encrypted updates under the terms of an `agreement` to a sum that the published digits hold."""

    def __init__(self, agreement: Agreement) -> None:
        self.agreement = agreement

    def look(self, arrival: Arrival) -> None:
        self._decoded(arrival.result.assignment, arrival.payload)

    def sums(self, version: int, slots: Sequence[Slot], read: ReadPayload, digits: Tensor) -> list[Sum]:
        """Return the difference of the digits to those of the next version, as the sum of all updates; [] for none.

        VersionRefusedError where a payload cannot be read or added; nothing is changed then.
        """
        void: dict[int, str] = {}
        lost: dict[int, str] = {}
        parts: list[Ciphertext] = []
        held = [(slot.node, one) for slot in slots if not slot.excluded for one in slot.contributions]
        for _, one in held:
            try:
                parts.append(self._decoded(one.assignment, read(one.assignment)))
            except CorruptionError as error:
                lost[one.assignment] = str(error)
            except PayloadError as error:
                void[one.assignment] = str(error)
        if void or lost:
            raise VersionRefusedError(version, void=void, lost=lost)
        if not parts:
            return []
        before = digits.numpy()
        try:
            found = from_digits(before, self.agreement)
            after = to_digits(total(parts if found is None else [found, *parts], self.agreement))
        except PayloadError as error:
            raise VersionRefusedError(version, str(error)) from error
        np.subtract(before, after, out=after)
        nodes, ages = [node for node, _ in held], [one.staleness for _, one in held]
        return [Sum((0, before.size), Whole(after), 1.0, nodes, ages)]

    def _decoded(self, assignment: int, payload: bytes | memoryview) -> Ciphertext:
        return decode(payload, self.agreement, f"task {assignment}", fresh=True)
