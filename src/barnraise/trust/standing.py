"""What follows for a node from what it was found to do: how often it is looked at, what its work counts, and for how
long it gets none.

A conviction is exact: others have done its task again and agree with each other. So one is enough, and none follows
from an outlier. Whoever is back from quarantine counts little until it was found sound a few times; who is convicted
again stays away longer, and at last for good.
"""

from __future__ import annotations

import math

import msgspec

QUARANTINE = 600.0
"""Seconds without tasks after the first conviction; ten times as long after the next."""

MOST = 3
"""Convictions after which a node stays away."""

PROBATION = 5
"""Audits after which a node that was convicted counts like any other."""

NEWCOMER = 4.0
"""By how many times more often a node is audited that was never found sound, than one that was several times."""

TRUSTED = 1.0
"""What the contributions of a node weigh that is not on probation."""


class Standing(msgspec.Struct, frozen=True):
    """What is known of a node: how often it was `convicted`, until when it gets no tasks for that (the controller's
    clock), and how often it was found `sound` since."""

    convicted: int = 0
    until: float = 0.0
    sound: int = 0

    @property
    def banned(self) -> bool:
        return self.convicted >= MOST

    def after_conviction(self, now: float) -> Standing:
        """
        >>> [Standing(count).after_conviction(0.0).until for count in range(3)]
        [600.0, 6000.0, inf]
        """
        convicted = self.convicted + 1
        until = math.inf if convicted >= MOST else now + QUARANTINE * 10.0 ** (convicted - 1)
        return Standing(convicted, until, 0)

    def after_audit(self) -> Standing:
        return Standing(self.convicted, self.until, self.sound + 1)

    def weight(self) -> float:
        """What its contributions count for, as a share of what others' do.

        >>> Standing().weight(), Standing(1, 0.0, 1).weight(), Standing(1, 0.0, 9).weight()
        (1.0, 0.4, 1.0)
        """
        return TRUSTED if not self.convicted else min(TRUSTED, (1 + self.sound) / PROBATION)

    @property
    def on_probation(self) -> bool:
        """Whether it counts less than others."""
        return self.weight() < TRUSTED

    def chance(self, share: float) -> float:
        """That its next contribution is audited, where `share` of a known node's are: who could do the most harm
        unnoticed is looked at first.

        >>> Standing().chance(0.05), Standing(0, 0.0, 1).chance(0.05), Standing(0, 0.0, 9).chance(0.05)
        (0.2, 0.1, 0.05)
        >>> Standing(1).chance(0.05)
        0.5
        """
        if self.convicted and self.sound < PROBATION:
            return max(share, 0.5)
        return min(1.0, share * max(1.0, NEWCOMER / (1 + self.sound)))
