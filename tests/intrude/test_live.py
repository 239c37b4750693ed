"""A part of `make intrude` that fits into every test run: both doors of a real controller under hostile frames."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from .live import LARGEST_GROWTH, strike


@pytest.mark.campaign
@pytest.mark.slow
def test_a_controller_survives_hostile_frames_lies_and_strangers(tmp_path: Path) -> None:
    found = asyncio.run(strike(tmp_path, frames=1500, lies=30, seed="test"))
    assert found.problems == []
    assert found.growth <= LARGEST_GROWTH
    assert found.frames >= 3000
    assert found.lies >= 60
    assert found.account["malformed"] > 0
    assert found.account["accepted"] > 0
    assert found.account["refused"] > 0
