"""Decryption of an encrypted run's model, on a machine that has the key file."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from barnraise.config.load import load
from barnraise.core.errors import InputError, PayloadError
from barnraise.core.program import program
from barnraise.ledger import RunDirectory
from barnraise.models.exchange.record import Exchange
from barnraise.plan.encryption import EncryptionTerms, encryption_of


def terms_of(run: RunDirectory) -> EncryptionTerms | None:
    """Return the terms of a run's encrypted updates; None where its model is in clear."""
    return encryption_of(load(run.run_file))


def require_key(run: RunDirectory, key_file: Path | None) -> None:
    """Raise InputError where the run's model is encrypted, and no key is given."""
    terms = terms_of(run)
    if terms is not None and key_file is None:
        raise InputError(
            f"the model of {run.path} is encrypted with the key {terms.section.key}; give its file: "
            f"{program()} export {run.path} --key FILE"
        )


def opened_vector(run: RunDirectory, exchange: Exchange, vector: Tensor, key_file: Path | None) -> Tensor:
    """Return the trained parameters of a version, float32, decrypted where the run's updates are encrypted.

    InputError without the key, with another key, or for digits that are no sum of updates.
    """
    terms = terms_of(run)
    if terms is None:
        return vector
    require_key(run, key_file)
    assert key_file is not None
    from barnraise.privacy.encryption import keys
    from barnraise.worker.encrypting import ModelKey

    try:
        return ModelKey(keys.load(key_file), terms.agreement(exchange.trained)).opened(vector)
    except PayloadError as error:
        raise InputError(
            f"the model of {run.path} cannot be decrypted: {error}; a member sent what is no update, so export an "
            "earlier version with --version"
        ) from error
