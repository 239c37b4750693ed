"""Random numbers of a simulation that are common to runs with one seed, whatever else differs between them.

Each node has a generator of its own for each purpose. So how long a node stays does not depend on the tasks of others,
and two schedulers are compared on the same departures, links and task times (common random numbers).
"""

from __future__ import annotations

import random

UNUSED = random.Random(0)
"""The generator of what draws nothing, as one takes 2.5 kB."""


class Chances:
    """Generators by node and purpose, all of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def of(self, node: str, purpose: str) -> random.Random:
        """Return a generator that draws the same from its start for the same seed, node and purpose.

        >>> Chances(1).of("a", "churn").random() == Chances(1).of("a", "churn").random()
        True
        >>> Chances(1).of("a", "churn").random() == Chances(1).of("a", "tasks").random()
        False
        """
        return random.Random(f"{self.seed} {purpose} {node}")
