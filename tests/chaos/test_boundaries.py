"""The controller is killed at each boundary of its journal: after each commit of a short run, and once more after the
first commit of the controller that came back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnraise.controller.state import actions as ca
from barnraise.emulation.fleet import Machine
from barnraise.transport.links.presets import parse

from ..campaigns import sizes
from ..state_machine import chances
from .campaign import finished
from .cluster import Case, Cluster
from .plans import Section

RATES = (20.0, 6.0, 20.0)
TOKENS = 300

MODES = ["audited-measured-flush", "synchronous-measured", "audited-stateless", "tuned_fragments"]
"""Among them all kinds of tasks, both modes of the engine, and versions of ranges."""


class Counted(Cluster):
    """Knows after how many decisions each commit ended, and how many there were when the controller died."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.boundaries: list[int] = []
        self.died_at: list[int] = []

    def _carry_out(self, actions: list[ca.Action]) -> None:
        before = len(self.journal.decisions)
        super()._carry_out(actions)
        if len(self.journal.decisions) > before:
            self.boundaries.append(len(self.journal.decisions))

    def die(self, seconds: float) -> None:
        self.died_at.append(len(self.journal.decisions))
        super().die(seconds)


def played(mode: str, faults: Sequence[Section] = ()) -> Counted:
    """A short run of three nodes. Raises Failed."""
    machines = [Machine(f"node{i}", rate, parse("10mbit/50ms", 0), 16 << 30) for i, rate in enumerate(RATES)]
    changes = chances.MODES[mode] | {"tokens": TOKENS}
    case = Case("1", mode, list(faults), machines, changes, churn=None, spoiled=0.0)
    return finished(Counted(case))


def death(decisions: int) -> Section:
    return {"do": "kill_controller", "at_decisions": decisions, "seconds": 2.0}


@pytest.mark.parametrize("every", sizes(8, 1))
@pytest.mark.parametrize("mode", MODES)
def test_a_run_ends_as_it_must_wherever_its_controller_is_killed(mode: str, every: int) -> None:
    boundaries = played(mode).boundaries
    assert len(boundaries) > 60
    for boundary in boundaries[:-1:every]:  # with the last the run is over
        found = played(mode, [death(boundary), death(boundary + 1)])
        first, second = found.died_at
        assert first == boundary < second
        assert found.epoch == 3
