"""The emulated links of a lab as a target of faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from barnraise.emulation.tun_hub import Disturbance
from barnraise.faults.links import Effect, Fate, LinkTarget


class LabLinks(LinkTarget):
    """Tells the link emulator what happens to packets; where several faults are in force on one link, the worst counts.

    `namespaces` are those of the workers, by name; `disturb` tells the emulator.

    >>> import random
    >>> told = []
    >>> links = LabLinks({"a": "lab-a"}, told.append)
    >>> links.effects("a").append(Effect(Fate.LOST, "down", 0.5, random.Random(0)))
    >>> links.changed("a")
    >>> told
    [Disturbance(namespace='lab-a', lost=(0.0, 0.5), twice=(0.0, 0.0), late=(0.0, 0.0), spoiled=(0.0, 0.0))]
    """

    def __init__(self, namespaces: Mapping[str, str], disturb: Callable[[Disturbance], None]) -> None:
        self.namespaces, self.disturb = namespaces, disturb
        self._effects: dict[str, list[Effect]] = {name: [] for name in namespaces}

    def nodes(self) -> Sequence[str]:
        return list(self.namespaces)

    def effects(self, node: str) -> list[Effect]:
        return self._effects[node]

    def changed(self, node: str) -> None:
        shares = (
            (self._worst(node, fate, "up"), self._worst(node, fate, "down"))
            for fate in (Fate.LOST, Fate.TWICE, Fate.LATE, Fate.CORRUPT)
        )
        self.disturb(Disturbance(self.namespaces[node], *shares))

    def _worst(self, node: str, fate: Fate, way: str) -> float:
        """Return the largest share of the packets of that way that are to have this fate."""
        found = (effect for effect in self._effects[node] if effect.fate is fate and effect.way in ("", way))
        return max((effect.share for effect in found), default=0.0)
