"""Acts of a host against the machines of trustees: what they keep from it, and what it would learn without a rule."""

from __future__ import annotations

import pytest
import torch
from tests.attack_settings import setting_of

from barnraise.compression import create
from barnraise.core.types import Blob, News, Update
from barnraise.models.vectors import digest, raw
from barnraise.privacy.attacks.protocol.malicious_host import ACTS, MEMBERS, invented_members, likeness
from barnraise.privacy.attacks.protocol.masked_group import MaskedGroup
from barnraise.privacy.attacks.runner import play_one
from barnraise.worker.replica import Replica


def group_of(**changes: object) -> MaskedGroup:
    generator = torch.Generator().manual_seed(0)
    updates = [torch.randn(300, generator=generator) for _ in range(MEMBERS)]
    return MaskedGroup(updates, 5.0, **changes)  # type: ignore[arg-type]


def test_trustees_open_an_honest_list() -> None:
    group = group_of()
    found = group.released(group.list_of([group.member(number) for number in range(MEMBERS)]))
    assert found is not None
    torch.testing.assert_close(found[0], torch.stack(group.updates).sum(0), atol=1e-2, rtol=0)


@pytest.mark.parametrize("name", sorted(ACTS))
def test_trustees_refuse_each_act(name: str) -> None:
    assert ACTS[name](group_of()) is None


def test_a_roster_that_the_host_writes_gives_the_victim_away() -> None:
    group = group_of(known_to=[f"invented-{number}" for number in range(1, MEMBERS)])
    found = invented_members(group)
    assert found is not None
    assert likeness(found, group.updates[0]) > 0.999


@pytest.mark.parametrize("protection", ["masked", "sum:6"])
def test_a_host_learns_nothing_of_masked_updates(protection: str) -> None:
    found = play_one("malicious_host", setting_of(protection), len(ACTS), seed=0)
    assert found.attacked.successes == found.control.successes == 0
    assert found.mean_score < 0.1


def test_a_host_reads_updates_without_masks() -> None:
    assert play_one("malicious_host", setting_of("none"), 3, seed=0).attacked.successes == 3


def test_workers_of_a_plain_run_accept_inconsistent_models_with_fitting_digests() -> None:
    codec = create("none")
    for value in (1.0, 2.0):
        model = torch.full((8,), value)
        data = bytes(raw(model))
        update = Update("snapshot", 5, Blob(digest(model), len(data)), digest(model))
        assert Replica(8, codec, follows=False).update(News(updates=(update,)), lambda blob, data=data: data) == 5
