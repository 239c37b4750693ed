"""Live attacks on a real controller, in turns with peace: what does one hostile member cost an honest one?

In a time of peace the attacker makes the same frames at the same pace and throws them away, so that both times have the
same load beside the controller's. Each attack is compared with the peace before it; the median of these ratios counts.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from barnraise.core.errors import AddressError

from .arena import WAYS, arena
from .member import Villain
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
    """The result of an attack over one transport."""

    way: str
    frames: int
    knocks: int
    lies: int
    turns: dict[str, list[Turn]]
    growth: int
    descriptors: tuple[int, int]
    account: dict[str, int]
    problems: list[str]

    def lines(self) -> list[str]:
        """Return the measurements, each beside its limit."""
        return [
            f"{self.way}: {self.frames} fuzzed frames, {self.knocks} strangers, {self.lies} lies",
            *(f"  {name}: {speed(turns)}" for name, turns in self.turns.items()),
            f"  memory: {self.growth / 2**20:+.1f} MB at its peak (at most {LARGEST_GROWTH >> 20} MB)",
            f"  open descriptors: {self.descriptors[0]} before, {self.descriptors[1]} after",
            f"  on the ledger: {', '.join(f'{count} {what}' for what, count in self.account.items())}",
            *(f"  PROBLEM: {problem}" for problem in self.problems),
        ]

    def misses(self) -> list[str]:
        """Return the failures of this attack."""
        found = list(self.problems)
        for name, turns in self.turns.items():
            if (loss := median_loss(turns)) > LARGEST_LOSS:
                found.append(f"{self.way}: {loss:.1%} of the honest tokens/s are lost under {name}")
        if self.growth > LARGEST_GROWTH:
            found.append(f"{self.way}: the controller's memory has grown by {self.growth / 2**20:.0f} MB")
        return found


def median_loss(turns: list[Turn]) -> float:
    return median(turn.loss for turn in turns)


def speed(turns: list[Turn]) -> str:
    """Return a line about the honest worker's speed in these turns."""
    before, after = (median(values) for values in zip(*turns, strict=True))
    loss = median_loss(turns)
    each = " ".join(f"{turn.loss:.0%}" for turn in turns)
    return (
        f"honest tokens/s {before:.0f} in peace, {after:.0f} under attack; "
        f"median loss {loss:.1%} (at most {LARGEST_LOSS:.0%}), in each turn {each}"
    )


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
        async with (
            Villain("villain", there.invite(way), rng) as villain,
            Villain("liar", there.invite(way), rng) as liar,  # the controller does not mistrust it yet
        ):
            await there.attack(villain.join())
            await there.attack(villain.fuzz(WARM_UP_SECONDS, pace, strangers.knock, dry=True))
            there.mark_memory()
            descriptors = there.descriptors()

            async def turn(attack: Callable[[bool], Awaitable[int]]) -> Turn:
                taken = Turn(await there.rate(attack(True)), await there.rate(attack(False)))
                done = f"{villain.num_fuzzed} frames, {liar.num_lies} lies"
                say(f"{way}: {done}, {taken.peace:.0f} -> {taken.attack:.0f} tokens/s")
                return taken

            turns: dict[str, list[Turn]] = {}
            while villain.num_fuzzed < frames and there.alive:
                fuzzed = await turn(lambda dry: villain.fuzz(seconds, pace, strangers.knock, dry=dry))
                turns.setdefault("fuzzed frames", []).append(fuzzed)
            await there.attack(liar.takes_over(villain))
            for _ in range(lying_turns if there.alive else 0):
                lied = await turn(lambda dry: liar.lie(seconds, dry=dry))
                turns.setdefault("a lying member", []).append(lied)
            growth = there.memory_growth()
        strangers.go()
        await there.conclude()
        return Verdict(
            way, villain.num_fuzzed, strangers.num_knocks, liar.num_lies, turns, growth,
            (descriptors, there.descriptors_after), there.account(), there.problems,
        )  # fmt: skip


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
        with contextlib.suppress(AddressError):  # no answer from the controller: the end of the run finds that
            for way in WAYS:
                async with Villain(f"villain-{way}", there.invite(way), rng) as villain:
                    await there.attack(villain.join())
                    while villain.num_fuzzed < frames and there.alive:
                        await there.attack(villain.fuzz(0.2, 1e9, strangers.knock, dry=False))
                    sent += villain.num_fuzzed
                async with Villain(f"liar-{way}", there.invite(way), rng) as liar:  # not mistrusted yet
                    await there.attack(liar.join())
                    while liar.num_lies < lies and there.alive:
                        await there.attack(liar.lie(0.2, dry=False))
                    lied += liar.num_lies
        growth = there.memory_growth()
        strangers.go()
        await there.conclude()
        return Struck(sent, lied, growth, there.account(), there.problems)
