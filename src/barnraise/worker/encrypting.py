"""Encrypted updates on a worker: the stage that encrypts, and the replica of a model that is published encrypted."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from barnraise.compression.base import Codec
from barnraise.core.errors import BarnraiseError, InputError, PayloadError, RunFailedError
from barnraise.core.types import Train
from barnraise.privacy.encryption import keys
from barnraise.privacy.encryption.agreed import agreed
from barnraise.privacy.encryption.cipher import KeyHolder
from barnraise.privacy.encryption.digits import from_digits
from barnraise.privacy.encryption.envelope import Agreement, encode
from barnraise.wire.messages import WorkerSettings
from barnraise.wire.private import Encrypted
from barnraise.worker.masking import Mask
from barnraise.worker.protection_timer import ProtectionTimer
from barnraise.worker.replica import Replica
from barnraise.worker.stages import NOT_FINITE, Draft, WorkerStage

MOST_OF_UPDATE, MOST_OF_MODEL = 0.25, 0.5
"""Shares of the bound that an update, and the model, may reach: updates that are under way have room beside both."""


class ModelKey:
    """A key to the model of a run, under the `agreement` of its updates."""

    def __init__(self, key: keys.SecretKey, agreement: Agreement) -> None:
        self.holder, self._agreement = KeyHolder(key, agreement), agreement

    def opened(self, digits: Tensor) -> Tensor:
        """Return the model, float32 [values], of a version's digits; PayloadError where they are no sum of updates.

        Updates are differences of start and end, so the model is their sum with the other sign.
        """
        found = from_digits(digits.numpy(), self._agreement)
        if found is None:
            return torch.zeros(self._agreement.values, dtype=torch.float32)
        return torch.from_numpy(np.negative(self.holder.decrypt(found)).astype(np.float32))


def model_key(key_file: str, terms: Encrypted, values: int) -> ModelKey:
    """Return the owner's key to a model of `values` values; RunFailedError where it is not the run's."""
    try:
        return ModelKey(key_of(key_file, terms), agreed(terms.key, terms.updates, terms.bound, values))
    except InputError as error:  # terms that no sum can have
        raise RunFailedError(f"the controller's terms of encryption cannot hold: {error}; leave this run") from error


def key_of(path: str, terms: Encrypted) -> keys.SecretKey:
    """Return the key of a worker's owner; RunFailedError where it is not the run's, or there is none."""
    if not path:
        raise RunFailedError(
            f"the run's updates are encrypted with the key {terms.key}: ask a member of the run for its file, and join "
            "with --key FILE"
        )
    try:
        found = keys.load(Path(path).expanduser())
    except InputError as error:
        raise RunFailedError(str(error)) from error
    if found.name != terms.key:
        raise RunFailedError(f"{path} is the key {found.name}, but the run's updates are encrypted with {terms.key}")
    return found


class OpenedReplica(Replica):
    """The decrypted model of `size` parameters at the version of `sealed`, whose lock it shares.

    A version that cannot be decrypted is told by `require`, before the next task begins.
    """

    def __init__(self, size: int, sealed: Replica, timer: ProtectionTimer) -> None:
        super().__init__(size, sealed.codec, follows=False)
        self.sealed, self.lock, self._timer = sealed, sealed.lock, timer
        self.key: ModelKey | None = None
        self._trouble: BarnraiseError | None = None
        sealed.on_changed = self._open

    def require(self) -> None:
        if self._trouble is not None:
            raise RunFailedError(
                f"version {self.sealed.version} cannot be decrypted: {self._trouble}; a member sent what is no update, "
                "or the controller published no sum, so this run has no model any more"
            ) from self._trouble

    def read(self, published: Tensor) -> Tensor:
        assert self.key is not None, "the key is known before the first version"
        return self.key.opened(published)

    def _open(self) -> None:
        """Decrypt the newest version; the lock is held."""
        sealed, self._trouble = self.sealed, None
        try:
            with self._timer.protecting():
                self.parameters = self.read(sealed.parameters)
        except PayloadError as error:
            self._trouble = error
        self.version, self.digest = sealed.version, sealed.digest
        self.merged, self.share, self.moved = sealed.merged, sealed.share, sealed.moved


class Encrypt(WorkerStage):
    """Weighs an update by its staleness, and encrypts it; `plain` keeps it for the worker's own progress."""

    def __init__(self, terms: Encrypted, plain: Codec, model: OpenedReplica, timer: ProtectionTimer) -> None:
        self._terms, self._plain, self._model, self._timer = terms, plain, model, timer
        self._age = 0

    def begin(self, task: Train, steps: int, age: int, model: str) -> None:
        """Take the staleness, in versions, of the next update; its task, steps and version do not matter."""
        self._age = age

    def forward(self, update: Draft) -> None:
        key, terms, values = self._model.key, self._terms, update.vector.numpy()
        assert key is not None, "the key is known before the first task"
        if not np.isfinite(values).all():
            raise PayloadError(NOT_FINITE)
        reached, most = float(self._model.parameters.abs().max()), MOST_OF_MODEL * terms.bound
        if reached > most:
            raise RunFailedError(
                f"a parameter has come to {reached:.3g}, but encrypted sums are sure up to {most:.3g}; its host should "
                f"begin a run with privacy.homomorphic_encryption.bound above {terms.bound:g}"
            )
        largest, most = float(np.abs(values).max()), MOST_OF_UPDATE * terms.bound
        if largest > most:
            raise PayloadError(f"a value of the update is {largest:.3g}, at most {most:.3g} is sure in encrypted sums")
        weight = terms.weights[min(self._age, len(terms.weights) - 1)]
        update.encoded = self._plain.encode(update.vector, update.version)
        with self._timer.protecting():
            update.masked = encode(key.holder.encrypt(values, weight))


def hiding(settings: WorkerSettings, plain: Codec, model: Replica, timer: ProtectionTimer) -> Mask | Encrypt | None:
    """Return the stage that hides updates of this `model`; None where they are sent in clear."""
    uplink, private = settings.uplink, settings.private
    if uplink.masks is not None:
        return Mask(uplink.masks, plain, timer, private.clip if private is not None else math.inf)
    if uplink.encryption is not None:
        assert isinstance(model, OpenedReplica)
        return Encrypt(uplink.encryption, plain, model, timer)
    return None
