"""A small cluster under virtual time and a fault plan: real controller and worker machines, everything checked after
each batch of decisions."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from barnraise.config.trial_sections import WorkerSection
from barnraise.controller.fleet.leases import LOOKS, Leases
from barnraise.controller.fleet.membership import Membership
from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.fleet.uploads import Uploads
from barnraise.controller.machine import Controller
from barnraise.controller.state import actions as ca
from barnraise.controller.state import effects
from barnraise.controller.state.fold import apply
from barnraise.controller.state.invariants import validate
from barnraise.controller.state.settings import EngineSettings
from barnraise.controller.state.state import State
from barnraise.controller.work.dispatch import Dispatch
from barnraise.core.types import NodeProfile
from barnraise.emulation.churn import Drawn, Fit
from barnraise.emulation.conduct import HONEST, Conduct
from barnraise.emulation.fleet import Machine
from barnraise.emulation.journal import stored
from barnraise.emulation.node import Node
from barnraise.faults.simulation import FaultySimulator
from barnraise.matching import create as scheduler
from barnraise.matching.persistent_market import GaleShapley
from barnraise.transport.links.presets import parse
from barnraise.worker import actions as wa
from barnraise.worker import events as we
from barnraise.worker.machine import Worker

from ..state_machine.chances import AUDITED, MODES
from ..state_machine.engine import Account, digest, engine_settings, own_rows
from ..state_machine.rest import Rest
from . import variety
from .books import LOSS, ControllerBooks, NodeBooks, Truth
from .plans import Section, as_planned, draw
from .variety import LARGE

LONGEST = 3000.0
"""Virtual seconds after which a run must have ended."""

MOST_EVENTS = 300_000
"""And events: more are a loop."""

IDLE = 100.0
"""Seconds for which a healthy node may be without anything to do, while there is work."""

GREETING = 30.0
"""Seconds beyond the longest lease in which a node has to greet again, once the fault of its connection is over."""

TOKENS = 600
"""That a run trains on, where its mode says nothing else."""

LINKS = ["none", "10mbit/50ms", "2mbit/300ms/80ms", "10mbit/50ms/5%"]

MODES_AUDITED = {mode for mode, settings in MODES.items() if "audits" in settings}
"""Any mode may be audited here."""

MODES_OF_SITES = {mode for mode, settings in MODES.items() if "needs" in settings and settings["needs"].sites}
"""These have seeds of their own: no other node can audit or score the work of a site."""

RESTLESS = Fit("a minute or so", lambda rng: rng.expovariate(1 / 60), lambda rng: rng.expovariate(1 / 12), 60.0, 12.0)


@dataclass(frozen=True)
class Case:
    """The case that a seed gives."""

    seed: str
    label: str
    faults: list[Section]
    machines: list[Machine]
    changes: dict[str, Any]  # changes of the engine's settings
    churn: Fit | None
    spoiled: float

    @property
    def large(self) -> bool:
        """Whether payloads are too large to travel with their offers."""
        return bool(self.changes.get("most", 0) >= LARGE)

    @property
    def settings(self) -> EngineSettings:
        return engine_settings(**self.changes)


VARIED = "v"
"""How the seed of a case begins that varies what the modes hold fixed."""

SITES = "home"
"""How the seed of a case begins whose rows stay with their nodes."""


def case_of(seed: str) -> Case:
    """Mode, fleet and fault plan of a seed."""
    if seed.startswith(SITES):
        return _drawn(seed, int(seed.removeprefix(SITES)), MODES_OF_SITES, audited=False)
    if seed.startswith(VARIED):
        return _varied(seed)
    return _drawn(seed, int(seed), MODES.keys() - MODES_AUDITED - MODES_OF_SITES, audited=int(seed) % 10 in (4, 6))


def _varied(seed: str) -> Case:
    rng = random.Random(f"chaos {seed}")
    mode = rng.choice(sorted(MODES.keys() - MODES_OF_SITES))
    minimum = MODES[mode].get("minimum_nodes", 1)
    names = [f"node{index}" for index in range(max(minimum + 1, rng.choice([2, 4, 6, 9])))]
    changes, said = variety.changes_of(rng, mode, len(names))
    machines = variety.machines_of(rng, names, changes)
    faults = variety.faults_of(rng, names, len(names) - max(minimum, 1))
    return Case(seed, ", ".join(said), faults, machines, changes, variety.churn_of(rng), rng.choice([0.0, 0.0, 0.03]))


def _drawn(seed: str, number: int, modes: Collection[str], *, audited: bool) -> Case:
    rng = random.Random(f"chaos {seed}")
    mode = rng.choice(sorted(modes))
    minimum = MODES[mode].get("minimum_nodes", 1)
    names = [f"node{index}" for index in range(rng.choice([minimum + 1, 4, 5]))]
    owners = [f"owner{index // 2}" if audited else "" for index in range(len(names))]
    machines = [
        Machine(name, rng.choice([2.0, 6.0, 20.0]), parse(rng.choice(LINKS), 0), owner=owner)
        for name, owner in zip(names, owners, strict=True)
    ]
    faults = draw(rng, names, len(names) - max(minimum, 1))
    large, churning, market = rng.random() < 0.3, rng.random() < 0.2, number % 5 < 2
    changes: dict[str, Any] = MODES[mode] | {"tokens": TOKENS}
    if large:
        rungs = tuple(LARGE * (index + 1) for index in range(len(MODES[mode].get("rungs", [0]))))
        changes |= {"rungs": rungs, "most": rungs[-1], "memory": 3 * rungs[-1]}
        changes["last"] = LARGE if MODES[mode].get("last") else 0
    if market:
        changes["scheduler"] = partial(scheduler, "gale_shapley")
    if audited:
        changes |= AUDITED
    label = mode + " market" * market + " large" * large + " churning" * churning
    churn = RESTLESS if churning else None
    return Case(seed, label, faults, machines, changes, churn, spoiled=rng.choice([0.0, 0.0, 0.03]))


class Cluster(FaultySimulator):
    """The run of a case. `check` is called after each batch."""

    longest = LONGEST

    def __init__(self, case: Case) -> None:
        self.case, self.truth = case, Truth()
        settings = case.settings
        size = LARGE if case.large else 420
        self.books = ControllerBooks(self.truth, random.Random(case.seed), delta=90, spoiled=case.spoiled)
        self.account, self.shadow = Account(settings), State()
        self.idle_since: dict[str, float] = {}
        self._moved = -1  # events of the market, when it was last looked at
        self.most_stood = 0  # tasks in the standing market at a time
        self.well_since = 0.0
        self.struck_at: dict[str, float] = {}
        self.patience = settings.leases.longest + GREETING
        super().__init__(
            Controller(settings),
            case.machines,
            self.books,
            lambda name: self.books_of(name, size),
            seed=random.Random(case.seed).getrandbits(32),
            churn=partial(Drawn, case.churn) if case.churn else None,
            faults=as_planned(case.faults),
            machine_of=_machine_of,
        )

    def books_of(self, node: str, size: int) -> NodeBooks:
        """Return books of a node whose payloads have `size` bytes."""
        conduct = Site(node) if self.case.settings.tasks.needs.sites else HONEST
        return NodeBooks(node, self.truth, size, conduct)

    def play(self) -> None:
        """The whole run; AssertionError when something is not as it must be."""
        self.run(digest(0), self.longest)
        assert self.end == self.controller.state.progress.finished, f"it ended otherwise: {self.end}"
        self._check_end()

    def die(self, seconds: float) -> None:
        if self.down:
            return
        super().die(seconds)
        self.struck_at = dict.fromkeys(self.nodes, self.now + seconds)
        self.books.restarted()
        self.account.measured.restarted()

    def break_connections(self, *names: str) -> None:
        super().break_connections(*names)
        self.struck_at |= {name: max(self.now, self.struck_at.get(name, 0.0)) for name in names}

    def _carry_out(self, actions: list[ca.Action]) -> None:
        decided = False
        for action in actions:
            if isinstance(action, ca.Journal):
                decided, decision = True, stored(action.decision)
                self.account.add(decision)
                apply(self.shadow, decision)
            elif isinstance(action, effects.Evaluate):
                self.account.measured.here, self.account.last_loss = True, LOSS
        super()._carry_out(actions)
        self.check(decided)

    def check(self, decided: bool = True) -> None:
        """Check the invariants between two batches: the state equals the fold of the decisions."""
        state, machine = self.controller.state, self.controller
        assert self.events < MOST_EVENTS, "it goes round in circles"
        if not self._busy and decided:
            assert self.shadow == state or repr(self.shadow) == repr(state), "the journal says otherwise"
            self.account.compare(state)
            validate(state)
        for node in state.nodes.values():
            held = set(node.open) - machine.parts[Uploads].inspecting.keys()
            assert node.live or not held, f"{node.id} is gone, and holds {held}"
        if not state.progress.finished and not self.down:
            known = machine.parts[NodeRecords].present.keys() | machine.parts[Membership].awaited.keys()
            assert known == {node.id for node in state.nodes.values() if node.live}, "who takes part"
            self._check_leases()
            self._check_market()
        self._check_uploads()
        self._check_idle(state)

    def _check_leases(self) -> None:
        """The controller watches each present node, and no node stays silent for longer than the longest lease."""
        leases, present = self.controller.parts[Leases], self.controller.parts[NodeRecords].present
        now = self.now + self.skew
        assert all(record.session.kinds for record in present.values()), "nobody knows what it can do"
        assert all(record.frames.next_look < math.inf for record in present.values()), "a lease that nobody looks at"
        assert all(math.isnan(record.frames.silent) for record in present.values()), "silent, and heard"
        if self._busy or self.controller.deadline <= now:
            return
        for node, record in present.items():
            silence = now - record.frames.seen - record.frames.excused
            longest, (_, lease) = self.controller.settings.leases.longest, leases.intervals()
            assert silence <= max(longest, lease) * (1 + 1 / LOOKS) + 1.0, f"{node} is silent for {silence:.1f} s"

    def _check_market(self) -> None:
        """Nobody is in the standing market who does not take part, and nothing blocks at rest."""
        market = self.controller.parts[Dispatch].scheduler
        if not isinstance(market, GaleShapley) or market.tally.events == self._moved:
            return
        self._moved = market.tally.events
        nodes = {node.id: node for node in market.market.nodes}
        assert all(self.controller.state.nodes[node].live for node in nodes), "who is gone is in the market"
        Rest(market.market, {task.id: task for task in market.market.tasks}, nodes).check()
        self.most_stood = max(self.most_stood, len(market.market.tasks))

    def _check_uploads(self) -> None:
        part, works = self.controller.parts[Uploads], self.controller.state.works
        sending = {(upload.node, number) for number, upload in part.uploads.items()}
        offered = {(node, number) for node, offers in part.offered.items() for number in offers}
        assert not sending & offered
        assert all(works[number].node == node for node, number in sending | offered), "an upload of what is not open"
        held = [upload.offer for upload in part.uploads.values()]
        held += [upload.offer for upload, _ in part.inspecting.values()]
        assert (
            part.num_bytes
            == sum(offer.payload.num_bytes for offer in held)
            <= max(self.controller.settings.payloads.memory, 0)
        )

    def _check_idle(self, state: State) -> None:
        """While there is work, a fit node gets some in bounded time; who was cut off greets again in bounded time."""
        progress = state.progress
        ill = self.down or self._busy or any(self._is_struck(node) for node in self.nodes.values() if node.up)
        if ill or progress.paused or progress.final or progress.flushing is not None or progress.stopping:
            self.well_since = self.now
        for name, node in self.nodes.items():
            if self.down or not node.up or self._is_struck(node):
                self.struck_at[name] = self.now
            broken = self.conditions[name].broken
            heard = max(self.struck_at.get(name, 0.0), node._up_since)
            unheard = self.now - heard
            assert not broken or unheard < self.patience, f"{name} has not greeted for {unheard:.1f} s"
            if broken or not idle(node):
                self.idle_since[name] = self.now
            since = max(self.idle_since.setdefault(name, self.now), self.well_since, heard)
            assert self.now - since < IDLE, f"{name} has had nothing to do since {since:.1f} s"

    def _is_struck(self, node: Node) -> bool:
        """Whether a fault of the node's own is in force."""
        known = self.conditions[node.spec.name]
        return bool(known.effects) or known.wakes_at(node.incarnation) > self.now

    def _check_end(self) -> None:
        state, account = self.controller.state, self.account
        self.check()
        assert state.progress.final
        assert state.totals.tokens >= self.controller.settings.tokens or account.voided
        assert state.record.checkpoint == state.newest.version == state.record.evaluations[-1][0]
        merged = Counter(number for version in account.versions.values() for number in version)
        assert set(merged.values()) <= {1}, "a contribution is in two versions"
        assert merged.keys() == account.accepted.keys()
        assert self.books.merged == merged.keys()
        self._check_acknowledged()
        replayed = self.journal.replay()
        assert replayed == state or repr(replayed) == repr(state), "the journal replays to another state"

    def _check_acknowledged(self) -> None:
        """Each acknowledged contribution is in a version, or the controller knows that it is of no use."""
        account, acknowledged = self.account, Counter(self.truth.acknowledged)
        assert max(acknowledged.values(), default=1) == 1, "acknowledged twice"
        known = account.accepted.keys() | account.beside.keys() | account.voided | account.left_over
        assert acknowledged.keys() <= known, "acknowledged, and lost"


class SiteWorker(Worker):
    """A worker with rows of its own."""

    node = ""

    def handle(self, event: we.Event, now: float) -> list[wa.Action]:
        if isinstance(event, we.Prepared):
            event = msgspec.structs.replace(event, own=own_rows(self.node))
        return super().handle(event, now)


class Site(Conduct):
    """The conduct of a node with rows of its own."""

    def __init__(self, node: str) -> None:
        self.node = node

    def worker(self, session: int) -> Worker:
        worker = SiteWorker(session, NodeProfile())
        worker.node = self.node
        return worker


def idle(node: Node) -> bool:
    """Whether a process that lives has nothing to do, and nothing under way. To get ready is nothing to do for long."""
    machine = node.machine
    tasks = machine.tasks
    busy = tasks.running is not None or tasks.waiting is not None or machine.outgoing.pending
    return node.up and not busy and not machine.leaving


def _machine_of(worker: WorkerSection) -> Machine:
    return Machine(worker.name, 6.0, parse("10mbit/50ms", 0), 16 << 30)
