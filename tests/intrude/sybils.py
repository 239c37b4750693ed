"""Effects of three sybils of one invite, which join first and submit tiny updates, on seven honest nodes.

The controller is a real one with the defaults of `serve`. One of the honest nodes may be a real worker. The other
members speak the protocol, and submit updates that are as long as a worker's.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import random
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tests.intrude.kit.member import Member

from barnraise.core import ranges
from barnraise.core.types import Blob, Contribution, Train
from barnraise.ledger.decisions import Change, NodeChanged
from barnraise.ledger.view import LedgerView
from barnraise.wire.messages import Ack, Offer

from .arena import HONEST, RUN, Arena
from .member import update

SYBILS, MEMBERS = 3, 7
LARGEST_SHARE_LOST = 0.05
"""Share of the honest nodes' contributions that may be refused."""
TINY = 1e-12
"""The value of each element of a sybil's update."""
LIKELY = 0.3
"""Root mean square of an honest update's elements, in learning rates times steps."""


class Besieged(NamedTuple):
    """The result of the siege."""

    way: str
    accepted: int  # accepted contributions of the honest nodes
    refused: int
    sybils_accepted: int
    dismissed: list[str]
    problems: list[str]

    @property
    def share_lost(self) -> float:
        return self.refused / max(1, self.accepted + self.refused)

    def lines(self) -> list[str]:
        """Return the measurements, each beside its limit."""
        return [
            f"{self.way}: {SYBILS} sybils with tiny updates, of which {self.sybils_accepted} were accepted",
            f"  of {MEMBERS} honest nodes' contributions {self.accepted} were accepted, {self.refused} refused "
            f"({self.share_lost:.1%}, at most {LARGEST_SHARE_LOST:.0%})",
            f"  dismissed: {', '.join(self.dismissed) or 'nobody'}",
            *(f"  PROBLEM: {problem}" for problem in self.problems),
        ]

    def misses(self) -> list[str]:
        """Return the failures of this siege."""
        found = list(self.problems)
        if self.share_lost > LARGEST_SHARE_LOST:
            found.append(f"{self.way}: {self.share_lost:.1%} of the honest contributions are refused beside sybils")
        if self.dismissed:
            found.append(f"{self.way}: beside sybils {', '.join(self.dismissed)} were dismissed")
        return found


async def besiege(folder: Path, way: str, *, rounds: int, seed: str, worker: bool) -> Besieged:
    """Let sybils in by one door, then the honest nodes, and have each node submit `rounds` contributions.

    A real `worker` is among the honest nodes or not.
    """
    rng = random.Random(seed)
    controller = {name: value for name, value in RUN["controller"].items() if name != "max_update_norm"}
    there = Arena(folder, rng, {**RUN, "controller": controller})
    try:
        await asyncio.to_thread(there.begin)
        async with contextlib.AsyncExitStack() as stack:

            async def joined(name: str) -> Member:
                member = await stack.enter_async_context(Member(name, there.invite(way), rng))
                assert await member.join(), f"{name} is not let in"
                return member

            sybils = [await joined(f"sybil-{number}") for number in range(SYBILS)]
            for _ in range(3):
                await _all(hand_in(sybil, TINY) for sybil in sybils)
            if worker:
                await asyncio.to_thread(there.employ, way)
            honest = [await joined(f"member-{number}") for number in range(MEMBERS - worker)]
            for _ in range(rounds):
                await _all([*(hand_in(sybil, TINY) for sybil in sybils), *(hand_in(member) for member in honest)])
            if worker:
                await asyncio.to_thread(there.serve.wait_for, lambda _: _accepted(there, HONEST) >= rounds, 300.0)
        return _found(there, way)
    finally:
        there.close()


async def hand_in(member: Member, value: float | None = None) -> None:
    """Take a task and submit an update, of which each element is `value`, or which is as long as a worker's."""
    task = await member.task()
    if task is None and await member.greet() is not None:  # it was silent for too long
        task = await member.task()
    if not isinstance(task, Train):
        return
    size = ranges.size(task.parameters)
    data = update(size, value or 0.0)
    if value is None:
        length = LIKELY * task.learning_rate * task.local_steps
        signs = np.random.default_rng(member.rng.getrandbits(32)).choice((-length, length), size)
        data = data[: -4 * size] + signs.astype(np.float32).tobytes()
    blob = Blob(hashlib.sha256(data).hexdigest(), len(data))
    made = Contribution.of(task, blob, codec=task.rung, steps=task.local_steps, loss=math.log(258), seconds=1.0)
    await member.send(Offer(member.signed(made)), data)
    await member.expect(Ack)


async def _all(work: Iterable[object]) -> None:
    await asyncio.gather(*work)  # type: ignore[call-overload]


def _accepted(there: Arena, node: str) -> int:
    with LedgerView(there.run / "ledger.sqlite") as view:
        return sum(each.outcomes.accepted for each in view.nodes() if each.node == node)


def _found(there: Arena, way: str) -> Besieged:
    with LedgerView(there.run / "ledger.sqlite") as view:
        honest = [node for node in view.nodes() if not node.node.startswith("sybil-")]
        sybils = [node for node in view.nodes() if node.node.startswith("sybil-")]
        changes = [row for _, row in view.news() if isinstance(row, NodeChanged)]
    if len(honest) != MEMBERS:
        there.problems.append(f"{len(honest)} of {MEMBERS} honest nodes were let in")
    return Besieged(
        way,
        accepted=sum(node.outcomes.accepted for node in honest),
        refused=sum(node.outcomes.refused for node in honest),
        sybils_accepted=sum(node.outcomes.accepted for node in sybils),
        dismissed=sorted({change.node for change in changes if change.change == Change.DISMISSED}),
        problems=there.problems,
    )
