"""A part of `make intrude` that fits into every test run: both machines under events with hostile values."""

from __future__ import annotations

import pytest

from .machines import MACHINES, campaign


@pytest.mark.parametrize("machine", MACHINES)
def test_hostile_values_break_no_machine(machine: str) -> None:
    done = campaign(machine, 15_000, "test")
    assert done.histories > 50, "these histories are too long to differ"
