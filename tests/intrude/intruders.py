"""The intrusion kit at a real controller, in turns with peace."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.intrude.kit.campaign import Campaign, Verdict
from tests.intrude.kit.scene import Scene

from .arena import Arena, arena
from .live import LARGEST_GROWTH, LARGEST_LOSS, WARM_UP_SECONDS, Turn, median_loss, speed

WARM_UP_ATTEMPTS = 300
"""Before memory counts: each kind was met by each door, and what caches hold they hold."""


class Intruded(NamedTuple):
    """The result of the intrusion."""

    verdict: Verdict
    turns: list[Turn]
    growth: int
    descriptors: tuple[int, int]
    problems: list[str]

    @property
    def num_made(self) -> int:
        return sum(self.verdict.made.values())

    def lines(self) -> list[str]:
        """Return the measurements, each beside its limit."""
        unmade, succeeded = self.verdict.unmade, len(self.verdict.succeeded)
        return [
            f"intruders: {self.num_made} attempts, {succeeded} succeeded; {sum(unmade.values())} more were not made",
            *(f"  {line}" for line in self.verdict.lines()),
            *(f"  not made, {count}: {reason}" for reason, count in unmade.items()),
            *([f"  {speed(self.turns)}"] if self.turns else []),
            f"  memory: {self.growth / 2**20:+.1f} MB at its peak (at most {LARGEST_GROWTH >> 20} MB)",
            f"  open descriptors: {self.descriptors[0]} before, {self.descriptors[1]} after",
            *(f"  PROBLEM: {problem}" for problem in self.problems),
        ]

    def misses(self) -> list[str]:
        """Return the failures of this run."""
        found = [*self.problems, *self.verdict.succeeded]
        if self.turns and (loss := median_loss(self.turns)) > LARGEST_LOSS:
            found.append(f"intruders: {loss:.1%} of the honest tokens/s are lost")
        if self.growth > LARGEST_GROWTH:
            found.append(f"intruders: the controller's memory has grown by {self.growth / 2**20:.0f} MB")
        return found


async def intrude(
    folder: Path,
    way: str,
    *,
    attempts: int,
    pace: float,
    seconds: float,
    seed: str,
    patience: float,
    say: Callable[[str], None] = lambda text: None,
) -> Intruded:
    """So many attempts at both doors, `pace` a second, in turns of `seconds` with peace (0: without peace), while an
    honest worker behind the door `way` trains."""
    with arena(folder, random.Random(seed), way) as there:
        scene = Scene(there.invites(), there.revoke, there.rng, patience=patience)
        async with scene.prepared():
            campaign, turns = Campaign(scene, seed), list[Turn]()
            if seconds:
                await there.attack(campaign.go(min(WARM_UP_ATTEMPTS, attempts // 4), pace=pace))
                await there.attack(asyncio.sleep(WARM_UP_SECONDS))
            there.mark_memory()
            descriptors = there.descriptors()
            while campaign.num_begun < attempts and there.alive:
                left = attempts - campaign.num_begun
                if not seconds:
                    await there.attack(campaign.go(left, pace=pace))
                    continue
                turns.append(await _turn(there, campaign, left, pace, seconds))
                say(f"{campaign.num_begun} attempts, {turns[-1].peace:.0f} -> {turns[-1].attack:.0f} tokens/s")
            await there.attack(campaign.finish())
            growth = there.memory_growth()
            verdict = campaign.judge(await there.seen())
        await there.conclude()
        problems = [*verdict.problems, *there.problems]
        return Intruded(verdict, turns, growth, (descriptors, there.descriptors_after), problems)


async def _turn(there: Arena, campaign: Campaign, left: int, pace: float, seconds: float) -> Turn:
    return Turn(
        await there.rate(asyncio.sleep(seconds)), await there.rate(campaign.go(left, pace=pace, seconds=seconds))
    )
