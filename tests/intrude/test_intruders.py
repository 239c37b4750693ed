"""A part of `make intrude` that fits into every test run: the intrusion kit at both doors of a real controller."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.intrude.kit.catalog import CATALOG, kind_of

from .intruders import intrude
from .live import LARGEST_GROWTH

ATTEMPTS = 250


@pytest.mark.campaign
@pytest.mark.slow
def test_no_attempt_of_the_intrusion_kit_succeeds(tmp_path: Path) -> None:
    found = asyncio.run(intrude(tmp_path, "zmq", attempts=ATTEMPTS, pace=30.0, seconds=0.0, seed="test", patience=4.0))
    assert found.verdict.succeeded == []
    assert found.problems == []
    assert found.growth <= LARGEST_GROWTH
    assert {(place.kind, place.way) for place in found.verdict.made} == {
        (name, way) for name in CATALOG.names() for way in kind_of(name).ways
    }
    assert found.num_made >= 0.9 * ATTEMPTS, found.verdict.unmade
