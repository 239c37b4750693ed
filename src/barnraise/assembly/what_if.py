"""Changes of a run whose effect on its end can be forecast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from barnraise.transport.links.link import Link


@dataclass(frozen=True)
class Joining:
    """Machines of one kind that join: a name for them, their number, tokens a second and link."""

    what: str
    count: int
    rate: float
    link: Link

    @property
    def names(self) -> list[str]:
        """Return a name for each of them, which no node of a run has."""
        return [f"joins as {self.what} {number}" for number in range(self.count)]


@dataclass(frozen=True)
class WhatIf:
    """A change of a run: machines that join, nodes that leave, and keys of the run file with other values."""

    label: str
    joining: tuple[Joining, ...] = ()
    leaving: tuple[str, ...] = ()
    keys: Mapping[str, Any] = field(default_factory=dict)


UNCHANGED = WhatIf("as it is")
"""No change."""


def steps_change(steps: int) -> WhatIf:
    """Return a change of the local steps of a task."""
    return WhatIf(f"local steps {steps}", keys={"training.local_steps": steps})


def density_change(density: float) -> WhatIf:
    """Return a change of the share of values that a contribution sends."""
    return WhatIf(f"density {density:.3g}", keys={"exchange.compression_ratio": density})
