"""The controller as a state machine: events in, decisions applied, actions out. No clock, socket, file or tensor.

Each handler is a generator: a decision that it yields is applied before it goes on, so that later steps see
its effect, and is put among the actions as `Journal` in its place. The shell makes the decisions of a batch durable
before it carries out any action after them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from barnraise.controller.fleet.backoff import Backoff
from barnraise.controller.fleet.cost_model import CostModel
from barnraise.controller.fleet.data_locality import DataLocality
from barnraise.controller.fleet.membership import Membership, turned_away
from barnraise.controller.fleet.memory_limits import MemoryLimits
from barnraise.controller.fleet.pacing import Pacing
from barnraise.controller.fleet.probation import Probation
from barnraise.controller.fleet.sanctions import Sanctions
from barnraise.controller.fleet.speeds import Speeds
from barnraise.controller.fleet.telemetry import Sampling
from barnraise.controller.fleet.uploads import Uploads
from barnraise.controller.state.actions import Action, Journal, Send
from barnraise.controller.state.events import Dropped, Event, Received, Stalled, Tick, Told, Traffic
from barnraise.controller.state.fold import apply
from barnraise.controller.state.kinds import TaskKind
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.controller.state.settings import EngineSettings
from barnraise.controller.state.state import State
from barnraise.controller.versions.arrivals import Arrivals
from barnraise.controller.versions.buffer import Buffer
from barnraise.controller.versions.buffer_deadline import BufferDeadline
from barnraise.controller.versions.ending import Ending
from barnraise.controller.versions.evaluation import Evaluation
from barnraise.controller.versions.publishing import Publishing
from barnraise.controller.work.auditing import Auditing
from barnraise.controller.work.dispatch import Dispatch
from barnraise.controller.work.flushing import Flushing
from barnraise.controller.work.inspection import Inspection
from barnraise.controller.work.offences import Offences
from barnraise.controller.work.scoring import Scoring
from barnraise.controller.work.speculation import Speculation
from barnraise.controller.work.training import Training
from barnraise.controller.work.unschedulable import Unschedulable
from barnraise.controller.work.utilisation import Utilisation
from barnraise.ledger import notes
from barnraise.ledger.decisions import Decision, Noted
from barnraise.wire.messages import FOR_GOOD, Hello, Identify, Message, Stop


class Controller:
    """Decides for one run. `epoch` numbers the incarnations of the controller, so that results of a dead one drop.

    It is the list of its parts, in the order in which they look at a change.
    """

    def __init__(self, settings: EngineSettings, state: State | None = None, epoch: int = 1) -> None:
        self.settings, self.epoch = settings, epoch
        self.state = state if state is not None else State()
        self.context = context = Context(settings, self.state, epoch)
        context.follow, context.forget = self._follow, self._forget
        self.uploads = Uploads(context)
        self.backoff = Backoff(context)
        self.speeds = Speeds(context, self.uploads, self.backoff)
        self.membership = Membership(context, self.uploads, self.backoff, self.speeds)
        self.pacing = Pacing(context, self.speeds, self.membership)
        self.publishing = Publishing(context, self.pacing)
        self.evaluation = Evaluation(context, self.membership, self.pacing, self.publishing)
        context.needs_nodes = lambda: self.evaluation.needs_nodes
        self.ending = Ending(context, self.membership, self.publishing, self.evaluation)
        flushing = Flushing(context, self.membership, self.speeds)
        self.data_locality, self.memory_limits = DataLocality(context), MemoryLimits(context, self.backoff)
        self.cost_model = CostModel(context, self.uploads, self.speeds, self.data_locality)
        sampling, self.utilisation = Sampling(context, self.cost_model, self.memory_limits), Utilisation(context)
        context.expect, context.sample = self.cost_model.expect, sampling.sample
        self.probation = Probation(context, self.pacing)
        training = Training(context, self.speeds, self.pacing, self.publishing, self.probation)
        sanctions = Sanctions(context, self.membership)
        self.auditing = auditing = Auditing(context, self.membership, self.publishing, self.memory_limits, sanctions)
        self.scoring = Scoring(context, sanctions, self.probation)
        kinds: tuple[TaskKind, ...] = (flushing, auditing, self.evaluation, training)
        self.kinds = {kind.name: kind for kind in kinds}
        self.arrivals = Arrivals(context, self.uploads, self.speeds)
        self.speculation = Speculation(
            context, self.uploads, self.membership, self.arrivals, self.evaluation, self.memory_limits
        )
        self.inspection = Inspection(
            context,
            self.uploads,
            Offences(context, self.membership, sanctions),
            self.speculation,
            kinds=self.kinds,
            auditing=auditing,
            scoring=self.scoring,
        )
        self.waiting = BufferDeadline(context, self.arrivals)
        self.buffer = Buffer(context, self.uploads, self.speeds, self.ending, self.waiting)
        self.dispatch = Dispatch(
            context,
            self.membership,
            self.cost_model,
            self.publishing,
            self.data_locality,
            speculation=self.speculation,
            kinds=self.kinds,
            memory_limits=self.memory_limits,
            scoring=self.scoring,
            probation=self.probation,
            buffer=self.buffer,
        )
        self.parts: tuple[Part, ...] = (
            self.membership,
            self.uploads,
            self.backoff,
            self.memory_limits,
            self.speeds,
            self.cost_model,
            self.arrivals,
            self.waiting,
            self.speculation,
            self.inspection,
            self.pacing,
            self.publishing,
            self.data_locality,
            self.probation,
            self.evaluation,
            self.ending,
            self.buffer,
            flushing,
            auditing,
            self.scoring,
            training,
            Unschedulable(context, self.memory_limits),
            self.dispatch,
            self.utilisation,
        )
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
        self._looks = [part.look for part in self.parts if type(part).look is not Part.look]
        self._deadlines = [part.deadline for part in self.parts if type(part).deadline is not Part.deadline]

    def handle(self, event: Event, now: float) -> list[Action]:
        """What to do about `event` at `now` seconds."""
        self.context.now = now
        actions: list[Action] = []
        for handle in self._handlers[type(event)]:
            self._carry(handle(event), actions)
        return actions

    def start(self, digest: str, now: float) -> list[Action]:
        """Begin a new run whose version 0 hashes to `digest`."""
        self.context.now = now
        return self._carry(self.ending.start(digest), [])

    def resume(self, now: float, grace: float) -> list[Action]:
        """Go on after a replay: nodes that were alive have `grace` seconds beyond their lease to come back."""
        self.context.now = now
        return self._carry(self._resume(grace), [])

    @property
    def deadline(self) -> float:
        """When the machine wants a `Tick` at the latest, in its own time; infinite when nothing is due."""
        return min([deadline() for deadline in self._deadlines])

    def _carry(self, steps: Steps, actions: list[Action]) -> list[Action]:
        for step in steps:
            if isinstance(step, Decision):
                apply(self.state, step)
                for see in self._seeing.get(type(step), ()):
                    see(step)
                actions.append(Journal(step))
            else:
                actions.append(step)
        return actions

    def _follow(self) -> Steps:
        for look in self._looks:
            yield from look()

    def _forget(self, node: str) -> None:
        for part in self.parts:
            part.forget(node)

    def _resume(self, grace: float) -> Steps:
        state = self.state
        if state.progress.finished:
            yield from self.ending.finish(state.progress.finished)
            return
        yield Noted(self.context.now, notes.Resumed(state.newest.version, self.epoch))
        yield from self.membership.await_back(grace)
        yield from self.auditing.resume()
        if state.closing is not None:
            yield from self.buffer.aggregate()
        elif state.progress.final:
            yield from self.ending.end()
        elif not state.record.evaluations and not self.evaluation.busy:
            yield from self.evaluation.measure()
        yield from self._follow()

    # What concerns no part in particular

    def _events(self) -> dict[type[Event], Callable[[Any], Steps]]:
        return {
            Received: self._received,
            Tick: self._tick,
            Stalled: self._stalled,
            Dropped: self._dropped,
            Told: self._told,
            Traffic: self._traffic,
        }

    def _received(self, event: Received) -> Steps:
        """A message: for the part that handles it, once the node is known and has greeted."""
        node, message = event.node, event.message
        known = self.state.nodes.get(node)
        if known is None:
            yield Send(node, Stop("this node is not enrolled in the run: join with a fresh invite", refusal=FOR_GOOD))
        elif known.revoked:
            yield turned_away(known)
        elif isinstance(message, Hello):
            yield from self.membership.hello(node, message)
            yield from self._follow()
        elif node not in self.membership.seen:
            yield Send(node, Identify())
        else:
            suspected = self.membership.heard(node)
            answer = self._messages.get(type(message))
            if answer is not None:
                yield from answer(node, message)
            if suspected:
                yield from self._follow()

    def _tick(self, event: Tick) -> Steps:
        for part in self.parts:
            yield from part.expire()
        yield from self._follow()

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
