"""The worker's shell: one connection, one event loop, three threads of work. It decides nothing.

frames, timers, finished work  ->  events  ->  machine  ->  actions  ->  frames, threads, files
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from barnraise.core.errors import BarnraiseError, LimitReachedError, ProblemError, WireError
from barnraise.core.text import printable
from barnraise.core.types import Blob, News, PayloadResult
from barnraise.transport.base import Connection
from barnraise.transport.links.shaped import ShapedConnection
from barnraise.transport.roaming import RoamingConnection
from barnraise.wire.blobs import chunks, inlined
from barnraise.wire.frames import Buffer, decode_from_controller, encode
from barnraise.wire.manifest import MANIFEST_LIMIT
from barnraise.wire.messages import (
    INLINE_BYTES,
    Assign,
    Chunk,
    Elsewhere,
    Gone,
    Leave,
    Message,
    Newer,
    Offer,
    PayloadChunk,
    Pulse,
    Welcome,
)
from barnraise.worker import actions as act
from barnraise.worker import events as ev
from barnraise.worker.building import build_executor
from barnraise.worker.enrolling import enrol
from barnraise.worker.fetching import Fetcher
from barnraise.worker.gauges import Gauges, Show
from barnraise.worker.imports import import_all
from barnraise.worker.kept import Kept
from barnraise.worker.kinds import RUN, Made
from barnraise.worker.machine import MakeWorker, Worker
from barnraise.worker.mirrors import Mirrors
from barnraise.worker.options import REASON, Outcome, WorkerOptions
from barnraise.worker.pools import Pools
from barnraise.worker.preparing import Prepare, Shell, memory_net, prepare
from barnraise.worker.profile import machine_profile
from barnraise.worker.reasons import reason_of, told_outside
from barnraise.worker.signing import vouched
from barnraise.worker.task_executor import BuildExecutor, TaskExecutor
from barnraise.worker.telemetry import watch
from barnraise.worker.terms import require_intervals, require_size

LINGER = 1.0
"""Seconds for unsent messages when the worker stops."""


class WorkerRuntime:
    """Runs one worker until the run is over, it is asked to leave, or the controller stops it.

    `build` makes the executor of its tasks, once the model is known, as a step of `prepare`. `show` is given its
    progress, twice a second.
    """

    def __init__(
        self,
        options: WorkerOptions,
        *,
        build: BuildExecutor = build_executor,
        prepare: Prepare = prepare,
        machine: MakeWorker = Worker,
        on_connected: Callable[[str], None] = lambda node: None,
        say: Callable[[str], None] = lambda text: None,
        show: Show | None = None,
    ) -> None:
        self.options, self.build, self.on_connected, self.say = options, build, on_connected, say
        self._prepare = prepare
        self.lent = lent = options.means.lent()
        profile = machine_profile(options.means.device, lent.memory_bytes)
        self.machine = machine(secrets.randbits(53), profile, lent.kinds)
        self.machine.contact.most = options.own.releases if options.own else None
        self.gauges = Gauges(self.machine, show)
        self.fetcher = Fetcher()
        self.kept: Kept | None = None
        self._built: TaskExecutor | None = None
        self.inbox: asyncio.Queue[ev.Event] = asyncio.Queue()
        self.mirrors = self.fetcher.mirrors = Mirrors(self.fetcher, self.inbox.put_nowait, self._spawn, say)
        self.outbox: asyncio.Queue[Message] = asyncio.Queue()
        self.outcome: Outcome | None = None
        self._enrolling: asyncio.Task[None] | None = None
        self._working, self._num_lost = False, 0  # messages that were malformed
        self.pools = Pools(options.means.device)
        self._background: set[asyncio.Task[None]] = set()
        self._uploader: asyncio.Task[None] | None = None
        self._limited = contextlib.ExitStack()

    @property
    def executor(self) -> TaskExecutor:
        """Return the executor of the tasks, once it is built: the machine's requests come after that."""
        assert self._built is not None
        return self._built

    def leave(self, reason: str) -> None:
        """Ask the worker to submit its results and leave. For the event loop's thread (a signal handler)."""
        if not self._working:  # there are no results yet
            self.outcome = Outcome(reason, final=True, left=True)
        if self._enrolling is not None:
            self._enrolling.cancel()
        if self._built is not None:
            self._built.leaving.set()
        self.inbox.put_nowait(ev.LeaveRequested(reason))

    async def run(self) -> Outcome:
        """Run the worker to its end; raises InviteError when it is not admitted, AddressError, and bugs."""
        self._loop = asyncio.get_running_loop()
        if self.lent.seconds:
            self.machine.ends = time.monotonic() + self.lent.seconds
            self._loop.call_later(self.lent.seconds, self.leave, self.lent.over)
        self.roaming = RoamingConnection(self.say)
        self.connection: Connection = self.roaming
        if self.options.means.link is not None:
            self.connection = ShapedConnection(self.connection, self.options.means.link, seed=self.options.name)
        await self.connection.open(self.options.uri, self.options.server_key, self.options.keys)
        self._spawn(self.gauges.keep_reading(self.roaming))
        try:
            options = self.options
            if options.invite is not None and self.outcome is None:
                self._enrolling = asyncio.ensure_future(enrol(self.connection, options, options.invite, self.say))
                await asyncio.wait([self._enrolling])
                if not self._enrolling.cancelled():
                    self._enrolling.result()
            if self.outcome is None:
                self.on_connected(self.options.name)
                await self._loop.run_in_executor(self.pools.training, import_all)  # before a lease has to be kept
            if self.outcome is None:
                await self._work()
            if self.machine.leaving and self.outcome and self.outcome.final and self.kept is not None:
                await self._wait_for_training(self.kept.last_moments)
                await self._loop.run_in_executor(self.pools.updating, self.kept.last_replica)
        finally:
            self.machine.quit = True
            for task in self._background:
                task.cancel()
            await self.connection.close(linger=LINGER)
            await self.mirrors.close()
            if self._built is not None:
                self._built.cut.set()
            self.pools.shutdown()
            self._limited.close()
        self.gauges.read(self.roaming)
        assert self.outcome is not None
        return self.outcome

    async def _work(self) -> None:
        self._working = True
        self._spawn(self._read())
        sender = self._spawn(self._write())
        self._spawn(watch(self.options.means.device, self.inbox.put_nowait, lambda: self._built))
        self._carry_out(self.machine.start(time.monotonic()))
        while self.outcome is None:
            try:
                await self._turn()
            except BarnraiseError as error:
                self._fail(error)
        with contextlib.suppress(TimeoutError):  # the sender may have ended, the controller may be lost
            await asyncio.wait_for(self.outbox.join(), LINGER)
        sender.cancel()

    async def _turn(self) -> None:
        """Handle the waiting events, or a tick when there were none until the deadline."""
        due = min(self.machine.deadline, self.fetcher.deadline())
        wait = None if due == math.inf else max(0.0, due - time.monotonic())
        try:
            event: ev.Event = await asyncio.wait_for(self.inbox.get(), wait)
        except TimeoutError:
            event = ev.Tick()
        while True:
            self._carry_out(self.machine.handle(event, time.monotonic()))
            if self.inbox.empty() or self.outcome is not None:
                break
            event = self.inbox.get_nowait()
        if self.machine.deadline <= time.monotonic():
            self._carry_out(self.machine.handle(ev.Tick(), time.monotonic()))
        self._request_chunks()

    def _carry_out(self, actions: list[act.Action]) -> None:
        for action in actions:
            _ACTIONS[type(action)](self, action)

    def _spawn(self, coroutine: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(coroutine)
        self._background.add(task)
        task.add_done_callback(self._reap)
        return task

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Stop after an error of a thread or task, and report it here and to the controller."""
        self._end(reason_of(error), final=False)
        self.outbox.put_nowait(Leave(told_outside(reason_of(error), self.options)))
        self.inbox.put_nowait(ev.Tick())

    def _end(self, reason: str, final: bool, *, left: bool = False, refusal: str = "") -> None:
        """End the run; `reason` may be the controller's words, or quote them."""
        self.outcome = Outcome(printable(reason, REASON), final, left, refusal)

    # The connection

    async def _read(self) -> None:
        connects = self.connection.num_connects
        while batch := await self.connection.receive_many():
            if self.connection.num_connects != connects:
                connects = self.connection.num_connects
                self.fetcher.forget_requests()
            for frames in batch:
                try:
                    self._receive(*decode_from_controller(frames))
                except WireError as error:
                    self._lose(error)
            self._request_chunks()

    def _lose(self, error: WireError) -> None:
        """Drop a malformed message; that is reported once."""
        if not self._num_lost:
            self.say(f"a message from the controller is passed over: {printable(str(error))}")
        self._num_lost += 1

    def _receive(self, message: Message, raw: Buffer | None) -> None:
        if isinstance(message, Chunk):
            assert raw is not None
            if num_bytes := self.fetcher.chunk(message, raw, time.monotonic()):
                self.inbox.put_nowait(ev.Fetched(message.digest, num_bytes))
        elif isinstance(message, Gone):
            if self.fetcher.gone(message, time.monotonic()):
                self.inbox.put_nowait(ev.FetchFailed(message.digest))
        elif isinstance(message, Elsewhere):
            self.roaming.also(message.uris)
        else:
            if isinstance(message, Welcome | Pulse):
                require_intervals(message.heartbeat, message.lease)
            if isinstance(message, Welcome):
                require_size("manifest", message.manifest, MANIFEST_LIMIT)
            if isinstance(message, Assign | Newer) and raw is not None:
                self.fetcher.inline(inlined(message.news.updates), raw)
            self.inbox.put_nowait(ev.Received(message))

    async def _write(self) -> None:
        while True:
            await self.connection.send(encode(await self.outbox.get()))
            self.outbox.task_done()

    async def _send_chunks(self, result: PayloadResult, data: memoryview, offset: int) -> None:
        for start, chunk in chunks(data, start=offset):
            await self.connection.send(encode(PayloadChunk(result.assignment, start), chunk))

    def _request_chunks(self) -> None:
        for request in self.fetcher.requests(time.monotonic()):
            self.outbox.put_nowait(request)
        for found in self.fetcher.completed():
            self.inbox.put_nowait(ev.Fetched(*found))

    # Actions, one method each

    def _offer(self, action: act.Offer) -> None:
        result = action.result
        if isinstance(result, PayloadResult) and result.payload.num_bytes <= INLINE_BYTES:
            data = self.executor.payloads[result.assignment].data
            self._spawn(self.connection.send(encode(Offer(result), data)))  # bulk: others overtake it
        else:
            self.outbox.put_nowait(Offer(result))

    def _upload(self, action: act.Upload) -> None:
        """Replace the one uploader by another: its earlier work is void."""
        self._cancel_upload(act.CancelUpload())
        data = self.executor.payloads[action.result.assignment].data
        self._uploader = self._spawn(self._send_chunks(action.result, data, action.offset))

    def _cancel_upload(self, action: act.CancelUpload) -> None:
        if self._uploader is not None:
            self._uploader.cancel()
            self._uploader = None

    def _fetch(self, action: act.Fetch) -> None:
        if self.fetcher.start(action.blob, action.snapshot):
            self.inbox.put_nowait(ev.Fetched(action.blob.digest, 0))

    async def _set_up(self, action: act.Prepare) -> None:
        self._limited.enter_context(memory_net(self.options.means))
        welcome = self.machine.contact.welcome
        assert welcome is not None
        threads = self._wait_for_training, partial(self._loop.run_in_executor, self.pools.updating)
        shell = Shell(self.options, self.build, self.fetcher, self._get, *threads, self.say)
        ready = await self._prepare(shell, action.settings, welcome, self.machine.profile)
        self._built, self.kept = ready.executor, ready.kept
        self._built.encode_on(self.pools.encoding)
        self.inbox.put_nowait(ready.event)

    async def _wait_for_training(self, work: Callable[[], Any]) -> Any:
        return await self._loop.run_in_executor(self.pools.training, work)

    async def _get(self, blob: Blob) -> None:
        """Fetch outside a task, before the machine knows what to fetch."""
        while not self.fetcher.start(blob):
            self._request_chunks()
            await asyncio.sleep(0.02)

    def _apply_updates(self, action: act.ApplyUpdates) -> None:
        fetched = self.fetcher.take_all(action.news.updates)
        if fetched is None:
            self.inbox.put_nowait(ev.Updated(-1))  # a snapshot will be requested
            return
        self._spawn(self._update(action.news, fetched))

    async def _update(self, news: News, fetched: Callable[[Blob], Buffer]) -> None:
        version = await self._loop.run_in_executor(self.pools.updating, self.executor.update, news, fetched)
        self.inbox.put_nowait(ev.Updated(version))
        if self.kept is not None:
            await self._loop.run_in_executor(self.pools.updating, self.kept.followed, news, version)

    def _start_task(self, action: act.StartTask) -> None:
        task, run = action.task, RUN[type(action.task)]
        fetched = self.fetcher.take_all(task.undoes)
        if fetched is None:  # it names a blob that can never be available
            self.inbox.put_nowait(ev.TaskFailed(task.id))
            return
        self.executor.cut.clear()
        self.gauges.step = 0

        def on_step(step: int) -> None:
            self.gauges.step = step
            if step == action.ask_at:
                self._loop.call_soon_threadsafe(self.inbox.put_nowait, ev.Nearly(task.id))

        def carry_out() -> Made:
            if self.kept is not None:
                self.kept.count(task)
            made = run(self.executor, task, fetched, on_step)
            skipped, why = self.executor.newly_skipped()
            if skipped:
                text = f"task {task.id}: {skipped} of {task.steps} steps skipped, {why}"
                self._loop.call_soon_threadsafe(self.say, text)
            return made

        self._spawn(self._finish(task.id, carry_out))
        if self.kept is not None:
            self._spawn(self._wait_for_training(self.kept.moments_if_due))

    async def _finish(self, assignment: int, work: Callable[[], Made]) -> None:
        """Carry a task out, and report its end; before that its last step, if its update is encoded meanwhile."""
        try:
            made = await self._wait_for_training(work)
        except (ProblemError, LimitReachedError) as error:
            self.say(f"task {assignment}: {error}")
            if isinstance(error, LimitReachedError):
                self.leave(str(error))
            self.inbox.put_nowait(ev.TaskFailed(assignment, told_outside(str(error), self.options)))
            return
        if not made.done():
            self.inbox.put_nowait(ev.Trained(assignment))
        if (result := await asyncio.wrap_future(made)) is None:
            self.inbox.put_nowait(ev.TaskFailed(assignment))
        else:
            self.inbox.put_nowait(ev.TaskDone(vouched(result, self.machine.contact.welcome, self.options)))

    async def _settle(self, action: act.Settle) -> None:
        settle = partial(self.executor.settle, action.assignment, action.accepted)
        await asyncio.wrap_future(await self._wait_for_training(settle))

    def _check_proof(self, action: act.CheckProof) -> None:  # at once: the next message may end the run
        found = ev.ProofChecked(action.told.assignment, action.told.version, self.executor.prove(action.told))
        self._carry_out(self.machine.handle(found, time.monotonic()))


_ACTIONS: dict[type[act.Action], Callable[[WorkerRuntime, Any], object]] = {
    act.Send: lambda shell, action: shell.outbox.put_nowait(action.message),
    act.Fetch: WorkerRuntime._fetch,
    act.Forget: lambda shell, action: shell.fetcher.forget(action.digests),
    act.Prepare: lambda shell, action: shell._spawn(shell._set_up(action)),
    act.ApplyUpdates: WorkerRuntime._apply_updates,
    act.StartTask: WorkerRuntime._start_task,
    act.CutShort: lambda shell, action: shell.executor.cut.set(),
    act.Offer: WorkerRuntime._offer,
    act.Upload: WorkerRuntime._upload,
    act.CancelUpload: WorkerRuntime._cancel_upload,
    act.Settle: lambda shell, action: shell._spawn(shell._settle(action)),
    act.CheckProof: WorkerRuntime._check_proof,
    act.Say: lambda shell, action: shell.say(action.text),
    act.Quit: lambda shell, end: shell._end(end.reason, end.final, left=end.left, refusal=end.refusal),
}
