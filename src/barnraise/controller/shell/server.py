"""The controller's shell: frames, timers and finished work become events; actions become frames, commits and work.

A batch of events is one group commit, payloads first. Its actions follow: a crash undoes nothing that was visible
outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from barnraise.controller.machine import Controller
from barnraise.controller.shell.enrolment import Enrolment
from barnraise.controller.shell.group_commit import GroupCommit
from barnraise.controller.shell.inbox import MOST_AT_ONCE, MOST_WAITING, TURNS_BEHIND, Awaited, Brought, Waiting
from barnraise.controller.shell.originals import Replication
from barnraise.controller.shell.rate_limits import SHUT_OUT, RateLimits
from barnraise.controller.shell.reception import Reception
from barnraise.controller.shell.role_handlers import HandlerContext, RoleHandlers, decode_incoming
from barnraise.controller.shell.standbys import Standbys
from barnraise.controller.shell.warnings import Warnings
from barnraise.controller.state import actions as act
from barnraise.controller.state import effects, saved
from barnraise.controller.state import events as ev
from barnraise.controller.tensors.executor import ControllerExecutor, Report
from barnraise.core.errors import SupersededError, WireError
from barnraise.core.malformed_frames import MalformedFrames
from barnraise.core.text import printable
from barnraise.core.token_bucket import TokenBucket
from barnraise.ledger import Ledger, notes
from barnraise.ledger.decisions import Judged, NodeChanged, Noted, VersionClosed
from barnraise.transport.base import Peer
from barnraise.transport.handover import HandoverListener
from barnraise.transport.waking import Signal
from barnraise.trust import roles
from barnraise.wire.blobs import IncomingPayloads, inlined
from barnraise.wire.frames import Buffer, encode, num_bytes
from barnraise.wire.messages import (
    Assign,
    Chunk,
    Fetch,
    Gone,
    Hello,
    Identify,
    Message,
    Newer,
    Offer,
    PayloadChunk,
    SendPayload,
    Stop,
)

TRAFFIC_INTERVAL = 10.0


class Server:
    """Runs one controller until its run is finished; `clock` gives run seconds, which continue after a resume."""

    def __init__(
        self,
        machine: Controller,
        ledger: Ledger,
        enrolment: Enrolment,
        *,
        make_executor: Callable[[Report, Callable[[BaseException], None]], ControllerExecutor],
        keep_checkpoints: int,
        clock: Callable[[], float],
        warn: Callable[[str], None],
        contributions: dict[int, tuple[int, ...]] | None = None,
        replication: Replication | None = None,
        read_status: Callable[[], bytes] | None = None,
    ) -> None:
        self.machine, self.ledger, self.enrolment, self.clock, self.warn = machine, ledger, enrolment, clock, warn
        self.keep_checkpoints = keep_checkpoints
        self.executor = make_executor(self._report_from_thread, self._failed)
        self.inbox: deque[Waiting] = deque()
        self.commits = GroupCommit(ledger, lambda text: self.warn(text))
        self.peers: dict[str, Peer] = {}
        context = HandlerContext(
            machine=machine, ledger=ledger, enrolment=enrolment, replication=replication or Replication(),
            peers=self.peers, transmit=self._transmit, tell=self._tell, post=self.post,
            address=lambda peer: self.listener.address(peer), warn=warn, read_status=read_status,
        )  # fmt: skip
        self.handlers = RoleHandlers(context)
        self.standbys, self.reception = self.handlers.of(Standbys), self.handlers.of(Reception)
        self.drops, self.rates, self.warnings = MalformedFrames(), RateLimits(), Warnings()
        self.uploads = IncomingPayloads()  # those that the machine wants: others are not kept
        self.contributions = contributions or {}
        self.bytes_up, self.bytes_down = machine.state.totals.bytes_up, machine.state.totals.bytes_down
        self.finished: act.Finish | None = None
        self.error: BaseException | None = None
        self._asks = TokenBucket(burst=1.0, rate=1.0)  # requests to greet again
        self._traffic_at, self._bound = 0.0, False
        self._behind = 0  # rounds since nothing waited, or a Tick was due all the same
        self.stopped: set[str] = set()  # nodes that were told to stop

    async def bind(self, uri: str, handover: HandoverListener | None = None) -> str:
        """Listen at one address, or at two with a space between, and return them with the ports taken.

        An open `handover` is used unchanged. Raises AddressError.
        """
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._drained = Signal()
        self._handover = handover or HandoverListener()
        uri = await self._handover.open(uri, self.enrolment.keys, self.machine.state.roster.keys, *self.handlers.keys)
        self.listener, self._bound = self._handover.listener, True
        return uri

    async def run(self, first: list[act.Action]) -> act.Finish:
        """Carry out `first` (from the machine's start or resume), then work until the run is finished."""
        tasks = [asyncio.ensure_future(work) for work in (self._read(), self.standbys.work())]
        for task in tasks:
            self.supervise(task)
        try:
            await self._carry_out(first, {})
            while self.finished is None:
                await self._turn()
            await self.standbys.finish()
            return self.finished
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)  # never raises: their errors are reported already
            await self.close()

    async def close(self) -> None:
        """Close threads and ports, as `run` does at its end; a second call does no harm."""
        await asyncio.to_thread(self.executor.close)
        self.standbys.close()
        self.commits.close()
        if self._bound:
            await self.listener.close(linger=1.0)

    def post(self, event: Waiting) -> None:
        """Queue an event for the machine; for the event loop's thread."""
        self.inbox.append(event)
        self._wake.set()

    async def settle(self, event: ev.Event) -> None:
        """Call `post`, and wait until the decisions are durable. For the event loop's thread, while `run` runs."""
        awaited = Awaited(event, self._loop.create_future())
        self.post(awaited)
        await awaited.settled

    def supervise(self, task: asyncio.Task[None]) -> None:
        """Fail the run, which can be resumed, when a task fails: no failure may go unnoticed."""
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    async def _turn(self) -> None:
        """Handle waiting events, a limited number at a time, so that the event loop is never blocked for long."""
        await asyncio.sleep(0)
        if not self.inbox:
            self._wake.clear()
            wait = self.machine.deadline - self.clock()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), None if wait == math.inf else max(0.0, wait))
        now = self.clock()
        actions: list[act.Action] = []
        brought: dict[tuple[str, int], memoryview] = {}
        settling: list[asyncio.Future[None]] = []
        for _ in range(min(len(self.inbox), MOST_AT_ONCE)):
            event = self.inbox.popleft()
            if isinstance(event, Brought):
                brought[event.node, event.message.result.assignment] = event.payload
                self.listener.budget.give((event.node, "offer"), len(event.payload))
                event = ev.Received(event.node, event.message)
            elif isinstance(event, Awaited):
                settling.append(event.settled)
                event = event.event
            actions += self.machine.handle(event, now)
        self._drained.wake()
        self._behind = (self._behind + 1) % TURNS_BEHIND if self.inbox else 0
        if self.machine.deadline <= now and not self._behind:
            actions += self.machine.handle(ev.Tick(), now)
        if now - self._traffic_at >= TRAFFIC_INTERVAL or any(type(action) is act.Finish for action in actions):
            self._traffic_at = now
            actions = self.machine.handle(ev.Traffic(self.bytes_up, self.bytes_down), now) + actions
        await self._carry_out(actions, brought)
        for settled in settling:
            if not settled.done():
                settled.set_result(None)

    async def _carry_out(self, actions: list[act.Action], brought: dict[tuple[str, int], memoryview]) -> None:
        decisions = [action.decision for action in actions if isinstance(action, act.Journal)]
        if self.error is not None:
            raise self.error
        if decisions:
            payloads = {
                d.assignment: self.uploads.take(d.node, d.assignment).payload
                for d in decisions
                if isinstance(d, Judged) and d.brings
            }
            await self.commits.commit(decisions, payloads)
            self.standbys.committed()
        if self.error is not None:  # a superseded controller sends nothing any more
            raise self.error
        for action in actions:
            if isinstance(action, act.Receive):
                self._receive_payload(action, brought.pop((action.node, action.result.assignment), None))
            elif (do := _ACTIONS.get(type(action))) is not None:
                do(self, action)
            else:
                assert isinstance(action, effects.ControllerEffect), "every action is carried out"
                self.executor.carry_out(action)

    def _report_from_thread(self, event: ev.Event) -> None:
        self._loop.call_soon_threadsafe(self.post, event)

    def _failed(self, error: BaseException) -> None:
        self.error = error
        self._loop.call_soon_threadsafe(self._wake.set)

    # Incoming messages

    async def _read(self) -> None:
        """Read messages as fast as they are handled; an error in one concerns its sender alone."""
        while batch := await self._handover.receive_many():
            for peer, frames in batch:
                self.bytes_up += sum(map(num_bytes, frames))
                node = self.machine.state.roster.keys.get(peer.key)
                try:
                    if not self.handlers.receive(peer, frames):
                        self._receive(peer, node, *decode_incoming(frames, enrolled=node is not None))
                except WireError as error:
                    self._drop(node, str(error))
                except SupersededError:
                    raise
                except Exception as error:
                    what = f"{type(error).__name__}: {printable(str(error))}"
                    self.warn(f"a message of {node or 'a stranger'} was passed over: {what}")
                    self._drop(node, f"{type(error).__name__} while it was handled")
            if len(self.inbox) >= MOST_WAITING:
                await self._catch_up()

    async def _catch_up(self) -> None:
        """Pause reading while too much waits; nodes that could not be read meanwhile were not silent."""
        began = time.monotonic()
        while len(self.inbox) >= MOST_WAITING:
            await self._drained.wait()
        self.inbox.appendleft(ev.Stalled(time.monotonic() - began))
        self._wake.set()

    def _receive(self, peer: Peer, node: str | None, message: Message, raw: memoryview | None) -> None:
        if node is not None and (excess := self.rates.excess(node, message, now := time.monotonic())):
            self._drop(node, excess)
            if self.rates.floods(node, now):
                self.listener.shut_out(peer.key, SHUT_OUT)
        elif node is not None and self.machine.state.nodes[node].revoked:
            self.reception.turn_away(peer, node, message)
        elif not self.handlers.greet(peer, message) and node is not None:
            self._receive_from_node(peer, node, message, raw)

    def _receive_from_node(self, peer: Peer, node: str, message: Message, raw: memoryview | None) -> None:
        """Refuse what the node's role may not say; the shell or else the machine handles all other messages."""
        if offence := roles.refusal(self.machine.state.nodes[node].badge.role, message):
            self._drop(node, offence)
            self._transmit(peer, Stop(offence, final=False))
        elif type(message) is not Hello and self.peers.get(node) != peer:
            self._transmit(peer, Identify())
        elif (take := _MESSAGES.get(type(message))) is not None:
            take(self, peer, node, message, raw)
        else:
            self.post(ev.Received(node, message))

    def _take_hello(self, peer: Peer, node: str, message: Hello, raw: None) -> None:
        self.standbys.require_newest(message.term)
        if self.reception.has_place(peer, node, message):
            self.peers[node] = peer
            self.stopped.discard(node)
            self.post(ev.Received(node, message))

    def _take_offer(self, peer: Peer, node: str, message: Offer, raw: memoryview | None) -> None:
        if raw is None:
            self.post(ev.Received(node, message))
        else:
            self.listener.budget.charge((node, "offer"), len(raw))
            self.post(Brought(node, message, raw))

    def _take_chunk(self, peer: Peer, node: str, message: PayloadChunk, raw: memoryview) -> None:
        """Accept bytes of a payload; bytes after a gap are requested once, since others overtook them."""
        number = message.assignment
        upload = self.uploads.get(node, number)
        if upload is None:
            self.post(ev.Heard(node))
            unknown = node not in self.stopped and number not in self.machine.state.nodes[node].verdicts
            if unknown and self._asks.take(node, time.monotonic()):
                self._transmit(peer, Identify())  # its `Hello` says what it holds, the answer what of that is needed
        elif upload.add(message.offset, raw):
            self.post(ev.Arrived(node, number, len(upload.payload)))
        elif not upload.asked and message.offset > len(upload.payload):
            upload.asked = True
            self._transmit(peer, SendPayload(number, len(upload.payload)))

    def _receive_payload(self, action: act.Receive, brought: memoryview | None) -> None:
        """Request the missing bytes of the payload, unless it was attached to its offer."""
        number = action.result.assignment
        upload = self.uploads.open(action.node, action.result)
        if brought is not None and len(brought) == action.result.payload.num_bytes and upload.add(0, brought):
            self.post(ev.Arrived(action.node, number, len(brought)))
        elif not upload.complete:
            self._tell(action.node, SendPayload(number, len(upload.payload)))

    def _serve(self, peer: Peer, node: str, message: Fetch, raw: None) -> None:
        chunk = self.executor.blobs.read(message.digest, message.offset, message.num_bytes)
        self._transmit(peer, Gone(message.digest) if chunk is None else Chunk(message.digest, message.offset), chunk)
        self.post(ev.Heard(node))

    def _drop(self, node: str | None, reason: str) -> None:
        """Journal malformed frames: at once, and then in summaries."""
        if (count := self.drops.count(node or "", time.monotonic())) > 0:
            self.post(ev.Dropped(node or "", reason, count))

    # Outgoing messages

    def _tell(self, node: str, message: Message) -> None:
        peer = self.peers.get(node)
        if peer is not None and not (isinstance(message, Assign | Newer) and self._transmit_inlined(peer, message)):
            self._transmit(peer, message)

    def _transmit_inlined(self, peer: Peer, message: Assign | Newer) -> bool:
        """Send the message with its updates; False when they are too large, or the peer's queue has no room."""
        blobs = inlined(message.news.updates)
        contents = [self.executor.blobs.read(blob.digest, 0, blob.num_bytes) for blob in blobs]
        whole = b"".join(content for content in contents if content is not None)
        return 0 < len(whole) == sum(blob.num_bytes for blob in blobs) and self._transmit(peer, message, whole)

    def _transmit(self, peer: Peer, message: Message, raw: Buffer | None = None) -> bool:
        frames = encode(message, raw)
        if sent := self.listener.send(peer, frames):
            self.bytes_down += sum(map(num_bytes, frames))
        return sent

    # Actions, one method each

    def _send(self, action: act.Send) -> None:
        told = action.message
        if isinstance(told, Assign | Newer):
            self.executor.blobs.hold(action.node, told.digests, news=isinstance(told, Newer))
        for message in self.standbys.outgoing(action.node, told):
            self._tell(action.node, message)
        if isinstance(told, Stop):
            self.stopped.add(action.node)

    def _inspect(self, action: effects.Inspect) -> None:
        upload = self.uploads.get(action.node, action.result.assignment)
        assert upload is not None, "the machine asks for the inspection of what has arrived"
        self.executor.inspect(action, upload)

    def _checkpoint(self, action: effects.Checkpoint) -> None:
        state = saved.encode(self.machine.state, self.clock())
        self.executor.checkpoint(action, state, self.ledger.head)

    def _journaled(self, action: act.Journal) -> None:
        """Handle a durable decision: a checkpoint makes the payloads before it superfluous."""
        decision = action.decision
        if isinstance(decision, VersionClosed):
            self.contributions[decision.version] = decision.contributions
        elif isinstance(decision, Judged) and (version := decision.unmasks):
            self.contributions[version] = (*self.contributions.get(version, ()), decision.assignment)
        elif isinstance(decision, NodeChanged) and decision.change.gone:
            self.executor.blobs.let_go(decision.node)
        elif isinstance(decision, Noted) and isinstance(decision.note, notes.Checkpointed):
            kept = self.executor.checkpoints.prune(self.keep_checkpoints)
            covered = [version for version in self.contributions if version <= kept[0].manifest.version]
            for version in covered:
                self.ledger.segments.forget(self.contributions.pop(version))
        if text := self.warnings.of(decision):
            self.warn(text)

    def _finish(self, action: act.Finish) -> None:
        self.finished = action


_MESSAGES: Mapping[type[Message], Callable[[Server, Peer, str, Any, Any], None]] = {
    Hello: Server._take_hello,
    Fetch: Server._serve,
    PayloadChunk: Server._take_chunk,
    Offer: Server._take_offer,
}
"""Messages of nodes that the shell handles, for the machine or before it."""

_ACTIONS: dict[type[act.Action], Callable[[Server, Any], None]] = {
    act.Journal: Server._journaled,
    act.Send: Server._send,
    effects.Inspect: Server._inspect,
    act.Discard: lambda server, action: server.uploads.drop(action.node, action.assignment),
    effects.Checkpoint: Server._checkpoint,
    act.Release: lambda server, action: server.executor.blobs.release(action.digests),
    act.Finish: Server._finish,
}
