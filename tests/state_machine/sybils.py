"""Measure what three of ten nodes can move for the other seven, in the pure controller and in virtual time.

    python -m tests.state_machine.sybils

Seven honest nodes take 4 to 7 s a task. Three others come 10 s before them and behave as one of `WAYS` says: with the
same owner (one invite, one network), or with three.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable
from typing import NamedTuple

from barnraise.controller.machine import Controller
from barnraise.controller.state import actions as act
from barnraise.controller.state import effects
from barnraise.controller.state import events as ev
from barnraise.controller.state.state import State
from barnraise.core.types import KINDS, AnyTask, Blob, LinkReport, NodeProfile, Train
from barnraise.ledger.decisions import Assigned, Change, Judged, NodeChanged, VersionClosed
from barnraise.staleness import create as staleness
from barnraise.training.reach import Reach
from barnraise.wire.messages import PROTOCOL_VERSION, Assign, Heartbeat, Hello, Offer, RequestTask

from .engine import contribution, digest, engine_settings

SYBILS, HONEST = 3, 7
SECONDS, HEAD_START = 300.0, 10.0
TOKENS = 12
"""Tokens of a task of two steps; a longer task has more."""


class Way(NamedTuple):
    """How a node behaves: the seconds that its nth task takes, what it claims, and the norm of its updates. One that
    `works` takes longer for more steps."""

    seconds: Callable[[int], float]
    claim: float
    link: LinkReport = LinkReport()
    norm: float = 0.5
    silent: bool = False  # takes a task, and submits nothing
    works: bool = True


def honest(number: int) -> Way:
    takes = 4.0 + number / 2
    return Way(lambda _: takes, TOKENS / takes, LinkReport(0.1, 1e6, 1e6))


WAYS = {
    "nobody": None,
    "as honest ones": honest(3),
    "tiny updates": Way(lambda _: 5.0, 2.4, norm=1e-9),
    "at once": Way(lambda _: 0.05, 2.4, works=False),
    "at once, in bursts": Way(lambda number: 0.05 if number % 20 else 8.0, 2.4, works=False),
    "slow": Way(lambda _: 60.0, 0.2),
    "silent": Way(lambda _: 5.0, 2.4, silent=True),
    "claims a fast machine": Way(lambda _: 5.0, 1e15),
    "claims a slow machine": Way(lambda _: 5.0, 1e-3),
    "claims a slow line": Way(lambda _: 5.0, 2.4, LinkReport(1e12, 1e-3, 1e-3)),
}
"""The behaviours of the three sybils."""


class Outcome(NamedTuple):
    """The effects on the honest nodes: tokens in accepted contributions, refused contributions and dismissed nodes.

    The other fields describe their tasks and the versions in the second half.
    """

    tokens: int  # in those that were accepted
    refused: int
    dismissed: int
    share: float  # the three sybils' share of all accepted tokens
    size: int  # K
    versions: int
    moved: float  # how far versions of honest nodes alone moved, in the mean, as a share of their aggregate
    steps: float  # steps of an honest task, and its learning rate as a share of the run's
    rate: float
    staleness: int  # the least bound of an honest task


class Fleet:
    """The controller and what each node does, on one clock."""

    def __init__(self, way: Way | None, owners: int, pace: str) -> None:
        self.settings = engine_settings(
            tokens=10**12, pace=pace, reach=Reach(10.0), max_local_steps=20, checkpoint_seconds=1e9,
            heartbeat=100.0, lease=1e4, longest=1e4,
            staleness=staleness("adaptive", max_staleness=50),
        )  # fmt: skip
        self.machine, self.now = Controller(self.settings, State(), 1), 0.0
        self.ways = {f"h{number}": honest(number) for number in range(HONEST)}
        self.owners = {name: f"owner of {name}" for name in self.ways}
        for number in range(SYBILS if way else 0):
            self.ways[f"s{number}"] = way or honest(0)
            self.owners[f"s{number}"] = f"villain {number % owners}"
        self.agenda: list[tuple[float, int, str]] = []
        self.tasks: dict[str, AnyTask] = {}
        self.done: dict[str, int] = dict.fromkeys(self.ways, 0)
        self.journal: list[object] = []
        self._take(self.machine.start(digest(0), 0.0))

    def play(self) -> Outcome:
        for name in self.ways:
            self._later(0.0 if name[0] == "s" else HEAD_START, name)
        while self.agenda and self.agenda[0][0] < SECONDS:
            self.now, _, name = heapq.heappop(self.agenda)
            while self.machine.deadline <= self.now:
                self._handle(ev.Tick())
            self._turn(name)
        return self._outcome()

    def _later(self, time: float, name: str) -> None:
        heapq.heappush(self.agenda, (time, len(self.journal), name))

    def _turn(self, name: str) -> None:
        """The node joins, hands its task in, or says that it is there; then it asks for the next one."""
        way, node = self.ways[name], self.machine.state.nodes.get(name)
        if node is None:
            self._handle(ev.Admitted(name, f"key of {name}", owner=self.owners[name]))
            profile = NodeProfile(way.claim)
            self._handle(ev.Received(name, Hello(PROTOCOL_VERSION, 1, 1, profile, -1, kinds=tuple(KINDS))))
        elif not node.live:
            return
        elif (task := self.tasks.get(name)) is not None and not way.silent:
            del self.tasks[name]
            self.done[name] += 1
            self._handle(ev.Received(name, Offer(contribution(task))))
        else:
            self._handle(ev.Received(name, Heartbeat(self.now)))
        if name not in self.tasks:
            self._handle(ev.Received(name, RequestTask(self.machine.state.newest.version, way.link)))
        task = self.tasks.get(name)
        times = task.local_steps / self.settings.tasks.local_steps if isinstance(task, Train) and way.works else 1.0
        self._later(self.now + times * way.seconds(self.done[name]), name)

    def _handle(self, event: ev.Event) -> None:
        self._take(self.machine.handle(event, self.now))

    def _take(self, actions: list[act.Action]) -> None:
        for action in actions:
            match action:
                case act.Journal(decision=decision):
                    self.journal.append(decision)
                case act.Send(node=name, message=Assign(task=task)):
                    self.tasks[name] = task
                case act.Receive(node=name, result=offer):
                    self._handle(ev.Arrived(name, offer.assignment, offer.payload.num_bytes))
                case effects.Inspect(epoch=epoch, node=name, result=offer):
                    self._handle(effects.Inspected(epoch, offer.assignment, self.ways[name].norm))
                case effects.Aggregate(epoch=epoch, version=version):
                    self._handle(effects.Aggregated(epoch, version, digest(version), Blob(digest(10**6 + version), 90)))
                case effects.Evaluate(epoch=epoch, version=version):
                    self._handle(effects.Evaluated(epoch, version, 2.0))
                case _:
                    pass

    def _outcome(self) -> Outcome:
        whose = {d.assignment: d.node for d in self.journal if isinstance(d, Assigned)}
        judged = [d for d in self.journal if isinstance(d, Judged)]
        mine = [d for d in judged if d.node[0] == "h"]
        tokens = sum(d.tokens for d in judged if d.verdict == "accepted")
        own = sum(d.tokens for d in mine if d.verdict == "accepted")
        late = [d for d in self.journal if isinstance(d, VersionClosed) and d.time > SECONDS / 2]
        alone = [d for d in late if all(whose[number][0] == "h" for number in d.contributions)]
        tasks = [d for d in self.journal if isinstance(d, Assigned) and d.node[0] == "h" and d.time > SECONDS / 2]
        gone = {d.node for d in self.journal if isinstance(d, NodeChanged) and d.change == Change.DISMISSED}
        return Outcome(
            tokens=own,
            refused=sum(d.verdict == "refused" for d in mine),
            dismissed=sum(name[0] == "h" for name in gone),
            share=1.0 - own / tokens,
            size=self.machine.state.buffer.size,
            versions=len(late),
            moved=sum(d.rate for d in alone) / len(alone) if alone else 1.0,
            steps=sum(d.local_steps for d in tasks) / max(1, len(tasks)),
            rate=sum(d.terms.learning_rate for d in tasks) / max(1, len(tasks)) / self.settings.tasks.learning_rate,
            staleness=min((d.terms.max_staleness for d in tasks), default=0),
        )


def outcome(way: str, owners: int = 1, pace: str = "fixed") -> Outcome:
    """Return the effect of three nodes that behave in `way`, with `owners` owners, on seven honest nodes."""
    return Fleet(WAYS[way], owners, pace).play()


def main() -> int:
    for pace in ("fixed", "matched"):
        print(f"pace: {pace}; the three have one owner / three owners")
        print(f"{'the three':24s}" + "".join(f"{name:>18s}" for name in Outcome._fields))
        for way in WAYS:
            found = [outcome(way, owners, pace) for owners in (1, 3)]
            told = [(f"{one:.3g}", f"{other:.3g}") for one, other in zip(*found, strict=True)]
            cells = [one if one == other else f"{one} / {other}" for one, other in told]
            print(f"{way:24s}" + "".join(f"{cell:>18s}" for cell in cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
