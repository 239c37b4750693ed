"""The model of an encrypted run is read with its key alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from barnraise.assembly.opening import opened_vector, require_key, terms_of
from barnraise.core.errors import InputError
from barnraise.ledger import RunDirectory
from barnraise.models.exchange.layout import Layout
from barnraise.models.exchange.record import Exchange
from barnraise.privacy.encryption import keys
from barnraise.privacy.encryption.agreed import agreed
from barnraise.privacy.encryption.cipher import KeyHolder
from barnraise.privacy.encryption.digits import num_digits, to_digits

VALUES = 300
EXCHANGE = Exchange(Layout.of([("b", (VALUES,))]), digits=num_digits(VALUES))
KEY = keys.make("club")


def run_of(folder: Path, privacy: dict[str, object]) -> RunDirectory:
    run = RunDirectory(folder)
    content = {
        "model": {"architecture": "gpt2", "config": {"hidden_size": 8, "num_layers": 1, "num_heads": 1}},
        "data": {"kind": "text", "files": ["a"], "context": 8},
        "training": {"tokens": 10_000, "batch_size": 1},
        "privacy": privacy,
    }
    run.run_file.write_text(json.dumps(content))
    return run


@pytest.fixture
def encrypted(tmp_path: Path) -> RunDirectory:
    return run_of(tmp_path, {"homomorphic_encryption": {"key": KEY.name, "nodes": 1}})


def test_a_model_in_clear_needs_no_key(tmp_path: Path) -> None:
    run, vector = run_of(tmp_path, {}), torch.ones(VALUES)
    assert terms_of(run) is None
    require_key(run, None)
    assert opened_vector(run, EXCHANGE, vector, None) is vector


def test_a_key_opens_the_model_of_its_run(encrypted: RunDirectory, tmp_path: Path) -> None:
    file, update = tmp_path / "club.key", 0.1 * torch.randn(VALUES, generator=torch.Generator().manual_seed(0))
    keys.save(KEY, file)
    terms = terms_of(encrypted)
    assert terms is not None
    digits = to_digits(KeyHolder(KEY, terms.agreement(VALUES)).encrypt(update.numpy()))
    found = opened_vector(encrypted, EXCHANGE, torch.from_numpy(digits), file)
    assert float((found + update).norm() / update.norm()) < 1e-4, "an update is taken from the model"
    digits[5] = 0.5  # a digit above 2^23 has no half in float32
    with pytest.raises(InputError, match=r"cannot be decrypted: .*export an earlier version with --version"):
        opened_vector(encrypted, EXCHANGE, torch.from_numpy(digits), file)


def test_a_model_stays_closed_without_the_key_of_its_run(encrypted: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"is encrypted with the key {KEY.name}; give its file: .* --key FILE"):
        require_key(encrypted, None)
    other = keys.make("club")
    keys.save(other, tmp_path / "other.key")
    digits = to_digits(KeyHolder(other, agreed(other.name, 4096, 4.0, VALUES)).encrypt(torch.ones(VALUES).numpy()))
    with pytest.raises(InputError, match=f"{other.id} of run club is not the key {KEY.id} of run club"):
        opened_vector(encrypted, EXCHANGE, torch.from_numpy(digits), tmp_path / "other.key")
