"""Live attacks on a real controller, in turns with peace: what does one hostile member cost an honest one?

In a time of peace the attacker makes the same frames at the same pace and throws them away, so that both times have the
same load beside the controller's. Each attack is compared with the peace before it; the median of these ratios counts.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from .arena import WAYS, Arena, arena
from .member import LIES_A_SECOND, Member
from .strangers import Strangers

LARGEST_LOSS = 0.05
"""Share of an honest worker's tokens a second that one hostile member may cost."""
LARGEST_GROWTH = 50 * 2**20
"""Bytes by which the controller's resident memory may rise."""
WARM_UP_SECONDS = 15.0


class Turn(NamedTuple):
    """A time of peace and the attack after it: the honest worker's tokens a second in each."""

    peace: float
    attack: float

    @property
    def loss(self) -> float:
        return 1.0 - self.attack / self.peace if self.peace else 1.0


class Verdict(NamedTuple):
    """What an attack over one transport has done."""

    way: str
    frames: int
    knocks: int
    lies: int
    fuzzed: list[Turn]
    lied: list[Turn]
    growth: int
    descriptors: tuple[int, int]
    account: dict[str, int]
    problems: list[str]

    def lines(self) -> list[str]:
        """What was measured, beside what it may be."""
        fuzzed, lied = (f"{median(turn.loss for turn in turns):.1%}" for turns in (self.fuzzed, self.lied))
        spread = [f"{turn.loss:.0%}" for turn in self.fuzzed + self.lied]
        before, after = (median(values) for values in zip(*self.fuzzed, strict=True))
        return [
            f"{self.way}: {self.frames} fuzzed frames, {self.knocks} strangers, {self.lies} lies",
            f"  honest tokens/s: {before:.0f} in peace, {after:.0f} under fuzzed frames",
            f"  loss under fuzzed frames (median of {len(self.fuzzed)} turns): {fuzzed} (at most {LARGEST_LOSS:.0%})",
            f"  loss under a lying member (median of {len(self.lied)} turns): {lied} (at most {LARGEST_LOSS:.0%})",
            f"  loss in each turn: {' '.join(spread)}",
            f"  memory: {self.growth / 2**20:+.1f} MB at its peak (at most {LARGEST_GROWTH >> 20} MB)",
            f"  open descriptors: {self.descriptors[0]} before, {self.descriptors[1]} after",
            f"  on the ledger: {', '.join(f'{count} {what}' for what, count in self.account.items())}",
            *(f"  PROBLEM: {problem}" for problem in self.problems),
        ]

    def misses(self) -> list[str]:
        """What is not as it has to be."""
        found = list(self.problems)
        for name, turns in (("fuzzed frames", self.fuzzed), ("a lying member", self.lied)):
            if (loss := median(turn.loss for turn in turns)) > LARGEST_LOSS:
                found.append(f"{self.way}: {loss:.1%} of the honest tokens/s are lost under {name}")
        if self.growth > LARGEST_GROWTH:
            found.append(f"{self.way}: the controller's memory has grown by {self.growth / 2**20:.0f} MB")
        return found


async def measure(
    folder: Path,
    way: str,
    *,
    frames: int,
    pace: float,
    seconds: float,
    lying_turns: int,
    seed: str,
    say: Callable[[str], None],
) -> Verdict:
    """Attack over one transport until `frames` were sent, in turns of `seconds`, at `pace` frames a second."""
    rng = random.Random(seed)
    with arena(folder, rng, way) as there:
        strangers = Strangers(there.ports, rng)
        async with Member("villain", there.invite(way), rng) as villain:
            await villain.join()
            await there.rate(lambda: villain.fuzz(WARM_UP_SECONDS, pace, strangers.knock, dry=True))
            there.mark_memory()
            descriptors = there.descriptors()

            async def turn(attack: Callable[[bool], Awaitable[int]]) -> Turn:
                taken = Turn(await there.rate(lambda: attack(True)), await there.rate(lambda: attack(False)))
                say(f"{way}: {villain.num_sent} frames, {taken.peace:.0f} -> {taken.attack:.0f} tokens/s")
                return taken

            fuzzed, lied = [], []
            while villain.num_sent < frames and there.alive():
                fuzzed.append(await turn(lambda dry: villain.fuzz(seconds, pace, strangers.knock, dry=dry)))
            for _ in range(lying_turns):
                lied.append(await turn(lambda dry: villain.lie(seconds, dry=dry)))
            growth = there.memory_growth()
        await conclude(there, strangers)
        return Verdict(
            way, villain.num_sent, strangers.num_knocks, villain.num_lies, fuzzed, lied, growth,
            (descriptors, there.seen_descriptors), there.account(), there.problems,
        )  # fmt: skip


async def conclude(there: Arena, strangers: Strangers) -> None:
    """The attack is over: whatever it broke is found now."""
    strangers.go()
    if there.alive():
        for door in WAYS:
            await there.let_in(door)
        there.seen_descriptors = there.descriptors()
        there.end()


class Struck(NamedTuple):
    """The same without figures of speed."""

    frames: int
    lies: int
    growth: int
    account: dict[str, int]
    problems: list[str]


async def strike(folder: Path, *, frames: int, lies: int, seed: str) -> Struck:
    """As many frames and lies over each transport, as fast as they go."""
    rng, sent, lied = random.Random(seed), 0, 0
    with arena(folder, rng, WAYS[0]) as there:
        strangers = Strangers(there.ports, rng)
        there.mark_memory()
        for way in WAYS:
            async with Member(f"villain-{way}", there.invite(way), rng) as villain:
                await villain.join()
                while villain.num_sent < frames and there.alive():
                    await villain.fuzz(0.2, 1e9, strangers.knock, dry=False)
                await villain.lie(lies / LIES_A_SECOND, dry=False)
                sent, lied = sent + villain.num_sent, lied + villain.num_lies
        growth = there.memory_growth()
        await conclude(there, strangers)
        return Struck(sent, lied, growth, there.account(), there.problems)
