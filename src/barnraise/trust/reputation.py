"""What follows for a node from what it was found to do: how often it is looked at, what its work counts, and for how
long it gets none.

A conviction is exact: others have done its task again and agree with each other. So one is enough, and none follows
from an outlier. Where tasks cannot be done again there is a test of many comparisons (`suspicion`); what it ends in is
the same. Whoever is back from quarantine counts little until it was found sound a few times; who is convicted again
stays away longer, and at last for good.
"""

from __future__ import annotations

import math

import msgspec

from barnraise.trust import suspicion

QUARANTINE = 600.0
"""Seconds without tasks after the first conviction; ten times as long after the next."""

MOST = 3
"""Convictions after which a node stays away."""

PROBATION = 5
"""Audits, or scores, after which a node that was convicted counts like any other."""

NEWCOMER = 4.0
"""By how many times more often a node is audited that was never found sound, than one that was several times."""

DOUBTED = 0.9
"""Share of its weight that a node has lost when it is all but discredited; it loses none of it up to half the way."""

TRUSTED = 1.0
"""What the contributions of a node weigh of which nothing is suspected, and that is not on probation."""


class Scores(msgspec.Struct, frozen=True):
    """What a node's comparisons came to: how many there were, how often they pass of late, and how much `suspicion`
    they leave."""

    count: int = 0
    passing: float = suspicion.OTHER
    suspicion: float = 0.0

    def plus(self, passed: bool, left: float) -> Scores:
        return Scores(self.count + 1, suspicion.passing(self.passing, self.count, passed), left)

    @property
    def known(self) -> bool:
        return self.count >= suspicion.KNOWN

    def sound(self, expected: float) -> bool:
        """Whether it is known for work on its rows, as far as comparisons tell: they pass nearer to what is expected of
        an honest node than to what is of others.

        >>> scores = Scores(9, 0.6), Scores(9, 0.5), Scores(7, 0.9), Scores(9, 0.6, 8.0)
        >>> (
        ...     [one.sound(0.9) for one in scores],
        ...     Scores(9, 0.3).sound(suspicion.OTHER),
        ...     Scores(9, 0.1).sound(suspicion.OTHER),
        ... )
        ([True, False, False, False], True, False)
        """
        return self.known and not self.doubt and self.passing >= (suspicion.OTHER + expected) / 2

    @property
    def doubt(self) -> float:
        """From 0 to 1: how near the second half of the way to the limit is to its end."""
        return min(1.0, max(0.0, 2.0 * self.suspicion / suspicion.LIMIT - 1.0))


class Reputation(msgspec.Struct, frozen=True):
    """What is known of a node: how often it was `convicted`, until when it gets no tasks for that (the controller's
    clock), how often it was found `sound` since, and what its scores since are."""

    convicted: int = 0
    until: float = 0.0
    sound: int = 0
    scores: Scores = Scores()

    @property
    def banned(self) -> bool:
        return self.convicted >= MOST

    def after_conviction(self, now: float) -> Reputation:
        """
        >>> [Reputation(count).after_conviction(0.0).until for count in range(3)]
        [600.0, 6000.0, inf]
        """
        convicted = self.convicted + 1
        until = math.inf if convicted >= MOST else now + QUARANTINE * 10.0 ** (convicted - 1)
        return Reputation(convicted, until, 0)

    def after_audit(self) -> Reputation:
        return msgspec.structs.replace(self, sound=self.sound + 1)

    def after_score(self, passed: bool, left: float) -> Reputation:
        """`left` is the suspicion that is left after it."""
        return msgspec.structs.replace(self, sound=self.sound + passed, scores=self.scores.plus(passed, left))

    def weight(self) -> float:
        """What its contributions count for, as a share of what others' do.

        >>> Reputation().weight(), Reputation(1, 0.0, 1).weight(), Reputation(1, 0.0, 9).weight()
        (1.0, 0.4, 1.0)
        >>> [round(Reputation(scores=Scores(9, 0.6, found)).weight(), 2) for found in (4.6, 6.9, 9.2)]
        [1.0, 0.55, 0.1]
        """
        probation = 1.0 if not self.convicted else min(1.0, (1 + self.sound) / PROBATION)
        return TRUSTED * probation * (1.0 - DOUBTED * self.scores.doubt)

    @property
    def on_probation(self) -> bool:
        """Whether it counts less than others."""
        return self.weight() < TRUSTED

    def chance(self, share: float) -> float:
        """That its next contribution is audited, where `share` of a known node's are: who could do the most harm
        unnoticed is looked at first.

        >>> Reputation().chance(0.05), Reputation(0, 0.0, 1).chance(0.05), Reputation(0, 0.0, 9).chance(0.05)
        (0.2, 0.1, 0.05)
        >>> Reputation(1).chance(0.05)
        0.5
        """
        if self.convicted and self.sound < PROBATION:
            return max(share, 0.5)
        return min(1.0, share * max(1.0, NEWCOMER / (1 + self.sound)))

    def chance_of_score(self, share: float) -> float:
        """The same of a score: whoever is not known yet, or under suspicion, is looked at each time.

        >>> found = Scores(), Scores(9, 0.8, 0.1), Scores(9, 0.8)
        >>> [Reputation(scores=scores).chance_of_score(0.1) for scores in found]
        [1.0, 1.0, 0.1]
        """
        return share if self.scores.known and not self.scores.suspicion else 1.0
