"""Thousands of attempts at a controller, spread over kinds and doors, and their results.

async with Scene(invites, revoke, rng, patience=60.0).prepared() as scene:
    campaign = Campaign(scene, "seed")
    await campaign.go(10_000, pace=40.0)
    await campaign.finish()
print(campaign.judge(Seen(ledger, witness.let_in)))
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Coroutine, Iterator
from random import Random
from typing import NamedTuple

from barnraise.core.errors import AddressError, WireError

from .base import Trace
from .catalog import CATALOG, kind_of
from .evidence import Seen
from .scene import Scene
from .ways import Unmade

AT_ONCE = 32
"""Attempts under way, but for those that take long and do little."""


class Place(NamedTuple):
    """A kind of attempt and the door that it is made at."""

    kind: str
    way: str


class Verdict(NamedTuple):
    """The result of a campaign."""

    made: Counter[Place]
    unmade: Counter[str]  # attempts that failed before they began, by place and reason
    succeeded: list[str]
    problems: list[str]  # problems of the kit

    def lines(self) -> list[str]:
        """The kinds, and how many attempts there were at each door."""
        kinds = dict.fromkeys(place.kind for place in self.made)
        counts = {kind: {place.way: n for place, n in self.made.items() if place.kind == kind} for kind in kinds}
        return [f"{kind}: " + ", ".join(f"{n} over {way}" for way, n in counts[kind].items()) for kind in kinds]


class Campaign:
    """Attempt `number` is the same under the same seed. Nothing of it is judged before `judge`."""

    def __init__(self, scene: Scene, seed: str) -> None:
        self.scene, self.seed = scene, seed
        self.num_begun = 0
        self.traces: list[tuple[int, Place, Trace]] = []
        self.unmade: Counter[str] = Counter()
        self.problems: list[str] = []
        self._places = _in_turn(Random(f"{seed} places"))
        self._room = asyncio.Semaphore(AT_ONCE)
        self._under_way: set[asyncio.Task[None]] = set()

    async def go(self, most: int, *, pace: float, seconds: float = float("inf")) -> None:
        """Begin `most` more attempts, `pace` a second, for `seconds` at the most."""
        loop = asyncio.get_running_loop()
        began, count = loop.time(), 0
        while count < most and (passed := loop.time() - began) < seconds:
            if count > passed * pace:
                await asyncio.sleep(1.0 / pace)
                continue
            place = next(self._places)
            attempt = kind_of(place.kind)(Random(f"{self.seed} {self.num_begun}"))
            if not attempt.lasting:
                await self._room.acquire()
            task = asyncio.ensure_future(self._make(self.num_begun, place, attempt.make(self.scene, place.way)))
            if not attempt.lasting:
                task.add_done_callback(lambda _: self._room.release())
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            self.num_begun, count = self.num_begun + 1, count + 1

    async def _make(self, number: int, place: Place, making: Coroutine[None, None, Trace]) -> None:
        try:
            trace = await making
        except Unmade as error:
            self.unmade[f"{place.kind} over {place.way}: {error}"] += 1
        except (OSError, EOFError, AddressError, WireError):  # it was hung up on
            self.traces.append((number, place, Trace()))
        except Exception as error:
            self.problems.append(f"attempt {number} ({place.kind} over {place.way}): {type(error).__name__}: {error}")
        else:
            self.traces.append((number, place, trace))

    async def finish(self) -> None:
        """Wait for those that are under way."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    def judge(self, seen: Seen) -> Verdict:
        """Judge which attempts succeeded, by the answers to their makers and by the messages and decisions of the
        controller."""
        found = []
        for number, place, trace in self.traces:
            shown = [text for mark in trace.marks if (text := mark(seen))]
            if trace.heard:
                shown.append(f"it was told: {trace.heard}")
            found += [f"attempt {number} ({place.kind} over {place.way}): {'; '.join(shown)}"] if shown else []
        made = Counter(place for _, place, _ in sorted(self.traces, key=lambda one: one[1]))
        return Verdict(made, self.unmade, found, self.problems)


def _in_turn(rng: Random) -> Iterator[Place]:
    """Each kind at each of its doors as often as any other, in an order that chance has made."""
    places = [Place(name, way) for name in CATALOG.names() for way in kind_of(name).ways]
    for _ in itertools.count():
        rng.shuffle(places)
        yield from places
