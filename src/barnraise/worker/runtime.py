"""The worker's shell: one connection, one event loop, two threads of work. It decides nothing.

frames, timers, finished work  ->  events  ->  machine  ->  actions  ->  frames, threads, files
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnraise.core.errors import InviteError, WireError
from barnraise.core.types import Blob, Contribution
from barnraise.data.meta import Meta
from barnraise.transport import Invite, Keys, proof
from barnraise.transport.fallback import connection_for
from barnraise.transport.link import Link
from barnraise.transport.shaped import ShapedConnection
from barnraise.wire.blobs import inlined, parts
from barnraise.wire.frames import Buffer, decode_from_controller, encode
from barnraise.wire.manifest import Manifest
from barnraise.wire.messages import (
    PROTOCOL_VERSION,
    Assign,
    Chunk,
    Enrol,
    Enrolled,
    Gone,
    Message,
    Newer,
    Offer,
    Part,
    Stop,
)
from barnraise.worker import actions as act
from barnraise.worker import events as ev
from barnraise.worker.fetching import Fetcher
from barnraise.worker.imports import import_all
from barnraise.worker.machine import Worker
from barnraise.worker.profile import machine_profile

DIVERGED = "training diverged"
"""How the reason begins that a worker gives for its end when its steps are no numbers any more."""

ENROL_INTERVAL = 2.0

LINGER = 1.0
"""Seconds for what is still to be sent when the worker stops."""


@dataclass(frozen=True)
class WorkerOptions:
    """Where the controller is, who this worker is, and what it works with.

    `uri` is one address, or two with a space between, the second for a network that does not let the first through.
    With an `invite` the worker enrols first; without one its key is on the ledger already (a local worker).
    `slowdown` s makes each second of training take s + 1, and `link` is emulated (trials). `cache` holds token shards
    between runs.
    """

    uri: str
    server_key: str
    name: str
    keys: Keys = field(repr=False)
    cache: Path
    invite: Invite | None = field(default=None, repr=False)
    device: str = "cpu"
    threads: int = 1
    slowdown: float = 0.0
    link: Link | None = None


@dataclass(frozen=True)
class Outcome:
    """Why a worker stopped; `final` when nothing is left to do (else the run may go on without it)."""

    reason: str
    final: bool


class WorkerRuntime:
    """Runs one worker until the run is over, it is asked to leave, or it is told to go."""

    def __init__(
        self,
        options: WorkerOptions,
        *,
        on_connected: Callable[[str], None] = lambda node: None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.options, self.on_connected, self.say = options, on_connected, say
        self.machine = Worker(secrets.randbits(53), machine_profile(options.device))
        self.fetcher = Fetcher()
        self.executor: Any = None  # worker.executor.Executor, once the model is known: it imports torch
        self.inbox: asyncio.Queue[ev.Event] = asyncio.Queue()
        self.outbox: asyncio.Queue[Message | Contribution] = asyncio.Queue()
        self.outcome: Outcome | None = None
        self._enrolling: asyncio.Task[None] | None = None
        self._working = False
        self._training = ThreadPoolExecutor(1, "train", initializer=_yield_to_others)
        self._updating = ThreadPoolExecutor(1, "update")
        self._background: set[asyncio.Task[None]] = set()

    def leave(self, reason: str) -> None:
        """Ask the worker to hand in what it has and go. For the event loop's thread (a signal handler)."""
        if not self._working:  # there is nothing to hand in yet
            self.outcome = Outcome(reason, final=True)
        if self._enrolling is not None:
            self._enrolling.cancel()
        if self.executor is not None:
            self.executor.leaving.set()
        self.inbox.put_nowait(ev.LeaveRequested(reason))

    async def run(self) -> Outcome:
        """Work. Raises InviteError when the controller lets this machine in no more, AddressError, and bugs."""
        self._loop = asyncio.get_running_loop()
        self.connection = connection_for(self.options.uri, self.say)
        if self.options.link is not None:
            self.connection = ShapedConnection(self.connection, self.options.link, seed=self.options.name)
        await self.connection.open(self.options.uri, self.options.server_key, self.options.keys)
        try:
            if self.options.invite is not None and self.outcome is None:
                self._enrolling = asyncio.ensure_future(self._enrol(self.options.invite))
                await asyncio.wait([self._enrolling])
                if not self._enrolling.cancelled():
                    self._enrolling.result()
            if self.outcome is None:
                self.on_connected(self.options.name)
                await self._loop.run_in_executor(self._training, import_all)  # before a lease has to be kept
            if self.outcome is None:
                await self._work()
        finally:
            self.machine.quit = True
            for task in self._background:
                task.cancel()
            await self.connection.close(linger=LINGER)
            if self.executor is not None:
                self.executor.cut.set()
            self._training.shutdown(wait=False, cancel_futures=True)
            self._updating.shutdown(wait=False, cancel_futures=True)
        assert self.outcome is not None
        return self.outcome

    async def _enrol(self, invite: Invite) -> None:
        """Repeat the proof until the controller answers."""
        await self.connection.ready(timeout=15.0)
        keys, name = self.options.keys, self.options.name
        nonce = secrets.token_hex(32)
        mark = proof(invite.secret, invite.server_key, keys.public, name, nonce)
        message = encode(Enrol(PROTOCOL_VERSION, invite.token, name, nonce, mark))
        while True:
            await self.connection.send(message)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ENROL_INTERVAL):
                    while frames := await self.connection.receive():
                        answer, _ = decode_from_controller(frames)
                        if isinstance(answer, Enrolled):
                            return
                        if isinstance(answer, Stop):
                            raise InviteError(answer.reason)

    async def _work(self) -> None:
        self._working = True
        self._spawn(self._read())
        sender = self._spawn(self._write())
        self._carry_out(self.machine.start(time.monotonic()))
        while self.outcome is None:
            await self._turn()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.outbox.join(), LINGER)
        sender.cancel()

    async def _turn(self) -> None:
        """Handle what has happened, or a tick when nothing did until the deadline."""
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
        """A thread or task of ours broke: stop, and say why."""
        self.outcome = Outcome(f"{type(error).__name__}: {error}", final=False)
        self.inbox.put_nowait(ev.Tick())

    # The connection

    async def _read(self) -> None:
        connects = self.connection.num_connects
        while batch := await self.connection.receive_many():
            if self.connection.num_connects != connects:
                connects = self.connection.num_connects
                self.fetcher.forget_requests()
            for frames in batch:
                with contextlib.suppress(WireError):
                    self._receive(*decode_from_controller(frames))
            self._request_chunks()

    def _receive(self, message: Message, raw: Buffer | None) -> None:
        if isinstance(message, Chunk):
            assert raw is not None
            if num_bytes := self.fetcher.chunk(message, raw, time.monotonic()):
                self.inbox.put_nowait(ev.Fetched(message.digest, num_bytes))
        elif isinstance(message, Gone):
            if self.fetcher.gone(message):
                self.inbox.put_nowait(ev.FetchFailed(message.digest))
        else:
            if isinstance(message, Assign | Newer) and raw is not None:
                self.fetcher.inline(inlined(message.updates), raw)
            self.inbox.put_nowait(ev.Received(message))

    async def _write(self) -> None:
        while True:
            item = await self.outbox.get()
            if isinstance(item, Contribution):
                self._spawn(self._upload(item))
            else:
                await self.connection.send(encode(item))
            self.outbox.task_done()

    async def _upload(self, contribution: Contribution) -> None:
        payload = self.executor.payloads.get(contribution.assignment)
        if payload is None:
            return
        await self.connection.send(encode(Offer(contribution)))
        for offset, piece in parts(payload.data):
            await self.connection.send(encode(Part(contribution.assignment, offset), piece))

    def _request_chunks(self) -> None:
        for request in self.fetcher.requests(time.monotonic()):
            self.outbox.put_nowait(request)

    # Actions, one method each

    def _send(self, action: act.Send) -> None:
        self.outbox.put_nowait(action.message)

    def _start_upload(self, action: act.Upload) -> None:
        self.outbox.put_nowait(action.contribution)

    def _fetch(self, action: act.Fetch) -> None:
        if self.fetcher.start(action.blob):
            self.inbox.put_nowait(ev.Fetched(action.blob.digest, 0))

    def _prepare(self, action: act.Prepare) -> None:
        self._spawn(self._set_up(action))

    async def _set_up(self, action: act.Prepare) -> None:
        manifest = Manifest.decode(bytes(self.fetcher.take(action.manifest)))
        folder = self.options.cache
        folder.mkdir(parents=True, exist_ok=True)
        self.fetcher.files[manifest.dataset.digest] = folder / "meta.json"
        await self._get(manifest.dataset)
        meta = Meta.read(folder / "meta.json")
        for info in meta.shards:
            self.fetcher.files[info.sha256] = folder / info.name
        self.fetcher.limit = max(self.fetcher.limit, 8 * manifest.num_parameters + 4096)
        self.executor = await self._loop.run_in_executor(self._training, self._build, manifest, action.settings)
        profile = await self._loop.run_in_executor(
            self._training, self.executor.measure, self.machine.profile, action.settings.batch_size
        )
        shards = tuple(Blob(info.sha256, info.bytes) for info in meta.shards)
        self.inbox.put_nowait(ev.Prepared(shards, profile))

    async def _get(self, blob: Blob) -> None:
        """Fetch outside a task, before the machine knows what to fetch."""
        while not self.fetcher.start(blob):
            self._request_chunks()
            await asyncio.sleep(0.02)

    def _build(self, manifest: Manifest, settings: Any) -> Any:
        import torch

        from barnraise.data.shards import Dataset
        from barnraise.models.build import build
        from barnraise.training.local import LocalTrainer
        from barnraise.worker.executor import Executor

        torch.set_num_threads(self.options.threads)
        torch.set_flush_denormal(True)  # fading Adam moments become subnormal, and arithmetic on those 20% slower
        trainer = LocalTrainer(
            build(manifest.model),
            optimizer=settings.inner_optimizer,
            options=settings.inner_options,
            gradient_clip=settings.gradient_clip,
            proximal=settings.proximal,
            precision=settings.precision,
            device=self.options.device,
        )
        dataset = Dataset.open(self.options.cache, partial=True)
        return Executor(trainer, dataset, settings, self.options.slowdown)

    def _apply_updates(self, action: act.ApplyUpdates) -> None:
        blobs = {update.blob.digest: update.blob for update in action.updates}  # equal deltas are one blob
        data = {digest: bytes(self.fetcher.take(blob)) for digest, blob in blobs.items()}

        def apply() -> ev.Event:
            version = self.executor.update(action.updates, lambda blob: data[blob.digest], action.merged, action.share)
            return ev.Updated(version)

        self._run(self._updating, apply)

    def _start_task(self, action: act.StartTask) -> None:
        task = action.task
        self.executor.cut.clear()

        def on_step(step: int) -> None:
            if step == action.ask_at:
                self._loop.call_soon_threadsafe(self.inbox.put_nowait, ev.Nearly(task.id))

        def train() -> ev.Event:
            return ev.TaskDone(task.id, *self.executor.train(task, on_step))

        self._run(self._training, train)

    def _run(self, pool: ThreadPoolExecutor, work: Callable[[], ev.Event]) -> None:
        async def finish() -> None:
            self.inbox.put_nowait(await self._loop.run_in_executor(pool, work))

        self._spawn(finish())

    def _cut_short(self, action: act.CutShort) -> None:
        self.executor.cut.set()

    def _settle(self, action: act.Settle) -> None:
        self._training.submit(self.executor.settle, action.assignment, action.accepted)

    def _quit(self, action: act.Quit) -> None:
        self.outcome = Outcome(action.reason, action.final)


def _yield_to_others() -> None:
    """Mark the thread as batch work: it keeps a core for longer, and heartbeats never wait for it."""
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


_ACTIONS: dict[type[act.Action], Callable[[WorkerRuntime, Any], None]] = {
    act.Send: WorkerRuntime._send,
    act.Fetch: WorkerRuntime._fetch,
    act.Prepare: WorkerRuntime._prepare,
    act.ApplyUpdates: WorkerRuntime._apply_updates,
    act.StartTask: WorkerRuntime._start_task,
    act.CutShort: WorkerRuntime._cut_short,
    act.Upload: WorkerRuntime._start_upload,
    act.Settle: WorkerRuntime._settle,
    act.Quit: WorkerRuntime._quit,
}
