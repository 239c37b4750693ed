"""Encrypting an update's values and decrypting a sum, on a machine that holds the secret key."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from barnraise.core.errors import InputError, PayloadError

from . import keys
from .envelope import Agreement, Ciphertext
from .residues import Residues
from .scheme import DEGREE, SLOTS, num_blocks
from .seal_format import SealFrame

Values: TypeAlias = npt.NDArray[np.float32]


class KeyHolder:
    """Encrypts and decrypts with a run's secret key, under the terms that the run agreed on."""

    def __init__(self, key: keys.SecretKey, agreement: Agreement) -> None:
        if (key.run, key.id) != (agreement.run, agreement.key):
            raise InputError(
                f"the key {key.id} of run {key.run} is not the key {agreement.key} of run {agreement.run}; "
                "ask a member of the run for its key file"
            )
        self._library = keys.tenseal()
        self._context = key.context
        self._agreement = agreement
        self._frame = SealFrame(self._encrypted(np.zeros(SLOTS)), agreement.budget.scale)

    def encrypt(self, values: Values, weight: float = 1.0) -> Ciphertext:
        """Return `weight` times the values, encrypted; InputError when they exceed what a sum can hold.

        The values are rounded to whole steps of the budget, to at most 1e-4 of their norm.
        """
        budget = self._agreement.budget
        if values.shape != (self._agreement.values,):
            raise InputError(f"{values.size} values to encrypt, but the run's ranges have {self._agreement.values}")
        weighted = values.astype(np.float64) * weight
        budget.refuse_magnitude(float(np.abs(weighted).max()))
        whole = integers(weighted, budget.step)
        norm = float(np.linalg.norm(weighted))
        if norm:
            budget.refuse_error(float(np.linalg.norm(whole * budget.step - weighted)) / norm)
        blocks = np.zeros((num_blocks(values.size), SLOTS))
        blocks.reshape(-1)[: whole.size] = whole
        found = np.empty((len(blocks), 2, DEGREE), dtype=np.uint64)
        for block, out in zip(blocks, found, strict=True):
            out[:] = self._frame.residues(self._encrypted(block))
        return Ciphertext(self._agreement.header(1), found)

    def decrypt(self, ciphertext: Ciphertext) -> npt.NDArray[np.float64]:
        """Return the sum of the weighted values; PayloadError when it is no sum under this key.

        Each value is an integer times the budget's step, and equal on all machines that hold the key.
        """
        budget, terms = self._agreement.budget, ciphertext.header.terms
        if ciphertext.header != self._agreement.header(terms) or terms > budget.parties:
            raise PayloadError("a ciphertext under other terms cannot be decrypted; decode it with this run's first")
        whole = np.empty((len(ciphertext.residues), SLOTS))
        for block, out in zip(ciphertext.residues, whole, strict=True):
            slots = self._decrypted(block)
            np.rint(slots, out=out)
            noise = float(np.abs(slots - out).max())
            if not noise <= budget.noise(terms):
                raise PayloadError(
                    f"a decrypted value is {noise:.3g} steps from the next whole one, a sum of {terms} updates at most "
                    f"{budget.noise(terms):.3g}: it was encrypted with another key, or is no sum of updates"
                )
        largest = float(np.abs(whole).max())
        if largest > budget.largest(terms):
            raise PayloadError(
                f"a decrypted sum of {largest:.0f} steps, {terms} updates reach {budget.largest(terms)} at most: "
                "it is no sum of updates"
            )
        return whole.reshape(-1)[: self._agreement.values] * budget.step

    def _encrypted(self, block: npt.NDArray[np.float64]) -> bytes:
        return bytes(self._library.ckks_vector(self._context, block.tolist(), self._agreement.budget.scale).serialize())

    def _decrypted(self, block: Residues) -> npt.NDArray[np.float64]:
        try:
            found: Any = self._library.ckks_vector_from(self._context, self._frame.vector(block)).decrypt()
        except Exception as error:  # the library raises several kinds, for instance for a block of zeros alone
            raise PayloadError(f"a block cannot be decrypted: {error}") from error
        return np.array(found, dtype=np.float64)


def integers(weighted: npt.NDArray[np.float64], step: float) -> npt.NDArray[np.float64]:
    """Return the weighted values as whole numbers of steps: what a sum adds exactly."""
    return np.rint(weighted / step)
