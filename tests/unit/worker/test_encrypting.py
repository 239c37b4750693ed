"""Encrypted updates on a worker: what it decrypts is the model, and foreign keys and wide values are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from barnraise import compression
from barnraise.core.errors import PayloadError, RunFailedError
from barnraise.privacy.encryption import keys
from barnraise.privacy.encryption.agreed import agreed
from barnraise.privacy.encryption.cipher import KeyHolder
from barnraise.privacy.encryption.digits import num_digits, to_digits
from barnraise.privacy.encryption.envelope import Ciphertext, decode, total
from barnraise.wire.private import Encrypted
from barnraise.worker.encrypting import Encrypt, OpenedReplica, key_of, model_key
from barnraise.worker.protection_timer import ProtectionTimer
from barnraise.worker.replica import Replica
from barnraise.worker.update_path import UpdatePath

from ...tasks import train

VALUES = 300
KEY = keys.make("club")
TERMS = Encrypted(KEY.name, 4096, 1.0, (0.5, 0.25))
AGREEMENT = agreed(KEY.name, 4096, 1.0, VALUES)


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("keys") / "club.key"
    keys.save(KEY, file)
    return str(file)


@pytest.fixture
def replica(key_file: str) -> OpenedReplica:
    codec = compression.create("none")
    found = OpenedReplica(VALUES, Replica(num_digits(VALUES), codec, follows=False), ProtectionTimer())
    found.key = model_key(key_file, TERMS, VALUES)
    return found


def path_of(replica: OpenedReplica) -> tuple[UpdatePath, Encrypt]:
    codec = compression.create("none")
    stage = Encrypt(TERMS, codec, replica, ProtectionTimer())
    return UpdatePath(codec, error_feedback=False, decay=1.0, update_clip=None, mask=stage), stage


def begin(stage: Encrypt, age: int) -> None:
    stage.begin(train(), 4, age, "")


def drawn(seed: int) -> torch.Tensor:
    return 0.01 * torch.randn(VALUES, generator=torch.Generator().manual_seed(seed))


def test_a_replica_of_decrypted_sums_moves_by_the_weighted_updates(replica: OpenedReplica) -> None:
    path, stage = path_of(replica)
    sent = []
    for age in range(3):
        begin(stage, age)
        sent.append(path.send(drawn(age), torch.zeros(VALUES)).data)
    parts = [decode(payload, AGREEMENT, "ann", fresh=True) for payload in sent]
    replica.sealed.restore(torch.from_numpy(to_digits(total(parts, AGREEMENT))), 2)
    exact = -(0.5 * drawn(0) + 0.25 * drawn(1) + 0.25 * drawn(2))
    assert float((replica.parameters - exact).norm() / exact.norm()) < 1e-4
    assert (replica.version, replica.digest) == (2, replica.sealed.digest)
    replica.require()


def test_an_update_carries_no_plain_value(replica: OpenedReplica) -> None:
    path, stage = path_of(replica)
    begin(stage, 0)
    update = drawn(7)
    content = path.send(update.clone(), torch.zeros(VALUES)).data
    values = update.numpy().tobytes()
    assert not [start for start in range(0, len(values), 8) if values[start : start + 8] in bytes(content)]


def test_a_version_that_is_no_sum_ends_the_worker_with_the_reason(replica: OpenedReplica) -> None:
    digits = torch.zeros(num_digits(VALUES))
    digits[0] = 0.5
    replica.sealed.restore(digits, 3)
    with pytest.raises(RunFailedError, match=r"version 3 cannot be decrypted: .*this run has no model any more"):
        replica.require()


def test_a_sum_under_another_key_is_no_model(replica: OpenedReplica) -> None:
    other = keys.make("club")
    part = KeyHolder(other, agreed(other.name, 4096, 1.0, VALUES)).encrypt(drawn(1).numpy())
    digits = to_digits(Ciphertext(AGREEMENT.header(1), part.residues))
    replica.sealed.restore(torch.from_numpy(digits), 1)
    with pytest.raises(RunFailedError, match="it was encrypted with another key, or is no sum of updates"):
        replica.require()


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (0.3, PayloadError, r"a value of the update is 0\.3, at most 0\.25 is sure in encrypted sums"),
        (float("nan"), PayloadError, "elements that are not finite"),
    ],
)
def test_an_update_that_sums_cannot_hold_is_not_sent(
    value: float, error: type[Exception], said: str, replica: OpenedReplica
) -> None:
    path, stage = path_of(replica)
    begin(stage, 0)
    update = drawn(1)
    update[5] = value
    with pytest.raises(error, match=said):
        path.send(update, torch.zeros(VALUES))


def test_a_model_that_has_left_half_of_its_bound_ends_the_worker(replica: OpenedReplica) -> None:
    path, stage = path_of(replica)
    replica.parameters[3] = -0.6
    begin(stage, 0)
    with pytest.raises(RunFailedError, match=r"a parameter has come to 0\.6, but .*\.bound above 1"):
        path.send(drawn(1), torch.zeros(VALUES))


def test_a_worker_needs_the_key_of_the_run(key_file: str, tmp_path: Path) -> None:
    assert key_of(key_file, TERMS).name == KEY.name
    with pytest.raises(RunFailedError, match=f"with the key {KEY.name}: ask a member .* join with --key FILE"):
        key_of("", TERMS)
    with pytest.raises(RunFailedError, match="cannot be read: No such file or directory"):
        key_of(str(tmp_path / "none.key"), TERMS)
    other = tmp_path / "other.key"
    keys.save(keys.make("club"), other)
    with pytest.raises(RunFailedError, match=rf"other\.key is the key club/.*, but the run's updates .* {KEY.name}"):
        key_of(str(other), TERMS)


def test_terms_that_no_sum_can_have_end_the_worker(key_file: str) -> None:
    hostile = Encrypted(KEY.name, 1 << 30, 1.0, (1.0,))
    with pytest.raises(RunFailedError, match="the controller's terms of encryption cannot hold"):
        model_key(key_file, hostile, VALUES)


def test_an_update_older_than_all_weights_has_the_last_one(replica: OpenedReplica) -> None:
    path, stage = path_of(replica)
    begin(stage, 50)
    payload = path.send(drawn(1), torch.zeros(VALUES)).data
    found = replica.key.holder.decrypt(decode(payload, AGREEMENT, "ann", fresh=True))  # type: ignore[union-attr]
    np.testing.assert_allclose(found, 0.25 * drawn(1).numpy(), atol=1e-7)
