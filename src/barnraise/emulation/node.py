"""One simulated worker: its process, which may die and start again, and its machine and link.

Its link is that of `transport.link`: payloads and fetched blobs are bulk, each way for itself, all else is small. Files
of rows stay on the node's disk.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from barnraise.controller.state import events as ce
from barnraise.core.types import AnyTask, Blob, News, NodeProfile, PayloadResult
from barnraise.emulation.chances import UNUSED
from barnraise.emulation.fleet import Machine
from barnraise.emulation.work import NO_CONTENT, NodeWork
from barnraise.emulation.world import World
from barnraise.wire.blobs import inlined
from barnraise.wire.frames import Buffer
from barnraise.wire.messages import INLINE_BYTES, Assign, Message, Newer, Offer
from barnraise.worker import actions as wa
from barnraise.worker import events as we
from barnraise.worker.machine import Worker

MESSAGE_BYTES = 200
"""Bytes of a small message on the simulated link, headers included."""

TICK = we.Tick()

PROGRESS = 2.0
"""Seconds after which the controller sees again how much of a payload has come."""

PREPARE_SECONDS = 15.0
"""Seconds to start a worker process, build its model and measure it."""

JITTER = 0.1
"""Sigma of the lognormal factor by which a task takes longer or shorter than the machine's rate says."""


class Node:
    """Carries out the actions of its worker's machine, in the simulator's time; `work` computes the results.

    `incarnation` is odd while the process lives; calls planned for another incarnation are void.
    """

    __slots__ = (
        "_cached",
        "_chance",
        "_down",
        "_down_seconds",
        "_inlined",
        "_running",
        "_tick_at",
        "_up",
        "_up_seconds",
        "_up_since",
        "_upload_end",
        "_upload_number",
        "busy_seconds",
        "incarnation",
        "left",
        "machine",
        "sim",
        "skew",
        "spec",
        "up_seconds",
        "work",
    )

    def __init__(self, spec: Machine, sim: World, work: NodeWork) -> None:
        self.spec, self.sim, self.work, self.machine = spec, sim, work, Worker(0)
        self.incarnation = 0
        self.skew = 0.0  # seconds by which the machine's clock is ahead
        chances = sim.chances.of(spec.name, "link") if spec.link.draws else UNUSED
        self._up, self._down = spec.link.states(chances)
        self._chance = sim.chances.of(spec.name, "tasks")
        # A steady link treats all small messages alike, and those of one node are far apart.
        self._up_seconds = self._up.lone(MESSAGE_BYTES) if self._up.steady else None
        self._down_seconds = self._down.lone(MESSAGE_BYTES) if self._down.steady else None
        self.busy_seconds = self.up_seconds = self._up_since = 0.0
        self._tick_at = math.inf
        self._cached = 0  # bit i: file i is on the disk
        self._upload_number, self._upload_end = 0, 0.0  # calls planned for another number are void
        self._inlined: set[str] = set()
        self._running: _Run | None = None
        self.left = 0  # the incarnation that ended by itself: its last messages arrive all the same

    @property
    def up(self) -> bool:
        return self.incarnation % 2 == 1

    def uptime(self, now: float) -> float:
        """Return the seconds for which the process has lived, all incarnations together."""
        return self.up_seconds + (now - self._up_since if self.up else 0.0)

    def start(self) -> None:
        """Start a new process on the node."""
        now = self.sim.now
        self.incarnation += 1
        self._up_since = now
        self._up.reset(now)
        self._down.reset(now)
        self._tick_at, self._running = math.inf, None
        chance = self.sim.chances.of(self.spec.name, f"session {self.incarnation}")
        self.machine = self.work.conduct.worker(chance.getrandbits(53))
        self._carry_out(self.machine.start(now + self.skew))

    def stop(self) -> None:
        """End the process without notice."""
        assert self.up
        self.incarnation += 1
        self.up_seconds += self.sim.now - self._up_since

    def handle(self, incarnation: int, event: we.Event) -> None:
        """Handle an event of the worker, if it still lives."""
        if incarnation == self.incarnation:
            self.sim.events += 1
            self._carry_out(self.machine.handle(event, self.sim.now + self.skew))

    def pause(self, seconds: float) -> None:
        """Pause the process: its computations end later by `seconds`."""
        run = self._running
        if run is not None:
            self._run(_Run(run.task, run.began + seconds, run.step, run.steps, run.news))

    def jump(self, seconds: float) -> None:
        """Move the machine's clock forward by `seconds`."""
        self.skew += seconds
        if self.up:
            self._tick_at = self.sim.now
            self.sim.at(self.sim.now, Node.tick, self, self.incarnation, self.sim.now)

    def tick(self, incarnation: int, planned: float) -> None:
        """Handle the machine's deadline at the time when it was `planned`; by now it may be later."""
        if incarnation != self.incarnation or planned != self._tick_at:
            return
        self._tick_at = math.inf
        due = self.machine.deadline
        deadline = due - self.skew
        if deadline <= self.sim.now:
            self.sim.events += 1
            clock = max(self.sim.now + self.skew, due)  # sums are rounded
            self._carry_out(self.machine.handle(TICK, clock))
        elif deadline < math.inf:
            self._tick_at = deadline
            self.sim.at(deadline, Node.tick, self, incarnation, deadline)

    def _carry_out(self, actions: list[wa.Action]) -> None:
        for action in actions:
            _ACTIONS[type(action)](self, action)
        deadline = self.machine.deadline - self.skew
        if deadline < self._tick_at:
            self._tick_at = deadline
            self.sim.at(deadline, Node.tick, self, self.incarnation, deadline)

    # The link

    def receive(self, message: Message) -> None:
        """Receive a message from the controller."""
        incarnation = self.incarnation
        if incarnation % 2 == 0:  # it is not up
            return
        event = we.Received(message)
        if (type(message) is Assign or type(message) is Newer) and (blobs := inlined(message.news.updates)):
            self._receive_inlined(blobs, event)
            return
        if (seconds := self._down_seconds) is not None:
            self.sim.at(self.sim.now + seconds, Node.handle, self, incarnation, event)
            return
        for arrival in self._down.send(self.sim.now, MESSAGE_BYTES, small=True):
            self.sim.at(arrival, Node.handle, self, incarnation, event)

    def _receive_inlined(self, blobs: tuple[Blob, ...], event: we.Event) -> None:
        """Receive a message with its updates attached."""
        size = sum(blob.num_bytes for blob in blobs)
        self.sim.bytes_down += size
        arrival = self._download(MESSAGE_BYTES + size)
        self.sim.at(arrival, Node._inline, self, self.incarnation, (blobs, event))

    def _inline(self, incarnation: int, arrived: tuple[tuple[Blob, ...], we.Received]) -> None:
        if incarnation == self.incarnation:
            blobs, event = arrived
            self._inlined = {blob.digest for blob in blobs}
            self.handle(incarnation, event)

    def _download(self, size: int) -> float:
        """Return when bulk that the controller sends now arrives."""
        start, end = self.sim.outbound.take(self.sim.now, size)
        return max(self._down.bulk(start, size), end + self.spec.link.down.delay)

    def _send(self, action: wa.Send) -> None:
        sim, message = self.sim, action.message
        sim.bytes_up += MESSAGE_BYTES
        event = ce.Received(self.spec.name, message)
        if (seconds := self._up_seconds) is not None:
            sim.at(sim.now + seconds, Node._arrive, self, self.incarnation, event)
            return
        for arrival in self._up.send(sim.now, MESSAGE_BYTES, small=True):
            sim.at(arrival, Node._arrive, self, self.incarnation, event)

    def _arrive(self, incarnation: int, event: ce.Event) -> None:
        if incarnation == self.incarnation or incarnation == self.left:
            self.sim.handle(event)

    def _offer(self, action: wa.Offer) -> None:
        """Send the header; a small payload is attached."""
        sim, name, result = self.sim, self.spec.name, action.result
        if not isinstance(result, PayloadResult) or result.payload.num_bytes > INLINE_BYTES:
            self._send(wa.Send(Offer(result)))
            return
        size = MESSAGE_BYTES + result.payload.num_bytes
        sim.bytes_up += size
        offer = ce.Received(name, Offer(result)), self.work.payload(result.assignment)
        sim.at(self._up.bulk(sim.now, size), Node._bring, self, self.incarnation, (size, offer))

    def _bring(self, incarnation: int, sent: tuple[int, tuple[ce.Received, Buffer]]) -> None:
        """Pass on an offer at the controller's own line, where it may have to wait."""
        if incarnation == self.incarnation:
            size, offer = sent
            _, end = self.sim.inbound.take(self.sim.now, size, late=True)
            self.sim.at(end, Node._brought, self, incarnation, offer)

    def _brought(self, incarnation: int, offer: tuple[ce.Received, Buffer]) -> None:
        if incarnation == self.incarnation:
            self.sim.bring(*offer)

    def _upload(self, action: wa.Upload) -> None:
        """Send the payload from some byte on; the controller sees from time to time how much of it has come."""
        sim, number, size = self.sim, action.result.assignment, action.result.payload.num_bytes
        self._cancel_upload(wa.CancelUpload())
        left = size - action.offset
        sim.bytes_up += left
        began, end = sim.now, self._up.bulk(sim.now, MESSAGE_BYTES + left)
        self._upload_end = end
        steps = math.ceil((end - began) / PROGRESS)
        for step in range(1, steps):
            event = ce.Arrived(self.spec.name, number, action.offset + left * step // steps)
            sim.at(began + step * PROGRESS, Node._taken, self, self.incarnation, (self._upload_number, event, None))
        whole = ce.Arrived(self.spec.name, number, size)
        upload = self._upload_number, left, whole, self.work.payload(number)
        sim.at(end, Node._uploaded, self, self.incarnation, upload)

    def _cancel_upload(self, action: wa.CancelUpload) -> None:
        self._upload_number += 1
        if self.sim.now < self._upload_end:
            self._up.free = self._upload_end = self.sim.now

    def _uploaded(self, incarnation: int, upload: tuple[int, int, ce.Arrived, Buffer]) -> None:
        """Pass on a payload at the controller's own line, where it may have to wait."""
        number, size, event, payload = upload
        if incarnation == self.incarnation and number == self._upload_number:
            _, end = self.sim.inbound.take(self.sim.now, size, late=True)
            self.sim.at(end, Node._taken, self, incarnation, (number, event, payload))

    def _taken(self, incarnation: int, upload: tuple[int, ce.Arrived, Buffer | None]) -> None:
        number, event, payload = upload
        if incarnation == self.incarnation and number == self._upload_number:
            if payload is not None:
                self.sim.payloads[event.node, event.assignment] = payload
            self.sim.handle(event)

    def _fetch(self, action: wa.Fetch) -> None:
        sim, blob = self.sim, action.blob
        bit = sim.file_bits.get(blob.digest, 0)
        content = sim.work.serve(blob) if blob.digest in self._inlined else None
        self._inlined.discard(blob.digest)
        if content is not None:
            self.work.fetched(blob, content)
        if bit & self._cached or content is not None:
            sim.soon(Node.handle, self, self.incarnation, we.Fetched(blob.digest, 0))
            return
        sim.bytes_up += MESSAGE_BYTES
        seconds = self._up_seconds
        asked = self._up.small(sim.now, MESSAGE_BYTES) if seconds is None else sim.now + seconds
        sim.at(asked, Node._served, self, self.incarnation, (bit, blob))

    def _served(self, incarnation: int, fetched: tuple[int, Blob]) -> None:
        """Request a blob from the controller."""
        if incarnation != self.incarnation:
            return
        sim, (bit, blob) = self.sim, fetched
        content = NO_CONTENT if bit else sim.work.serve(blob)
        if content is None:
            failed = sim.now + self.spec.link.down.delay
            sim.at(failed, Node.handle, self, incarnation, we.FetchFailed(blob.digest))
            return
        sim.bytes_down += blob.num_bytes
        sim.at(self._download(blob.num_bytes), Node._fetched, self, incarnation, (bit, blob, content))

    def _fetched(self, incarnation: int, fetched: tuple[int, Blob, Buffer]) -> None:
        if incarnation == self.incarnation:
            bit, blob, content = fetched
            if bit:
                self._cached |= bit
            else:
                self.work.fetched(blob, content)
            self.handle(incarnation, we.Fetched(blob.digest, blob.num_bytes))

    # Work

    def _prepare(self, action: wa.Prepare) -> None:
        sim, spec, link = self.sim, self.spec, self.spec.link
        self.work.start()
        rates = link.throughput(link.up), link.throughput(link.down)
        profile = NodeProfile(spec.rate, spec.memory_bytes, 1, "cpu (simulated)", *rates, link.up.delay)
        event = we.Prepared(sim.files, profile)
        sim.at(sim.now + PREPARE_SECONDS, Node.handle, self, self.incarnation, event)

    def _apply_updates(self, action: wa.ApplyUpdates) -> None:
        sim, work = self.sim, self.work
        work.take(action.news)
        sim.at(sim.now + work.costs.apply(action.news), Node._applied, self, self.incarnation, action.news)

    def _applied(self, incarnation: int, news: News) -> None:
        """Finish an update of the replica; the running task takes it in after its current step."""
        if incarnation != self.incarnation:
            return
        run = self._running
        if run is None:
            self.work.update(news)
        else:
            run.news.append((run.steps_by(self.sim.now), news))
        self.handle(incarnation, we.Updated(news.updates[-1].version))

    def _start_task(self, action: wa.StartTask) -> None:
        sim, task, steps = self.sim, action.task, action.task.steps
        self.work.begin(task)
        sim.first_task = min(sim.first_task, (sim.now, sim.bytes_down))
        step = task.effort / max(1, steps) / self.spec.rate * math.exp(self._chance.gauss(0.0, JITTER))
        step *= self.work.conduct.pace(task.id)
        if 0 < action.ask_at <= steps:
            sim.at(sim.now + step * action.ask_at, Node.handle, self, self.incarnation, we.Nearly(task.id))
        self._run(_Run(task, sim.now + self.work.costs.begin(task), step, steps, []))

    def _cut_short(self, action: wa.CutShort) -> None:
        """End the running task after its current step."""
        run = self._running
        if run is not None and run.step > 0.0:
            steps = run.steps_by(self.sim.now)
            self._run(_Run(run.task, run.began, run.step, steps, run.news))

    def _run(self, run: _Run) -> None:
        self._running = run
        self.sim.at(run.began + run.step * run.steps, Node._finish, self, self.incarnation, run)

    def _finish(self, incarnation: int, run: _Run) -> None:
        if incarnation == self.incarnation and run is self._running:
            self._running = None
            sim = self.sim
            result = self.work.run(run.task, run.steps, run.news)
            if result is None:
                self.handle(incarnation, we.TaskFailed(run.task.id))
                return
            encoding = self.work.costs.hand_in(result)
            event = we.TaskDone(msgspec.structs.replace(result, seconds=run.step * run.steps + encoding))
            sim.at(sim.now + encoding, Node.handle, self, incarnation, event)

    def _settle(self, action: wa.Settle) -> None:
        self.work.settle(action.assignment, action.accepted)

    def _quit(self, action: wa.Quit) -> None:
        self.left = self.incarnation
        self.stop()
        if not action.final:
            self.sim.give_up(action.reason)


class _Run:
    """A running task: it began at `began`, takes `steps` of `step` seconds each, and takes in `news`.

    Each with the number of steps before it.
    """

    __slots__ = ("began", "news", "step", "steps", "task")

    def __init__(self, task: AnyTask, began: float, step: float, steps: int, news: list[tuple[int, News]]) -> None:
        self.task, self.began, self.step, self.steps, self.news = task, began, step, steps, news

    def steps_by(self, now: float) -> int:
        """Return how many steps are done after the current one."""
        return min(self.steps, int(max(0.0, now - self.began) / self.step) + 1 if self.step > 0.0 else self.steps)


_ACTIONS: dict[type[wa.Action], Callable[[Node, Any], None]] = {
    wa.Send: Node._send,
    wa.Fetch: Node._fetch,
    wa.Forget: lambda node, action: None,  # blobs under way arrive all the same
    wa.Prepare: Node._prepare,
    wa.ApplyUpdates: Node._apply_updates,
    wa.StartTask: Node._start_task,
    wa.CutShort: Node._cut_short,
    wa.Offer: Node._offer,
    wa.Upload: Node._upload,
    wa.CancelUpload: Node._cancel_upload,
    wa.Settle: Node._settle,
    wa.Quit: Node._quit,
}
