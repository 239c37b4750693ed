"""Consequences of a node's record: how often it is audited, its weight, and its quarantine.

A conviction is exact: other nodes have repeated its task and agree with each other. So one is enough, and an outlier
alone does not convict. Where tasks cannot be repeated there is a test of many comparisons (`suspicion`), with the same
consequences. A node that returns from quarantine weighs little until it was found sound a few times; after another
conviction it stays away longer, and after the third permanently.
"""

from __future__ import annotations

import math

import msgspec

from barnraise.trust import suspicion

QUARANTINE = 600.0
"""Seconds without tasks after the first conviction; ten times as long after the next."""

MOST = 3
"""Convictions after which a node stays away permanently."""

PROBATION = 5
"""Audits, or scores, after which a convicted node has full weight again."""

NEWCOMER = 4.0
"""Factor by which a node that was never found sound is audited more often than a known one."""

DOUBTED = 0.9
"""Share of its weight that a node has lost at the limit of suspicion; it loses none up to half of the limit."""

TRUSTED = 1.0
"""Weight of the contributions of a node without suspicion and not on probation."""


class Scores(msgspec.Struct, frozen=True):
    """The comparisons of a node's contributions: their number, recent pass rate, and the `suspicion` they leave."""

    count: int = 0
    passing: float = suspicion.OTHER
    suspicion: float = 0.0

    def plus(self, passed: bool, left: float) -> Scores:
        return Scores(self.count + 1, suspicion.passing(self.passing, self.count, passed), left)

    @property
    def known(self) -> bool:
        return self.count >= suspicion.KNOWN

    def sound(self, expected: float) -> bool:
        """Return whether the pass rate is nearer to that of honest nodes than to that of others.

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
        """Return the doubt, from 0 at half of the limit of suspicion to 1 at the limit."""
        return min(1.0, max(0.0, 2.0 * self.suspicion / suspicion.LIMIT - 1.0))


class Reputation(msgspec.Struct, frozen=True):
    """The record of a node: how often it was `convicted`, when its quarantine ends, and later results.

    Times are of the controller's clock. `sound` counts the audits since, and its scores are those since.
    """

    convicted: int = 0
    until: float = 0.0
    sound: int = 0
    scores: Scores = Scores()

    @property
    def banned(self) -> bool:
        return self.convicted >= MOST

    def after_conviction(self, now: float) -> Reputation:
        """Return the record after one more conviction at `now`.

        >>> [Reputation(count).after_conviction(0.0).until for count in range(3)]
        [600.0, 6000.0, inf]
        """
        convicted = self.convicted + 1
        until = math.inf if convicted >= MOST else now + QUARANTINE * 10.0 ** (convicted - 1)
        return Reputation(convicted, until, 0)

    def after_audit(self) -> Reputation:
        return msgspec.structs.replace(self, sound=self.sound + 1)

    def after_score(self, passed: bool, left: float) -> Reputation:
        """Return the record after a score; `left` is the suspicion after it."""
        return msgspec.structs.replace(self, sound=self.sound + passed, scores=self.scores.plus(passed, left))

    def weight(self) -> float:
        """Return the weight of its contributions, as a share of other nodes'.

        >>> Reputation().weight(), Reputation(1, 0.0, 1).weight(), Reputation(1, 0.0, 9).weight()
        (1.0, 0.4, 1.0)
        >>> [round(Reputation(scores=Scores(9, 0.6, found)).weight(), 2) for found in (4.6, 6.9, 9.2)]
        [1.0, 0.55, 0.1]
        """
        if not self.convicted and not self.scores.suspicion:
            return TRUSTED
        probation = 1.0 if not self.convicted else min(1.0, (1 + self.sound) / PROBATION)
        return TRUSTED * probation * (1.0 - DOUBTED * self.scores.doubt)

    @property
    def on_probation(self) -> bool:
        """Return whether it weighs less than others after a conviction."""
        return self.weight() < TRUSTED

    def chance(self, share: float) -> float:
        """Return the probability that its next contribution is audited, when known nodes are audited with `share`.

        Nodes that could do the most harm unnoticed are audited first.

        >>> Reputation().chance(0.05), Reputation(0, 0.0, 1).chance(0.05), Reputation(0, 0.0, 9).chance(0.05)
        (0.2, 0.1, 0.05)
        >>> Reputation(1).chance(0.05)
        0.5
        """
        if self.convicted and self.sound < PROBATION:
            return max(share, 0.5)
        return min(1.0, share * max(1.0, NEWCOMER / (1 + self.sound)))

    def chance_of_score(self, share: float) -> float:
        """Return the probability of a score, which is 1 for unknown nodes and for those under suspicion.

        >>> found = Scores(), Scores(9, 0.8, 0.1), Scores(9, 0.8)
        >>> [Reputation(scores=scores).chance_of_score(0.1) for scores in found]
        [1.0, 1.0, 0.1]
        """
        return share if self.scores.known and not self.scores.suspicion else 1.0
