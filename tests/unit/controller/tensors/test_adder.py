"""The controller adds encrypted updates without a key: versions are sums, and other payloads are refused unread."""

from __future__ import annotations

import re

import msgspec
import numpy as np
import pytest
import torch

from barnraise import aggregation, compression, training
from barnraise.controller.state.actions import Held, Slot
from barnraise.controller.tensors.adder import Adder
from barnraise.controller.tensors.parameter_server import ParameterServer
from barnraise.core.errors import VersionRefusedError
from barnraise.core.types import ParameterRange
from barnraise.privacy.encryption import keys
from barnraise.privacy.encryption.agreed import agreed
from barnraise.privacy.encryption.cipher import KeyHolder
from barnraise.privacy.encryption.digits import from_digits, num_digits
from barnraise.privacy.encryption.envelope import Ciphertext, encode

from .test_parameter_server import offer

VALUES = 300
KEY = keys.make("club")
AGREEMENT = agreed(KEY.name, 4096, 1.0, VALUES)
HOLDER = KeyHolder(KEY, AGREEMENT)


def update(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, 0.01, VALUES).astype(np.float32)


def server_of() -> ParameterServer:
    return ParameterServer(
        torch.zeros(num_digits(VALUES)),
        0,
        rule=aggregation.create("mean"),
        codecs=[compression.create("none")],
        downlink=compression.create("none"),
        outer=training.create("sgd", learning_rate=1.0),
        adder=Adder(AGREEMENT),
    )


def slots(*assignments: int) -> list[Slot]:
    return [Slot(f"node-{one}", ParameterRange(0, num_digits(VALUES)), (Held(one, 1.0, 0),)) for one in assignments]


def test_versions_are_sums_of_all_updates_so_far() -> None:
    server, payloads = server_of(), {one: encode(HOLDER.encrypt(update(one), 0.5)) for one in range(1, 4)}
    server.aggregate(1, slots(1, 2), payloads.__getitem__)
    server.aggregate(2, slots(3), payloads.__getitem__)
    found = from_digits(server.parameters.numpy(), AGREEMENT)
    assert found is not None
    assert found.header.terms == 3
    exact = 0.5 * sum(update(one).astype(np.float64) for one in range(1, 4))
    assert np.linalg.norm(HOLDER.decrypt(found) - exact) <= 1e-4 * np.linalg.norm(exact)


def test_a_version_that_holds_a_foreign_update_is_refused_and_changes_nothing() -> None:
    server, foreign = server_of(), keys.make("other")
    holder = KeyHolder(foreign, agreed(foreign.name, 4096, 1.0, VALUES))
    payloads = {1: encode(HOLDER.encrypt(update(1))), 2: encode(holder.encrypt(update(2)))}
    with pytest.raises(VersionRefusedError) as refused:
        server.aggregate(1, slots(1, 2), payloads.__getitem__)
    assert list(refused.value.void) == [2]
    assert "its run is other, but the run has club" in refused.value.void[2]
    assert not server.parameters.any()


def test_a_sum_of_more_updates_than_its_noise_allows_is_refused() -> None:
    few = agreed(KEY.name, 1, 1.0, VALUES)
    holder = KeyHolder(KEY, few)
    payloads = {one: encode(holder.encrypt(update(one))) for one in (1, 2)}
    with pytest.raises(VersionRefusedError, match="a sum of 2 encrypted updates, at most 1 keep its noise"):
        Adder(few).sums(1, slots(1, 2), payloads.__getitem__, torch.zeros(num_digits(VALUES)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"key": "00" * 16}, "its key is 0{32}, but the run has"),
        ({"parties": 8192}, "its parties is 8192, but the run has 4096"),
        ({"bound": 2.0}, "its bound is 2.0, but the run has 1.0"),
        ({"scheme": "ckks-1"}, "its scheme is ckks-1, but the run has"),
        ({"values": 301}, "its values is 301, but the run has 300"),
        ({"terms": 2}, "a sum of 2 updates, at most 1"),
    ],
)
def test_a_payload_under_other_terms_is_refused_with_its_task(change: dict[str, object], said: str) -> None:
    whole = HOLDER.encrypt(update(1))
    payload = encode(Ciphertext(msgspec.structs.replace(whole.header, **change), whole.residues))
    _, defect = server_of().inspect(payload, offer(), "header")
    assert re.search(f"ciphertext of task 1: .*{said}", defect)
