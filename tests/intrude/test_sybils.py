"""A part of `make intrude` that fits into every test run: sybils beside honest members, at both doors."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.intrude.kit.ways import WAYS

from ..campaigns import some
from .sybils import MEMBERS, SYBILS, besiege

ROUNDS = 12
"""Contributions of each: two more than a node may have refused in a row before it is dismissed."""


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("way", some(WAYS[:1], WAYS))
def test_sybils_with_tiny_updates_have_no_honest_contribution_refused(tmp_path: Path, way: str) -> None:
    found = asyncio.run(besiege(tmp_path, way, rounds=ROUNDS, seed="test", worker=False))
    assert found.misses() == []
    assert found.accepted == MEMBERS * ROUNDS
    assert found.refused == 0
    assert found.sybils_accepted >= 3 * SYBILS
