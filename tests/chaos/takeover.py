"""A small cluster with a standby, whose network is cut and heals, and whose controller dies.

The standby takes over from a copy that lags, while the old controller may continue with the nodes that can still
reach it.

The standby's copy is the controller's journal, less the newest rows. `standby.succession` decides when the standby
takes over, and `shell.durability` when a controller acknowledges. The simulation then has its controller's
attributes twice, and each event is one of the controller that its node is connected to.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from barnraise.controller.machine import RESUME_GRACE, Controller
from barnraise.controller.shell.durability import Durability
from barnraise.controller.standby.succession import Stage, Succession
from barnraise.controller.state import actions as ca
from barnraise.controller.state import effects
from barnraise.controller.state import events as ce
from barnraise.controller.state.fold import apply
from barnraise.controller.state.state import State
from barnraise.core.types import AnyTask, News
from barnraise.emulation.event_queue import Call, EventQueue
from barnraise.emulation.journal import DecisionJournal, stored
from barnraise.emulation.node import Node
from barnraise.emulation.simulator import Point
from barnraise.faults.simulated_disk import Disk
from barnraise.faults.simulator import _way
from barnraise.ledger.copying import TERM
from barnraise.ledger.decisions import Decision, Judged, VersionMade
from barnraise.ledger.rows import LedgerHash
from barnraise.transport.roaming import FIRST_PATIENCE, GROWTH, LONGEST_PATIENCE, SILENCE
from barnraise.wire.messages import EVERYTHING, Ack, Assign, Hello, Identify, SendPayload, Term, Welcome
from barnraise.worker import events as we

from ..state_machine.engine import Account
from .books import LOSS, ControllerBooks, NodeBooks, Truth
from .cluster import IDLE, LONGEST, Cluster, idle
from .cuts import CONTROLLER, STANDBY, Cut, case_with_standby

LEASE = 3.0
"""Seconds of the controller's silence after which its standby may take over."""

BEAT = 0.25
"""Seconds between two looks of controller, standby and nodes at whom they hear."""

HOST = 300.0
"""Seconds after which the host has the standby take over from a controller that is dead."""

ALONE = 25.0
"""Seconds for which a node may have nothing to do under a new controller; twice that where other faults have answers
lost, and as long as elsewhere in a synchronous round, which waits for its slowest node."""

ASK = 1.0
"""Seconds between two questions of a candidate to a worker that does not greet it."""

RAGGED = 4
"""Rows less than have come that a copy may end with: rows of one commit come apart."""

OF_A_CONTROLLER = (
    *("controller", "work", "books", "payloads", "_brought", "_payload_bytes", "_newest", "_inspector_free"),
    *("skew", "_tick_at", "_decided", "disk", "journal", "epoch", "down", "_busy", "_inbox"),
    *("ledger_hash", "observers", "curve", "_made", "account", "shadow", "_moved", "well_since"),
    *("durability", "held", "measures"),
)
"""The attributes that a simulation has for its controller."""


class Told(NamedTuple):
    """An acknowledgement that a node got."""

    payload: str
    by: str
    at: float
    lowered: bool  # durability was


class MovingBooks(NodeBooks):
    """A node that may have tasks and versions of two controllers."""

    def __init__(self, name: str, size: int, cluster: Takeover) -> None:
        self.cluster = cluster
        self.given: dict[int, tuple[AnyTask, Truth]] = {}
        super().__init__(name, cluster.truth, size)

    def start(self) -> None:
        super().start()
        self.tip = ""  # the digest of the version that it has, with what the running task has not taken in yet

    def follows(self, news: News) -> bool:
        """Whether its parameters hash to what the versions say; void, without them, where not."""
        tip = self.tip
        for update in news.updates:
            if update.kind == "delta" and self.truth.before.get(update.parameters_digest) != tip:
                self.taken.pop()
                self.tip = ""
                return False
            tip = update.parameters_digest
        self.tip = tip
        return True

    def is_version(self, version: int, found: str, task: AnyTask | None = None) -> bool:
        here = self.cluster.truths[self.cluster.place[self.name]]
        whose = [here, self.given[id(task)][1]] if task is not None else self.cluster.truths.values()
        return any(truth.digests.get(version) == found for truth in whose)

    def settle(self, assignment: int, accepted: bool) -> None:
        payload = self.payloads.pop(assignment, None)
        if accepted and payload is not None:
            self.cluster.acknowledged(self.name, payload)


class Takeover(Cluster):
    """Plays a case with a standby. `site` is the controller whose attributes are in place."""

    longest = 4 * LONGEST  # there is up to four times as much to do

    def __init__(self, number: int) -> None:
        case, plan = case_with_standby(number)
        self.plan, self.site = plan, CONTROLLER
        names = [machine.name for machine in case.machines]
        self.groups = dict.fromkeys([CONTROLLER, STANDBY, *names], 0)
        self.place = dict.fromkeys(names, CONTROLLER)  # where each node looks for its run
        self.connection = dict.fromkeys(names, 0)
        self.heard = dict.fromkeys(names, 0.0)
        self.lost = dict.fromkeys(names, 0.0)
        self.rest = dict.fromkeys(names, FIRST_PATIENCE)
        self.patience_of = dict.fromkeys(names, FIRST_PATIENCE)
        self.chance = random.Random(f"takeover {case.seed}")
        self.durability = Durability(plan.wait, 30.0, 0.0)
        self.held: dict[tuple[str, int], tuple[int, Ack]] = {}
        self.measures: list[int] = []  # after how many decisions the controller began to measure a version itself
        self.rows, self.arriving = 0, list[tuple[float, int]]()  # the copy's rows, and the rows on their way to it
        self.succession, self.answered_at = Succession(LEASE), 0.0
        self.aside: dict[str, ce.Event] = {}
        self.asked: dict[str, float] = {}
        self.told: list[Told] = []
        self.taken_over_at = 0.0
        self.busy_at: dict[str, float] = {}
        self.soon_enough = IDLE if not case.settings.asynchronous else 2 * ALONE if case.faults else ALONE
        self._sites: dict[str, dict[str, Any]] = {}
        super().__init__(case)
        self.truths = {CONTROLLER: self.truth, STANDBY: self.truth}

    def books_of(self, node: str, size: int) -> NodeBooks:
        return MovingBooks(node, size, self)

    def run(self, digest: str, until: float = float("inf")) -> None:
        EventQueue.at(self, BEAT, Takeover._beat, self, 0, None)
        for cut in self.plan.cuts:
            EventQueue.at(self, cut.at, Takeover._cut, self, 0, cut)
        if self.plan.dies is not None:
            EventQueue.at(self, self.plan.dies, Takeover._die, self, 0, None)
        super().run(digest, until)

    # Two controllers

    @property
    def confirmed(self) -> bool:
        return self.succession.stage is Stage.CONFIRMED

    def enter(self, place: str) -> None:
        """Let the following events happen to the controller at `place`."""
        if place not in {self.site, *self._sites}:
            place = CONTROLLER  # the standby is none yet
        if place != self.site:
            self._sites[self.site] = {name: getattr(self, name) for name in OF_A_CONTROLLER}
            for name, value in self._sites[place].items():
                setattr(self, name, value)
            self.site = place

    def at(self, time: float, call: Call, target: Any, incarnation: int, argument: Any) -> None:
        if type(target) is Node:
            connection = self.connection[target.spec.name]
            EventQueue.at(self, time, _arrives, target, incarnation, (self, call, argument, connection))
        else:
            EventQueue.at(self, time, Takeover._happens, self, incarnation, (self.site, call, argument))

    def soon(self, call: Call, target: Any, incarnation: int, argument: Any) -> None:
        if type(target) is Node:
            super().soon(call, target, incarnation, argument)
        else:
            EventQueue.soon(self, Takeover._happens, self, incarnation, (self.site, call, argument))

    def _happens(self, incarnation: int, planned: tuple[str, Call, Any]) -> None:
        site, call, argument = planned
        self.enter(site)
        call(self, incarnation, argument)

    def arrives(self, node: Node, incarnation: int, call: Call, argument: Any, connection: int) -> None:
        """Deliver a message that was sent over a connection, unless the node has another connection now."""
        name, way = node.spec.name, _way(call, argument)
        self.enter(self.place[name])
        if way and (connection != self.connection[name] or not self.reach(name, self.place[name])):
            self.conditions[name].broken = True
            self._lose(node, incarnation, call, argument)
        elif way == "up" and self.place[name] != self.site:
            self._greets(node, incarnation, call, argument)
        else:
            self.heard[name] = self.now if way == "down" else self.heard[name]
            self.meet(node, incarnation, call, argument)

    def go_on(self, node: Node, incarnation: int, call: Call, argument: Any) -> None:
        self.enter(self.place[node.spec.name])
        books = node.work
        if call is Node._applied and incarnation == node.incarnation:
            assert isinstance(books, MovingBooks)
            if not books.follows(argument):
                super().go_on(node, incarnation, Node.handle, we.Updated(-1))
                return
        super().go_on(node, incarnation, call, argument)

    def break_connections(self, *names: str) -> None:
        super().break_connections(*(name for name in names if self.place[name] == self.site))

    # Reachability

    def reach(self, one: str, other: str) -> bool:
        return self.groups[one] == self.groups[other]

    def _cut(self, _: int, cut: Cut) -> None:
        for number, group in enumerate(cut.groups):
            self.groups |= dict.fromkeys(group, number)
        self.enter(CONTROLLER)
        self.awaiting(cut.seconds + 180.0)
        EventQueue.at(self, self.now + cut.seconds, Takeover._mend, self, 0, None)

    def _mend(self, _: int, nothing: None) -> None:
        self.groups = dict.fromkeys(self.groups, 0)

    def _die(self, _: int, nothing: None) -> None:
        self.enter(CONTROLLER)
        self.die(1e9)
        EventQueue.at(self, self.now + HOST, Takeover._tell, self, 0, None)

    def _tell(self, _: int, nothing: None) -> None:
        """The host sees that no majority comes, since the others ended too."""
        self.succession.told = True

    def die(self, seconds: float) -> None:
        if self.down:
            return
        struck = dict(self.struck_at)
        super().die(seconds)
        self.struck_at = struck | {name: self.now for name, place in self.place.items() if place == self.site}

    def dies_at(self, decisions: int) -> float | None:
        return super().dies_at(decisions) if self.site == CONTROLLER else None

    def _come_back(self, _: int, nothing: None) -> None:
        if not (self.confirmed and self.site == CONTROLLER and self.reach(CONTROLLER, STANDBY)):
            super()._come_back(0, None)

    def _stop(self, why: str) -> None:
        if self.confirmed and self.site == CONTROLLER:
            self.down = True  # its later decisions are no part of the run
        else:
            super()._stop(why)

    def _beat(self, _: int, nothing: None) -> None:
        EventQueue.at(self, self.now + BEAT, Takeover._beat, self, 0, None)
        self.enter(CONTROLLER)
        if self.confirmed:
            self.down = self.down or self.reach(CONTROLLER, STANDBY)  # it is told that it is superseded
        self._copy()
        self._decide()
        for name, node in self.nodes.items():
            if node.up:
                self._roam(name)
                if not (self._answers(self.place[name]) and self.reach(name, self.place[name])):
                    self.struck_at[name] = self.now
        if self.confirmed:
            self.enter(STANDBY)
            self._lower()
            self._watch()

    def _copy(self) -> None:
        """The standby follows, or is lost."""
        if self.down or self.confirmed:
            return
        if not self.reach(CONTROLLER, STANDBY):
            self.arriving.clear()
            if self.now - self.answered_at >= LEASE:
                self.durability.alone(self.now)
            self._lower()
            return
        self.answered_at = self.now
        self.arriving.append((self.now, len(self.journal.decisions)))
        while self.arriving and self.arriving[0][0] <= self.now - self.plan.lag:
            _, rows = self.arriving.pop(0)
            self.rows = max(self.rows, rows - self.chance.randrange(RAGGED))
        self.durability.heard(self._living(), complete=self.rows > 0)
        self._release(self.rows)

    def _living(self) -> list[str]:
        nodes = self.controller.state.nodes
        return [name for name, node in nodes.items() if node.live and self.place[name] == self.site]

    def _lower(self) -> None:
        if not self.down and self.durability.lower(self.now, self._living()):
            self._release(len(self.journal.decisions))

    def _release(self, rows: int) -> None:
        ready = [key for key, (row, _) in self.held.items() if row <= rows]
        for node, number in ready:
            _, ack = self.held.pop((node, number))
            if self.place[node] == self.site:
                self.nodes[node].receive(ack)

    def _answers(self, place: str) -> bool:
        """Whether a controller works there. Asked of the old one's attributes."""
        return self.confirmed if place == STANDBY else not self.down

    def _roam(self, name: str) -> None:
        """A node whose connection is lost goes to the other place."""
        place = self.place[name]
        listens = place == STANDBY and self.succession.stage is Stage.CANDIDATE
        if (listens or self._answers(place)) and self.reach(name, place) and self.now - self.heard[name] < SILENCE:
            self.lost[name] = self.now
            if self.now - self.heard[name] < 2 * BEAT:
                self.rest[name] = FIRST_PATIENCE
            self.patience_of[name] = self.rest[name] * self.chance.uniform(0.5, 1.0)
        elif self.now - self.lost[name] >= self.patience_of[name] and self.rows:
            self.place[name] = STANDBY if place == CONTROLLER else CONTROLLER
            if place == STANDBY:
                self.rest[name] = min(GROWTH * self.rest[name], LONGEST_PATIENCE)
            self.lost[name] = self.heard[name] = self.now
            self.patience_of[name] = self.rest[name] * self.chance.uniform(0.5, 1.0)
            self.connection[name] += 1
            self.conditions[name].broken = True

    # The standby

    def _greets(self, node: Node, incarnation: int, call: Call, argument: Any) -> None:
        """Something comes to a standby that is no controller yet."""
        if call is Node._served:
            self._lose(node, incarnation, call, argument)
        if self.succession.stage is not Stage.CANDIDATE or not isinstance(argument, ce.Received):
            return
        name, message = node.spec.name, argument.message
        if not isinstance(message, Hello):
            if self.now - self.asked.get(name, -ASK) >= ASK:
                self.asked[name] = self.now
                node.receive(Identify())
        elif message.term.rank <= self._term().rank:
            self.aside[name] = argument
            self.succession.greeted(name, self.now - self.answered_at)

    def _term(self) -> Term:
        return Term(self.epoch, by=self.site if self.site == STANDBY else "")

    def _decide(self) -> None:
        if self.confirmed:
            return
        copied = self.journal.decisions[: self.rows]
        before, silence = self.succession.stage, self.now - self.answered_at
        stage = self.succession.look(silence, complete=self.rows > 0)
        if stage is Stage.CANDIDATE and before is Stage.FOLLOWING:
            nodes = folded(copied).nodes.values()
            self.succession.expect({node.id: node.owner for node in nodes if node.live})
        elif stage is Stage.FOLLOWING:
            self.aside.clear()
        elif stage is Stage.CONFIRMED:
            self._take_over(copied)

    def _take_over(self, copied: list[Decision]) -> None:
        """The copy becomes a run of its own."""
        epoch, settings = self.epoch + TERM, self.controller.settings
        truth, books = self._books(copied)
        self.truths[STANDBY] = truth
        journal, state = DecisionJournal(), folded(copied)
        journal.commit(copied)
        living = [node.id for node in state.nodes.values() if node.live]
        self._sites[STANDBY] = {
            "controller": Controller(settings, journal.replay(), epoch),
            "work": books,
            "books": books,
            "payloads": {},
            "_brought": set(),
            "_payload_bytes": {
                d.assignment: 420 if not self.case.large else 300_000
                for d in copied
                if isinstance(d, Judged) and d.brings and d.assignment not in books.merged
            },
            "_newest": None,
            "_inspector_free": 0.0,
            "skew": journal.time - self.now,
            "_tick_at": float("inf"),
            "_decided": True,
            "disk": Disk(),
            "journal": journal,
            "epoch": epoch,
            "down": False,
            "_busy": False,
            "_inbox": [],
            "ledger_hash": LedgerHash(),
            "observers": [],
            "curve": [],
            "_made": dict.fromkeys(truth.digests, Point(self.now, 0, None, 0, 0)),
            "account": self._account(copied),
            "shadow": state,
            "_moved": -1,
            "well_since": self.now,
            "durability": Durability(self.plan.wait, 30.0, self.now, living),
            "held": {},
            "measures": [row for row in self.measures if row <= len(copied)],
        }
        self.taken_over_at = self.now
        self.enter(STANDBY)
        self._settle(self.controller.resume(self.now + self.skew, RESUME_GRACE), set())
        for node, greeting in self.aside.items():
            if self.place[node] == STANDBY:
                self.handle(greeting)

    def _books(self, copied: Sequence[Decision]) -> tuple[Truth, ControllerBooks]:
        truth, old = Truth(), self.books
        truth.before = self.truth.before
        truth.digests |= {d.version: d.digest for d in copied if isinstance(d, VersionMade)}
        books = ControllerBooks(truth, old.rng, delta=old.delta, spoiled=old.spoiled)
        books.newest = max(truth.digests)
        books.durable = {d.assignment for d in copied if isinstance(d, Judged) and d.brings}
        account = self._account(copied)
        made = [numbers for version, numbers in account.versions.items() if version <= books.newest]
        books.merged = {number for numbers in made for number in numbers}
        return truth, books

    def _account(self, copied: Sequence[Decision]) -> Account:
        account, measures = Account(self.controller.settings), set(self.measures)
        for row, decision in enumerate(copied):
            if row in measures:
                account.measured.here, account.last_loss = True, LOSS
            account.add(stored(decision))
        account.measured.restarted()
        account.anew.end_here()
        account.scoring.end_here()
        return account

    # Messages

    def _hear(self, event: ce.Event, brought: set[tuple[str, int]]) -> None:
        greeting = event.message if isinstance(event, ce.Received) else None
        if isinstance(greeting, Hello) and greeting.term.rank > self._term().rank:
            self.down = True  # another has taken over, and it knows now
        super()._hear(event, brought)

    def _carry_out(self, actions: list[ca.Action]) -> None:
        row, told = len(self.journal.decisions), list[ca.Action]()
        last = row + sum(isinstance(action, ca.Journal) for action in actions)
        for action in actions:
            row += isinstance(action, ca.Journal)
            if isinstance(action, effects.Evaluate):
                self.measures.append(row)
            told += self._outgoing(action, last)
        super()._carry_out(told)

    def _outgoing(self, action: ca.Action, row: int) -> Iterator[ca.Action]:
        """Yield the messages of an action that rests on the rows up to `row`."""
        if not isinstance(action, ca.Send):
            yield action
            return
        name, message = action.node, action.message
        if self.place[name] != self.site:
            return
        if isinstance(message, Welcome):
            message = msgspec.structs.replace(message, term=self._term())
        elif isinstance(message, Assign):
            books = self.nodes[name].work
            assert isinstance(books, MovingBooks)
            books.given[id(message.task)] = message.task, self.truths[self.site]
        elif isinstance(message, Ack) and self._holds(row):
            self.held[name, message.assignment] = row, message
            if not message.accepted:
                return
            message = SendPayload(message.assignment, EVERYTHING)
        yield ca.Send(name, message)

    def _holds(self, row: int) -> bool:
        return self.durability.waits and not (self.site == CONTROLLER and self.rows >= row)

    def acknowledged(self, node: str, payload: str) -> None:
        """A node is told that something of it was accepted."""
        place = self.place[node]
        durability = self.durability if place == self.site else self._sites[place]["durability"]
        self.told.append(Told(payload, place, self.now, durability.lowered))

    # Checks

    def _is_struck(self, node: Node) -> bool:
        name = node.spec.name
        here = self.place[name] == self.site and self.reach(name, self.site)
        return not here or super()._is_struck(node)

    def _watch(self) -> None:
        """A node that has greeted the new controller gets work before long."""
        progress = self.controller.state.progress
        over = progress.paused or progress.final or progress.flushing is not None or progress.stopping
        for name, node in self.nodes.items():
            ill = self._is_struck(node) or self.conditions[name].broken
            if over or ill or not node.up or not idle(node):
                self.busy_at[name] = self.now
            since = max(self.taken_over_at, self.busy_at.get(name, 0.0))
            assert self.now - since < self.soon_enough, f"{name} has had nothing to do since {since:.1f} s"

    def lost_acknowledged(self) -> list[Told]:
        """Acknowledgements of what the run does not know of in the end."""
        known = {d.claim.digest for d in self.journal.decisions if isinstance(d, Judged) and d.brings}
        return [told for told in self.told if told.payload not in known]

    def _check_acknowledged(self) -> None:
        for told in self.lost_acknowledged():
            assert self.confirmed, "acknowledged, and lost"
            assert told.by == CONTROLLER, "acknowledged, and lost by whom it is not"
            assert not self.plan.wait or told.lowered, f"acknowledged at {told.at:.2f} s, and lost"


def _arrives(node: Node, incarnation: int, planned: tuple[Takeover, Call, Any, int]) -> None:
    cluster, call, argument, connection = planned
    if incarnation == node.incarnation or call is Node._arrive:
        cluster.arrives(node, incarnation, call, argument, connection)


def folded(decisions: Iterable[Decision]) -> State:
    state = State()
    for decision in decisions:
        apply(state, stored(decision))
    return state
