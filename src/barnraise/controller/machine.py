"""The controller as a state machine: events in, decisions applied, actions out. No clock, socket, file or tensor.

`handle` runs `decide`, a generator: each decision it yields is applied before it goes on, so that later steps see
its effect, and is put among the actions as `Journal` in its place. The shell makes the decisions of a batch durable
before it carries out any action after them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from barnraise.controller import admission, buffering, custody, dispatch, membership, speeds
from barnraise.controller.actions import Action, Discard, Evaluate, Finish, Inspect, Journal, Send
from barnraise.controller.events import (
    Admitted,
    Aggregated,
    Arrived,
    Checkpointed,
    Dropped,
    Evaluated,
    Event,
    Heard,
    Inspected,
    InterruptRequested,
    Lost,
    Received,
    RevokeRequested,
    Stalled,
    StopRequested,
    Tick,
    Traffic,
    Unmade,
)
from barnraise.controller.folding import apply
from barnraise.controller.settings import EngineSettings
from barnraise.controller.soft import Soft
from barnraise.controller.state import State, Work
from barnraise.core.types import Contribution
from barnraise.ledger import notes
from barnraise.ledger.decisions import Decision, Judged, Noted
from barnraise.wire.messages import Ack, Heartbeat, Hello, Leave, Next, Offer, Pulse, Stop, Watch, Who

Steps = Iterator[Decision | Action]

TOO_LATE = "the run's token budget was met before"


class Controller:
    """Decides for one run. `epoch` numbers the incarnations of the controller, so that results of a dead one drop."""

    def __init__(self, settings: EngineSettings, state: State | None = None, epoch: int = 1) -> None:
        self.settings, self.epoch = settings, epoch
        self.state = state if state is not None else State()
        self.soft = Soft(settings.local_steps * settings.batch_size * settings.context)

    def handle(self, event: Event, now: float) -> list[Action]:
        """What to do about `event` at `now` seconds."""
        self.soft.now = now
        return self._carry(_DECIDE[type(event)](self, event, now))

    def start(self, digest: str, now: float) -> list[Action]:
        """Begin a new run whose version 0 hashes to `digest`."""
        return self._carry(self._start(digest, now))

    def resume(self, now: float, grace: float) -> list[Action]:
        """Go on after a replay: nodes that were alive have `grace` seconds beyond their lease to come back."""
        self.soft.now = now
        return self._carry(self._resume(now, grace))

    @property
    def deadline(self) -> float:
        """When the machine wants a `Tick` at the latest, in its own time; infinite when nothing is due."""
        return min(
            membership.deadline(self.soft),
            custody.deadline(self.soft.custody),
            buffering.deadline(self.state, self.soft, self.settings),
            self.soft.ask_again,
        )

    def _carry(self, steps: Steps) -> list[Action]:
        actions: list[Action] = []
        for step in steps:
            if isinstance(step, Decision):
                apply(self.state, step)
                actions.append(Journal(step))
            else:
                actions.append(step)
        return actions

    def _start(self, digest: str, now: float) -> Steps:
        yield Noted(now, notes.Started(digest=digest, run=self.settings.run))
        self.soft.evaluating = True
        yield Evaluate(self.epoch, 0)

    def _resume(self, now: float, grace: float) -> Steps:
        state = self.state
        if state.finished:
            yield Finish(state.finished)
            return
        yield Noted(now, notes.Resumed(version=state.version, epoch=self.epoch))
        yield from membership.await_back(state, self.soft, self.settings, grace, now)
        if state.closing is not None:
            yield from buffering.aggregate(state, self.epoch)
        elif state.final:
            yield from buffering.end(state, self.soft, self.epoch, now)
        elif not state.evaluations:
            self.soft.evaluating = True
            yield Evaluate(self.epoch, state.version)
        yield from self._after(now)

    def _after(self, now: float) -> Steps:
        """What follows from any change: what may be sent, the size of the buffer, whether it closes, who gets work."""
        yield from custody.ask(self.soft.custody, self.settings, now)
        yield from buffering.size(self.state, self.soft, self.settings, now)
        yield from buffering.close(self.state, self.soft, self.settings, self.epoch, now)
        yield from dispatch.flush(self.state, self.soft, self.settings, now)
        yield from dispatch.assign(self.state, self.soft, self.settings, now)

    # Events, one method each

    def _admitted(self, event: Admitted, now: float) -> Steps:
        yield from membership.admit(self.state, event.node, event.key, event.invite, now)

    def _received(self, event: Received, now: float) -> Steps:
        node, message = event.node, event.message
        known = self.state.nodes.get(node)
        if known is None:
            yield Send(node, Stop("this node is not enrolled in the run: join with a fresh invite"))
        elif known.revoked:
            yield membership.turned_away(known)
        elif isinstance(message, Hello):
            yield from membership.hello(self.state, self.soft, self.settings, node, message, now)
            yield from self._after(now)
        elif node not in self.soft.seen:
            yield Send(node, Who())
        else:
            membership.heard(self.soft, node, now)
            handler = _MESSAGES.get(type(message))
            if handler is not None:
                yield from handler(self, node, message, now)

    def _heard(self, event: Heard, now: float) -> Steps:
        membership.heard(self.soft, event.node, now)
        yield from ()

    def _lost(self, event: Lost, now: float) -> Steps:
        if event.node in self.state.nodes:
            yield from membership.part(self.state, self.soft, event.node, event.reason, now, event.how)
            yield from self._after(now)

    def _tick(self, event: Tick, now: float) -> Steps:
        yield from membership.expire(self.state, self.soft, self.settings, now)
        yield from custody.expire(self.soft.custody, self.settings, now)
        yield from self._after(now)

    def _stop_requested(self, event: StopRequested, now: float) -> Steps:
        if not self.state.stopping and not self.state.final:
            yield Noted(now, notes.Stopping(reason=event.reason))
            yield from self._after(now)

    def _interrupt_requested(self, event: InterruptRequested, now: float) -> Steps:
        if self.soft.interrupted is None and not self.state.finished:
            yield Noted(now, notes.Interrupted(reason=event.reason))
            self.soft.interrupted = event
            yield from buffering.rest(self.state, self.soft, self.epoch)

    def _revoke_requested(self, event: RevokeRequested, now: float) -> Steps:
        yield from membership.revoke(self.state, self.soft, event.node, event.reason, now)
        yield from self._after(now)

    def _inspected(self, event: Inspected, now: float) -> Steps:
        if event.epoch != self.epoch:
            return
        offer, version = self.soft.custody.inspecting[event.assignment]
        custody.settled(self.soft.custody, offer)
        work = self.state.works[event.assignment]
        dense = work.kind == "flush" or offer.payload.num_bytes == self.settings.last_bytes
        most = admission.most_norm(work, dense, self.soft.speeds, self.settings)
        reason = admission.refuse_inspection(event.norm, event.reason, most, self.settings)
        yield from self._judge(work, offer, version, event.norm, reason, now)
        yield from membership.dismiss(self.state, self.soft, work.node, reason, now)
        yield from self._after(now)

    def _aggregated(self, event: Aggregated, now: float) -> Steps:
        closing = self.state.closing
        if event.epoch == self.epoch and closing is not None and closing.version == event.version:
            yield from buffering.made(self.state, self.soft, self.settings, self.epoch, event, now)
            dispatch.wake(self.soft)
            yield from self._after(now)
            for node in list(self.soft.watching):
                yield from dispatch.publish(self.state, self.soft, self.settings, self.state.nodes[node])
            yield from buffering.rest(self.state, self.soft, self.epoch)

    def _unmade(self, event: Unmade, now: float) -> Steps:
        closing = self.state.closing
        if event.epoch == self.epoch and closing is not None and closing.version == event.version:
            yield from buffering.unmade(self.state, self.settings, self.epoch, event, now)
            yield from self._after(now)

    def _evaluated(self, event: Evaluated, now: float) -> Steps:
        if event.epoch == self.epoch:
            self.soft.evaluating = False
            tokens = self.state.version_tokens
            loss = event.loss if math.isfinite(event.loss) else None  # JSON knows no NaN
            yield Noted(now, notes.Evaluated(version=event.version, loss=loss, tokens=tokens))
            yield from buffering.settled(self.state, self.soft, self.epoch, now)

    def _checkpointed(self, event: Checkpointed, now: float) -> Steps:
        if event.epoch != self.epoch:
            return
        self.soft.checkpointing = False
        if event.reason:
            yield Noted(now, notes.CheckpointFailed(version=event.version, reason=event.reason))
            if self.state.final and event.version == self.state.version and self.state.closing is None:
                yield from buffering.give_up(event.reason)
                return
            if self.soft.interrupted is not None:
                yield from buffering.give_up(f"the checkpoint failed: {event.reason}")
                return
        else:
            yield Noted(now, notes.Checkpointed(version=event.version))
        yield from buffering.settled(self.state, self.soft, self.epoch, now)
        yield from buffering.rest(self.state, self.soft, self.epoch)

    def _dropped(self, event: Dropped, now: float) -> Steps:
        yield Noted(now, notes.FrameDropped(reason=event.reason, count=event.count), event.node)

    def _stalled(self, event: Stalled, now: float) -> Steps:
        """Nobody was heard meanwhile, and nobody's fault was it."""
        membership.excuse(self.soft, event.seconds)
        custody.excuse(self.soft.custody, event.seconds)
        yield from ()

    def _traffic(self, event: Traffic, now: float) -> Steps:
        yield Noted(now, notes.Traffic(up=event.bytes_up, down=event.bytes_down))

    # Messages, one method each

    def _heartbeat(self, node: str, message: Heartbeat, now: float) -> Steps:
        yield Send(node, Pulse(message.sent, *membership.intervals(self.state, self.soft, self.settings, now, node)))

    def _next(self, node: str, message: Next, now: float) -> Steps:
        self.soft.resting.pop(node, None)
        self.soft.asking[node], self.soft.links[node] = max(message.have, self.soft.told.get(node, -1)), message.link
        yield from dispatch.assign(self.state, self.soft, self.settings, now)

    def _watch(self, node: str, message: Watch, now: float) -> Steps:
        self.soft.watching[node] = max(message.have, self.soft.told.get(node, -1))
        yield from dispatch.publish(self.state, self.soft, self.settings, self.state.nodes[node])

    def _leave(self, node: str, message: Leave, now: float) -> Steps:
        yield from membership.part(self.state, self.soft, node, message.reason or "left", now)
        yield from self._after(now)

    def _offer(self, node: str, message: Offer, now: float) -> Steps:
        """Judge a header; what may come is asked for."""
        offer = message.contribution
        number = offer.assignment
        work = self.state.works.get(number)
        if work is None or work.node != node:
            unknown = False, "this work is not yours (any more): it runs elsewhere"
            yield Send(node, Ack(number, *self.state.nodes[node].verdicts.get(number, unknown)))
        elif number in self.soft.custody.inspecting:
            return  # its payload is here: the answer follows
        elif reason := self._refuse(work, offer):
            yield from custody.drop(self.soft.custody, node, number)
            yield from self._judge(work, offer, self._version, 0.0, reason, now)
            yield from self._after(now)
        else:
            yield from custody.expect(self.soft.custody, self.settings, node, offer, now)

    def _arrived(self, event: Arrived, now: float) -> Steps:
        """Bytes of a payload; all of it is looked at once more, since versions were made meanwhile, and inspected."""
        membership.heard(self.soft, event.node, now)
        upload = custody.arrived(self.soft.custody, event.node, event.assignment, event.num_bytes, now)
        if upload is None:
            return
        offer, work = upload.offer, self.state.works[event.assignment]
        if reason := self._refuse(work, offer):
            custody.settled(self.soft.custody, offer)
            yield from self._judge(work, offer, self._version, 0.0, reason, now)
            yield from self._after(now)
        else:
            self.soft.custody.inspecting[event.assignment] = offer, self._version
            yield Inspect(self.epoch, event.node, offer)
            yield from custody.ask(self.soft.custody, self.settings, now)

    @property
    def _version(self) -> int:
        """What is compared with a contribution that arrives now."""
        return buffering.arrival_version(self.state, self.settings)

    def _refuse(self, work: Work, offer: Contribution) -> str:
        """What is wrong with an offer as things stand; empty when it may go on."""
        if self._too_late(work):
            return TOO_LATE
        return admission.refuse_offer(offer, work, self._version, self.settings)

    def _too_late(self, work: Work) -> bool:
        return self.state.final or (self.state.flushing is not None and work.kind == "train")

    def _judge(self, work: Work, offer: Contribution, version: int, norm: float, reason: str, now: float) -> Steps:
        """Put the verdict on the ledger and answer the worker."""
        if self._too_late(work):
            verdict, reason = "discarded", TOO_LATE
        else:
            verdict = "refused" if reason else "accepted"
        staleness = max(0, version - offer.base)
        tokens = work.credit(offer.steps) if verdict == "accepted" else work.tokens
        weight = tokens * self.settings.staleness.weight(staleness)
        if work.kind == "flush":
            node = self.state.nodes[work.node]
            weight = speeds.usable(self.state, self.soft, node) or 1.0  # as all that it sent before weighed
        yield Judged(
            now, work.assignment, work.node, verdict, reason, offer.base, version, staleness, tokens,  # type: ignore[arg-type]
            offer.steps, offer.loss, norm, offer.seconds, offer.payload.num_bytes, offer.payload.digest,
            work.parameters, weight,
        )  # fmt: skip
        self.soft.news += 1
        dispatch.wake(self.soft)
        if verdict != "accepted":
            self.soft.wasted.take(work.node, now)
            yield Discard(work.node, work.assignment)
        yield Send(work.node, Ack(work.assignment, verdict == "accepted", reason))


_DECIDE: dict[type[Event], Callable[[Controller, Any, float], Steps]] = {
    Admitted: Controller._admitted,
    Received: Controller._received,
    Heard: Controller._heard,
    Arrived: Controller._arrived,
    Lost: Controller._lost,
    Inspected: Controller._inspected,
    Aggregated: Controller._aggregated,
    Unmade: Controller._unmade,
    Evaluated: Controller._evaluated,
    Checkpointed: Controller._checkpointed,
    Tick: Controller._tick,
    Dropped: Controller._dropped,
    Traffic: Controller._traffic,
    Stalled: Controller._stalled,
    StopRequested: Controller._stop_requested,
    InterruptRequested: Controller._interrupt_requested,
    RevokeRequested: Controller._revoke_requested,
}

_MESSAGES: dict[type[Any], Callable[[Controller, str, Any, float], Steps]] = {
    Heartbeat: Controller._heartbeat,
    Next: Controller._next,
    Watch: Controller._watch,
    Leave: Controller._leave,
    Offer: Controller._offer,
}
