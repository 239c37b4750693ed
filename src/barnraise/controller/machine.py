"""The controller as a state machine: events in, decisions applied, actions out.

No clock, socket, file or tensor. Each handler is a generator: a decision that it yields is applied before it continues,
so that later steps see its effect, and is put among the actions as `Journal` in its place. The shell makes the
decisions of a batch durable before it carries out any action after them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from barnraise.controller.fleet.backoff import Backoff
from barnraise.controller.fleet.cost_model import CostModel
from barnraise.controller.fleet.data_locality import DataLocality
from barnraise.controller.fleet.fleet import Fleet
from barnraise.controller.fleet.leases import Leases
from barnraise.controller.fleet.membership import Membership, turned_away
from barnraise.controller.fleet.memory_limits import MemoryLimits
from barnraise.controller.fleet.pacing import Pacing
from barnraise.controller.fleet.probation import Probation
from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.fleet.speeds import Speeds
from barnraise.controller.fleet.telemetry import ProtectionCosts, Sampling
from barnraise.controller.fleet.uploads import Uploads
from barnraise.controller.sites.sites import Sites
from barnraise.controller.state.actions import Action, Journal, Send
from barnraise.controller.state.assembly import assemble
from barnraise.controller.state.events import (
    Changed,
    Dropped,
    Event,
    Forgotten,
    Received,
    Stalled,
    Tick,
    Told,
    Traffic,
)
from barnraise.controller.state.fold import apply
from barnraise.controller.state.part import Context, Part, Steps, TaskHold
from barnraise.controller.state.settings import EngineSettings
from barnraise.controller.state.state import State
from barnraise.controller.versions.arrivals import Arrivals, BufferDeadline
from barnraise.controller.versions.buffer import Buffer
from barnraise.controller.versions.ending import Ending
from barnraise.controller.versions.endorsing import Confirming, Endorsing, SendingMasks, Trustees, Vetting
from barnraise.controller.versions.evaluation import Evaluation
from barnraise.controller.versions.measuring import Measuring
from barnraise.controller.versions.privacy_budget import PrivacyBudgetPart
from barnraise.controller.versions.proving import Proving
from barnraise.controller.versions.publishing import Publishing
from barnraise.controller.versions.site_evaluation import SiteEvaluation
from barnraise.controller.versions.unmasking import Unmasking
from barnraise.controller.work.auditing import Auditing
from barnraise.controller.work.dispatch import Dispatch
from barnraise.controller.work.flushing import Flushing
from barnraise.controller.work.host_pause import HostPause
from barnraise.controller.work.inspection import Inspection
from barnraise.controller.work.scoring import Scoring
from barnraise.controller.work.speculation import Speculation
from barnraise.controller.work.training import Training
from barnraise.controller.work.unschedulable import Unschedulable
from barnraise.controller.work.utilisation import Utilisation
from barnraise.core.types import PayloadResult
from barnraise.ledger import notes
from barnraise.ledger.decisions import AnyDecision, Decision, Noted
from barnraise.matching.metrics import MatchingTally
from barnraise.wire.messages import FOR_GOOD, Hello, Identify, Message, Stop

PARTS: tuple[type[Part], ...] = (
    NodeRecords,
    Leases,
    Membership,
    Uploads,
    Backoff,
    MemoryLimits,
    Speeds,
    CostModel,
    Fleet,
    ProtectionCosts,
    Sites,
    Sampling,
    Arrivals,
    BufferDeadline,
    Pacing,
    Publishing,
    DataLocality,
    Probation,
    PrivacyBudgetPart,
    Evaluation,
    Measuring,
    Trustees,
    Vetting,
    Endorsing,
    Confirming,
    SendingMasks,
    Unmasking,
    Proving,
    Ending,
    Buffer,
    Flushing,
    Auditing,
    Scoring,
    Training,
    Speculation,
    Inspection,
    Unschedulable,
    HostPause,
    Dispatch,
    Utilisation,
)
"""The parts of the machine. They see events and decisions, and look, in this order, but each after those it needs."""

HOLDS: tuple[type[Part], ...] = (HostPause, Dispatch, Backoff, Scoring, Probation, PrivacyBudgetPart, Unmasking, Leases)
"""The parts that may keep a node from work, in the order in which they are asked."""

RESUME_GRACE = 10.0
"""Seconds that workers have to find a controller that returned."""


_DECISIONS, _EVENTS = frozenset(get_args(AnyDecision)), frozenset(Event.__subclasses__())
"""Steps are told apart by their own types: `isinstance` of a msgspec struct takes five times as long."""


@dataclass(frozen=True)
class Snapshot:
    """A machine's observations, for shells and pages.

    `heard`: the time of the last frame of each node that takes part. `inspecting`: the results that are here and not
    judged. `holds`: the nodes that take part and get no tasks now, with the reason and the end of each hold.
    `trustees`: what the closed version waits for from trustees.
    """

    heard: Mapping[str, float]
    inspecting: tuple[PayloadResult, ...]
    holds: Mapping[str, TaskHold]
    utilisation: MatchingTally
    trustees: str = ""


class Controller:
    """Decides for one run.

    `epoch` numbers the incarnations of the controller, so that results of an earlier one are dropped.
    """

    def __init__(self, settings: EngineSettings, state: State | None = None, epoch: int = 1) -> None:
        self.settings, self.epoch = settings, epoch
        self.state = state if state is not None else State()
        self.context = Context(settings, self.state, epoch)
        by_sites: dict[type[Part], type[Part]] = {Evaluation: SiteEvaluation} if settings.evaluations.by_sites else {}
        self.parts = assemble(PARTS, self.context, by_sites)
        self.parts[Fleet].holds = tuple(self.parts[part].hold for part in HOLDS)
        self._handlers: defaultdict[type[Event], list[Callable[[Any], Steps]]] = defaultdict(list)
        self._messages: dict[type[Message], Callable[[str, Any], Steps]] = {}
        self._seeing: defaultdict[type[Decision], list[Callable[[Any], None]]] = defaultdict(list)
        for events in (self._events(), *(part.events() for part in self.parts)):
            for event, handle in events.items():
                self._handlers[event].append(handle)
        for part in self.parts:
            assert not part.messages().keys() & self._messages.keys(), "one part handles a message"
            self._messages |= part.messages()
            for decision, see in part.sees().items():
                self._seeing[decision].append(see)
        self._membership, self._leases = self.parts[Membership], self.parts[Leases]
        self._sites = self.parts[Sites]
        self._evaluation, self._records = self.parts[Evaluation], self.parts[NodeRecords]
        self._looks = [part.look for part in self.parts if type(part).look is not Part.look]
        self._deadlines = [part.deadline for part in self.parts if type(part).deadline is not Part.deadline]
        self._expires = [part.expire for part in self.parts if type(part).expire is not Part.expire]
        self._forgets = [part.forget for part in self.parts if type(part).forget is not Part.forget]

    def handle(self, event: Event, now: float) -> list[Action]:
        """Return the actions for `event` at `now` seconds."""
        self.context.now = now
        actions: list[Action] = []
        for handle in self._handlers[type(event)]:
            self._carry(handle(event), actions)
        return actions

    def start(self, digest: str, now: float) -> list[Action]:
        """Begin a new run whose version 0 hashes to `digest`."""
        self.context.now = now
        return self._carry(self.parts[Ending].start(digest), [])

    def resume(self, now: float, grace: float) -> list[Action]:
        """Continue after a replay: nodes that were alive have `grace` seconds beyond their lease to return."""
        self.context.now = now
        return self._carry(self._resume(grace), [])

    @property
    def deadline(self) -> float:
        """Return when the machine needs a `Tick` at the latest, in its own time; infinite when nothing is due."""
        return min([deadline() for deadline in self._deadlines])

    @property
    def heartbeat(self) -> float:
        """Return the seconds between the frames of a node, as the fleet was told last."""
        return self.parts[Leases].heartbeat

    def snapshot(self, now: float) -> Snapshot:
        """Return the observations that shells and pages may read besides the state, at `now` seconds.

        `now` is after the newest event.
        """
        fleet = self.parts[Fleet]
        holds = {node: fleet.available(node, now) for node in fleet.present}
        return Snapshot(
            heard={node: record.frames.seen for node, record in fleet.present.items()},
            inspecting=tuple(upload.offer for upload, _ in self.parts[Uploads].inspecting.values()),
            holds={node: hold for node, hold in holds.items() if hold is not None},
            utilisation=self.parts[Utilisation].until(now),
            trustees=self.parts[Unmasking].waiting_for,
        )

    def _carry(self, steps: Iterable[Any], actions: list[Action]) -> list[Action]:
        for step in steps:
            kind = type(step)
            if kind is Send:  # most steps
                actions.append(step)
            elif kind in _DECISIONS:
                apply(self.state, step)
                for see in self._seeing.get(kind, ()):
                    see(step)
                actions.append(Journal(step))
            elif kind in _EVENTS:
                for handle in self._handlers[kind]:
                    self._carry(handle(step), actions)
            else:
                actions.append(step)
        return actions

    def _changed(self, event: Changed) -> Steps:
        for look in self._looks:
            yield from look()

    def _forgotten(self, event: Forgotten) -> Steps:
        for forget in self._forgets:
            forget(event.node)
        yield from ()

    def _resume(self, grace: float) -> Steps:
        state, parts = self.state, self.parts
        if state.progress.finished:
            yield from parts[Ending].finish(state.progress.finished)
            return
        yield Noted(self.context.now, notes.Resumed(state.newest.version, self.epoch))
        yield from parts[Membership].await_back(grace)
        yield from parts[Auditing].resume()
        if state.closing is not None:
            yield from parts[Buffer].aggregate()
        elif state.progress.final:
            yield from parts[Ending].end()
        elif not state.record.evaluations and not parts[Evaluation].busy:
            yield from parts[Evaluation].measure()
        yield Changed()

    # Events of no particular part

    def _events(self) -> dict[type[Event], Callable[[Any], Steps]]:
        return {
            Received: self._received,
            Changed: self._changed,
            Forgotten: self._forgotten,
            Tick: self._tick,
            Stalled: self._stalled,
            Dropped: self._dropped,
            Told: self._told,
            Traffic: self._traffic,
        }

    def _received(self, event: Received) -> Steps:
        """A message: for the part that handles it, once the node is known and has greeted."""
        node, message = event.node, event.message
        record = self._records.present.get(node)
        known = self.state.nodes.get(node)
        if known is None:
            yield Send(node, Stop("this node is not enrolled in the run: join with a fresh invite", refusal=FOR_GOOD))
        elif known.revoked:
            yield turned_away(known)
        elif type(message) is Hello:
            progress = self.state.progress
            needed = self._evaluation.needs_nodes or self.parts[Unmasking].needs(node)
            over = bool(progress.finished) or (progress.final and not needed)
            yield from self._membership.hello(node, message, over)
            yield from self._sites.hello(node, message)
            yield Changed()
        elif record is None:
            yield Send(node, Identify())
        else:
            suspected = self._leases.heard(record)
            answer = self._messages.get(type(message))
            if answer is not None:
                yield from answer(node, message)
            if suspected:
                yield Changed()

    def _tick(self, event: Tick) -> Steps:
        for expire in self._expires:
            yield from expire()
        yield Changed()

    def _stalled(self, event: Stalled) -> Steps:
        for part in self.parts:
            part.excuse(event.seconds)
        yield from ()

    def _dropped(self, event: Dropped) -> Steps:
        yield Noted(self.context.now, notes.FrameDropped(event.reason, event.count), event.node)

    def _told(self, event: Told) -> Steps:
        yield Noted(self.context.now, event.note)

    def _traffic(self, event: Traffic) -> Steps:
        yield Noted(self.context.now, notes.Traffic(event.bytes_up, event.bytes_down))
