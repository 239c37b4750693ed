"""The standby that follows this controller, acknowledgements that wait for it, and the controller's epoch."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from barnraise.controller.shell.durability import Durability
from barnraise.controller.shell.enrolment import UnansweredError, refusal_of
from barnraise.controller.shell.role_handlers import HandlerContext, RoleHandler
from barnraise.controller.state.events import Told
from barnraise.core.errors import InviteError, StorageError, SupersededError
from barnraise.ledger import notes
from barnraise.ledger.copying import CopiedRow, RowReader
from barnraise.transport.base import Peer
from barnraise.transport.seals import sealed, supersedes
from barnraise.wire.following import (
    ROWS_BYTES,
    Copy,
    Follow,
    Followed,
    FromStandby,
    Inventory,
    Rows,
    decode_from_standby,
    encode_rows,
)
from barnraise.wire.frames import Buffer
from barnraise.wire.messages import (
    EVERYTHING,
    Ack,
    Assign,
    Chunk,
    Elsewhere,
    Fetch,
    Gone,
    Message,
    SendPayload,
    Stop,
    Term,
    Welcome,
)

BEAT = 0.25
"""Seconds after which a standby is answered though there are no rows."""

FAREWELL = 5.0
"""Seconds that a standby has, when the controller ends, to fetch the rest."""

UNCOUNTED = (
    "the run keeps a budget of differential privacy, and a standby could take over without the last assignments: set "
    "controller.durability to standby and resume, so that tasks wait for it"
)
"""Reason for which a standby is refused where tasks do not wait for it."""

MOST_WAITING = 256
"""Messages of the standby that wait; more are lost, and sent again."""

MOST_STRANGERS = 8
"""Proven greetings of strangers that wait: they have places of their own, behind the standby's messages."""

Result = TypeVar("Result")


@dataclass
class Following:
    """A standby: rows up to `after` are durable there, up to `safe` for a takeover; `asks`: it waits for more."""

    peer: Peer
    name: str
    uri: str
    after: int
    heard_at: float
    safe: int = 0
    asks: bool = False
    answered_at: float = 0.0


@dataclass(frozen=True)
class Lag:
    """The lag of a standby: rows, and seconds since it had all."""

    name: str
    rows: int
    seconds: float


class Standbys(RoleHandler):
    """The controller's side of at most one standby, for the event loop's thread; files have their own thread."""

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        machine, self._nodes = context.machine, context.peers
        self._transmit, self._tell, self._warn = context.transmit, context.tell, context.warn
        self._ledger, self._enrolment, self._how = context.ledger, context.enrolment, context.replication
        self._run = machine.settings.run.name
        self.term: Term = sealed(self._enrolment.keys, self._run, machine.epoch, self._how.by)
        last = self._ledger.newest(notes.StandbyFollows)
        if last is not None and last.key:
            self.keys[last.key] = last.name
        self.following: Following | None = None
        self._held: dict[tuple[str, int], tuple[int, Ack | Assign]] = {}
        self._state, began = machine.state, time.monotonic()
        self.durability = Durability(self._how.wait, self._how.patience, began, self._living(machine.state.nodes))
        self._all_at = time.monotonic()
        self._changed = asyncio.Event()
        self._reader: RowReader | None = None
        self._thread = ThreadPoolExecutor(1, "standby")
        self._said: set[str] = set()
        self._inbox: deque[tuple[Peer, FromStandby]] = deque()
        self._strangers: deque[tuple[Peer, FromStandby]] = deque()
        self._came = asyncio.Event()

    @property
    def elsewhere(self) -> Elsewhere | None:
        """Return where workers are to look if this controller is lost."""
        return Elsewhere((self.following.uri,)) if self.following else None

    @property
    def lag(self) -> Lag | None:
        """Return the standby's lag; None without one."""
        if self.following is None:
            return None
        rows = max(0, self._ledger.last_id - self.following.after)
        return Lag(self.following.name, rows, time.monotonic() - self._all_at if rows else 0.0)

    @property
    def held(self) -> int:
        """Return the number of acknowledgements that wait for a standby."""
        return len(self._held)

    def require_newest(self, term: Term) -> None:
        """Raise SupersededError when `term` is of a controller that has taken over."""
        if supersedes(term, self.term, self._enrolment.keys, self._run):
            raise SupersededError(
                f"another controller of run '{self._run}' has taken over (epoch {term.epoch}, this one's is "
                f"{self.term.epoch}): this one stops, and its folder stays as it is. Workers continue with the other "
                "one, whose folder is the run from now on; to have a standby again, start one here in a new folder "
                "with an invite from there (barnraise invite RUN_DIR --standby)"
            )

    def outgoing(self, node: str, message: Message) -> list[Message]:
        """Return the messages for a node now; a welcome is sealed, a waiting Ack becomes a `SendPayload`."""
        if isinstance(message, Welcome):
            welcome = msgspec.structs.replace(message, term=self.term)
            return [welcome] if self.elsewhere is None else [welcome, self.elsewhere]
        if isinstance(message, Assign) and self._state.progress.spending is not None:
            return [] if self._hold(node, message.task.id, message) else [message]
        if not isinstance(message, Ack) or not self._hold(node, message.assignment, message):
            return [message]
        return [SendPayload(message.assignment, EVERYTHING)] if message.accepted else []

    def _hold(self, node: str, assignment: int, message: Ack | Assign) -> bool:
        """Return whether a message has to wait, until a standby could take over with its rows.

        Acknowledgements do, and tasks that spend a budget of differential privacy: the standby has counted them then.
        """
        if not self._how.wait or (self.following is not None and self.following.safe >= self._ledger.last_id):
            return False
        if self.durability.lowered:
            self.durability.unprotected += _accepted(message)
            return False
        self._held[node, assignment] = self._ledger.last_id, message
        if self.following is None:
            self._say("acknowledgements wait: controller.durability is standby, but no standby follows the run")
        return True

    def committed(self) -> None:
        """Handle new rows on the ledger."""
        self._changed.set()

    def receive(self, peer: Peer, frames: Sequence[Buffer]) -> None:
        """Receive frames of a key that follows, or did. Raises WireError."""
        message = decode_from_standby(frames)[0]
        if len(self._inbox) < MOST_WAITING:
            self._inbox.append((peer, message))
            self._came.set()

    def greet(self, peer: Peer, message: Follow) -> None:
        """Handle a greeting of an applicant.

        Excess proven greetings are lost: their sender asks again. Raises SupersededError when it is of a controller
        that has taken over, which needs no invite.
        """
        self.require_newest(message.term)
        try:
            self._enrolment.prove(message, peer.key, self.context.address(peer))
        except UnansweredError:
            return
        except (InviteError, StorageError) as error:
            self._transmit(peer, refusal_of(error), None)
            return
        if len(self._strangers) < MOST_STRANGERS:
            self._strangers.append((peer, message))
            self._came.set()

    async def work(self) -> None:
        """Answer standbys, and send rows; raises SupersededError, other errors are reported."""
        tasks = [asyncio.ensure_future(work) for work in (self._keep_sending(), self._keep_reading())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()

    async def _keep_reading(self) -> None:
        while True:
            while not (self._inbox or self._strangers):
                self._came.clear()
                await self._came.wait()
            peer, message = (self._inbox or self._strangers).popleft()
            try:
                await self._receive(peer, message)
            except SupersededError:
                raise
            except Exception as error:
                self._failed(error)
                if isinstance(message, Follow):
                    self._transmit(
                        peer, Stop("no standby can follow this controller now: its host has been told why"), None
                    )

    async def _receive(self, peer: Peer, message: FromStandby) -> None:
        if isinstance(message, Follow):
            await self._follow(peer, message)
            return
        following = self.following
        if following is None or following.peer != peer:
            return  # it will greet: there is no answer
        following.heard_at = time.monotonic()
        if isinstance(message, Copy):
            following.after, following.asks = min(message.after, self._ledger.last_id), True
            following.safe = min(message.safe, following.after)
            if self.durability.heard(self._living(self._state.nodes), complete=following.safe > 0):
                self._note(notes.DurabilityRestored(following.name))
            self._release(following.safe)
            self._changed.set()
        elif isinstance(message, Fetch):
            await self._serve(peer, message)
        else:
            assert self._how.originals is not None
            self._transmit(peer, Inventory(await self._in_thread(self._how.originals.inventory)), None)

    async def _keep_sending(self) -> None:
        """Send rows as they come; and check for silence."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), BEAT)
            self._changed.clear()
            try:
                await self._answer()
            except Exception as error:
                self._failed(error)
                await asyncio.sleep(BEAT)
                if (following := self.following) is not None:  # it must not take this for silence
                    self._transmit(following.peer, Rows(following.after, self._ledger.last_id), encode_rows(()))

    async def finish(self) -> None:
        """Finish: give a standby some time to fetch the rest, so that it knows of the end."""
        deadline = time.monotonic() + FAREWELL
        while self.following is not None and (lag := self.lag) is not None and lag.rows:
            if time.monotonic() > deadline:
                self._warn(f"standby '{lag.name}' has not taken the last {lag.rows} rows")
                return
            self._changed.set()
            await asyncio.sleep(0.01)

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    async def _follow(self, peer: Peer, message: Follow) -> None:
        self.require_newest(message.term)
        refusal = self._enrolment.refuse_standby(message, peer.key, known=peer.key in self.keys)
        if refusal is None and self._how.originals is None:
            refusal = Stop("this controller's run has local workers: only one that `barnraise serve` began is followed")
        if refusal is None and self._state.progress.spending is not None and not self._how.wait:
            refusal = Stop(UNCOUNTED)
        other = self.following
        if refusal is None and other is not None and other.peer.key != peer.key:
            refusal = Stop(
                f"standby '{other.name}' follows already, and a run has at most one standby: stop that one first"
            )
        if refusal is None and await self._in_thread(lambda: self._rows().tail(message.after)) != message.tail:
            refusal = Stop(
                f"the copy in your folder ends with a row {message.after} that this ledger does not have: it is of "
                "another run, is damaged, or was continued by itself. Follow with a new folder (--dir)"
            )
        if refusal is not None:
            self._transmit(peer, refusal, None)
            return
        new = other is None or other.uri != message.uri
        self.keys.clear()
        self.keys[peer.key] = message.name
        self.following = Following(peer, message.name, message.uri, message.after, time.monotonic())
        self._transmit(peer, Followed(self._run, self.term, self._how.lease), None)
        if new:
            self._said.clear()
            self._note(notes.StandbyFollows(message.name, message.uri, peer.key))
            assert self.elsewhere is not None
            for node in self._nodes:
                self._tell(node, self.elsewhere)

    def _living(self, nodes: Iterable[str]) -> list[str]:
        known = self._state.nodes
        return [node for node in nodes if node in known and known[node].live]

    def _lose_patience(self, now: float) -> None:
        """Acknowledge without a standby, where none has come for long."""
        durability, here = self.durability, self._living(self._nodes)
        if not durability.lower(now, here):
            if durability.over(now):
                self._say(
                    f"acknowledgements wait though no standby has followed for {self._how.patience:g} s: fewer than "
                    f"half of the {len(durability.missed)} workers that were there are here, so a standby that is cut "
                    "off may have taken over with the others. If none has, set controller.durability to local and "
                    "resume"
                )
            return
        self._note(notes.DurabilityLowered(self._how.patience))
        durability.unprotected += sum(_accepted(message) for _, message in self._held.values())
        self._release(self._ledger.last_id)

    async def _answer(self) -> None:
        following, now = self.following, time.monotonic()
        if following is None:
            self._lose_patience(now)
            return
        if now - following.heard_at > max(self._how.lease, 4 * BEAT):
            self.following = None
            self.durability.alone(now)
            self._note(notes.StandbyLost(following.name, f"silent for {now - following.heard_at:.1f} s"))
            return
        newest = self._ledger.last_id
        if following.after >= newest:
            self._all_at = now
        if not following.asks or (following.after >= newest and now - following.answered_at < BEAT):
            return
        following.asks, following.answered_at = False, now
        rows = await self._in_thread(lambda: self._next(following.after)) if following.after < newest else ()
        self._transmit(following.peer, Rows(following.after, newest), encode_rows(rows))

    def _next(self, after: int) -> tuple[CopiedRow, ...]:
        rows = self._rows().after(after, ROWS_BYTES)
        assert self._how.originals is not None
        self._how.originals.named(rows)
        return rows

    def _rows(self) -> RowReader:
        if self._reader is None:
            self._reader = RowReader(self._ledger.path)
        return self._reader

    async def _serve(self, peer: Peer, message: Fetch) -> None:
        assert self._how.originals is not None
        originals = self._how.originals
        chunk = await self._in_thread(lambda: originals.read(message.digest, message.offset, message.num_bytes))
        if chunk:
            self._transmit(peer, Chunk(message.digest, message.offset), chunk)
        else:
            self._transmit(peer, Gone(message.digest), None)

    def _release(self, safe: int) -> None:
        ready = [key for key, (row_id, _) in self._held.items() if row_id <= safe]
        for node, assignment in ready:
            message = self._held.pop((node, assignment))[1]
            if isinstance(message, Ack) or assignment in self._state.works:  # else another node's by now
                self._tell(node, message)

    def _note(self, note: notes.Note) -> None:
        self.context.post(Told(note))

    def _failed(self, error: Exception) -> None:
        self._say(f"a standby cannot be served: {type(error).__name__}: {error}")

    def _say(self, text: str) -> None:
        """Warn once of each condition, until a standby follows again."""
        if text not in self._said:
            self._said.add(text)
            self._warn(text)

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _accepted(message: Ack | Assign) -> bool:
    """Return whether a message acknowledges an accepted contribution."""
    return isinstance(message, Ack) and message.accepted
