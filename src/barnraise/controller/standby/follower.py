"""A standby's end of the wire: it pulls rows, payloads and files of a controller into its own run directory.

Rows and payloads go into the copy of the ledger (`ledger.copying`), files to the same paths as in the controller's
folder; a checkpoint is put in its place once the copy has the rows that it depends on. Everything is checked: rows must
be of the ledger's schema and follow each other, bytes must hash to their names, files go where a run has such files.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from barnraise.controller.standby.incoming_files import IncomingFiles
from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import InviteError, WireError
from barnraise.core.text import printable
from barnraise.core.types import Blob
from barnraise.ledger import notes
from barnraise.ledger.copying import DecodedRow, LedgerCopy, RowReader, brought, is_note, understood
from barnraise.transport import Invite, Keys, proof
from barnraise.transport.base import Connection
from barnraise.wire.downloads import Download, WrongDigestError
from barnraise.wire.following import (
    CopiedFile,
    Copy,
    Follow,
    Followed,
    Inventory,
    Rows,
    Survey,
    decode_rows,
    decode_to_standby,
)
from barnraise.wire.frames import Buffer, encode
from barnraise.wire.messages import LATER, PROTOCOL_VERSION, Chunk, Fetch, Gone, Message, Stop, Term

ANSWER = 1.0
"""Seconds after which an unanswered question is repeated, after a new greeting."""

SURVEY = 5.0
"""Seconds between two surveys of the files."""

AT_ONCE, WINDOW = 4, 4
"""Files and payloads that are fetched at a time, and chunks that each of them requests: as many as a peer's queue
holds."""

PATIENCE = 3.0
"""Seconds without a chunk after which it is requested again."""

PIECE_BYTES = 64 << 20
"""Bytes of payloads from which rows are put on disk, before those of the next ones are fetched."""

TICK = 0.1

MOST_BYTES = 1 << 36
"""Bytes of a file or payload that are accepted, at most."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Applicant:
    """The applicant for a standby: its invite, keys and name; workers will find it at `uri`."""

    invite: Invite
    keys: Keys
    name: str
    uri: str

    def greeting(self, term: Term, after: int = 0, tail: str | None = None) -> list[Buffer]:
        """Return the frames of a `Follow`, with a fresh proof that its sender holds the invite."""
        invite, nonce = self.invite, secrets.token_hex(32)
        mark = proof(invite.secret, invite.server_key, self.keys.public, self.name, nonce)
        proven = {"token": invite.token, "name": self.name, "nonce": nonce, "proof": mark}
        return encode(Follow(PROTOCOL_VERSION, **proven, uri=self.uri, term=term, after=after, tail=tail))


class _Fetching:
    """A download of bytes that is under way."""

    def __init__(self, download: Download) -> None:
        self.download = download
        self.arrived: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self.moved = asyncio.Event()

    def take(self, message: Chunk | Gone, raw: memoryview | None) -> None:
        """Accept a piece, or the answer that there is none.

        Bytes that do not hash to their name count as none.
        """
        if self.arrived.done():
            return
        try:
            if isinstance(message, Gone):
                self.arrived.set_result(None)
            elif raw is not None and self.download.add(message.offset, raw, time.monotonic()):
                self.arrived.set_result(bytes(self.download.payload))
        except WrongDigestError:
            self.arrived.set_result(None)
        except WireError:
            return  # a piece that came before, or late
        self.moved.set()

    def give_up(self) -> None:
        """Release the callers that wait for it."""
        if not self.arrived.done():
            self.arrived.set_exception(TimeoutError())
            self.arrived.exception()


def pieces(rows: Sequence[DecodedRow], num_bytes: int) -> Iterator[Sequence[DecodedRow]]:
    """Cut the rows, in order, so that each piece's payloads have at most `num_bytes` bytes, or are one."""
    begin, size = 0, 0
    for end, row in enumerate(rows):
        judged = brought(row)
        new = judged.claim.num_bytes if judged is not None else 0
        if new and size and size + new > num_bytes:
            yield rows[begin:end]
            begin, size = end, 0
        size += new
    if rows:
        yield rows[begin:]


class Follower:
    """Follows one controller until its run is over, and dials it for as long as it is silent.

    One event loop, one thread for the disk.
    """

    def __init__(self, connection: Connection, applicant: Applicant, copy: LedgerCopy, files: IncomingFiles) -> None:
        self._connection, self._applicant = connection, applicant
        self.copy, self.files = copy, files
        self.term, self.lease = Term(), 3.0
        self.newest = 0  # the controller's last row
        self.finished = ""  # why the run is over
        self.in_sync_at = time.monotonic()
        self.silence = 0.0  # seconds for which the controller has not answered
        self._gap = 0  # the last row whose payload was not available
        self._waiting: dict[type[Message], asyncio.Future[tuple[Any, memoryview | None]]] = {}
        self._fetching: dict[str, _Fetching] = {}
        self._unfinished: dict[str, Download] = {}  # cut short by a lost connection
        self._places = asyncio.Semaphore(AT_ONCE)
        self._asking = 0
        self.copied_bytes = 0
        self._thread = ThreadPoolExecutor(1, "copy")
        self._look = asyncio.Event()

    @property
    def complete(self) -> bool:
        """Return whether the copy can be resumed: all files are here, and a checkpoint with the payloads after it."""
        return bool(self.term.epoch) and self.files.complete and self.files.ledger_id >= self._gap

    @property
    def lag(self) -> int:
        """Return the number of rows that the controller has and the copy has not."""
        return max(0, self.newest - self.copy.last_id)

    async def greet(self) -> None:
        """Ask to follow, once.

        Raises InviteError when the controller refuses, TimeoutError when it is silent.
        """
        tail = await self._in_thread(self._tail)
        frames = self._applicant.greeting(self.term, self.copy.last_id, tail)
        answer, _ = await self._ask(frames, Followed)
        if answer.run != self._applicant.invite.run:
            raise InviteError(f"the controller runs '{printable(answer.run)}', but the invite is for another run")
        if answer.term.rank < self.term.rank:
            raise TimeoutError  # an old controller that returned: its successor will end it
        await self._in_thread(lambda: self.copy.follow(answer.term.epoch))
        self.term, self.lease = answer.term, max(answer.lease, ANSWER)

    async def follow(self) -> None:
        """Copy until the run is over (`finished`).

        Raises InviteError, StorageError, WireError.
        """
        reading, files = asyncio.ensure_future(self._read()), asyncio.ensure_future(self._keep_files())
        copying, time_keeping = asyncio.ensure_future(self._keep_copying()), asyncio.ensure_future(self._keep_time())
        tasks = [reading, files, copying, time_keeping]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def check(self) -> None:
        """Check that the copy is unchanged.

        Raises CorruptionError, StorageError.
        """
        await self._in_thread(self.copy.check)

    async def close(self) -> None:
        await self._connection.close()
        self._thread.shutdown(wait=True, cancel_futures=True)
        self.copy.close()

    async def _keep_copying(self) -> None:
        greeted, connects = False, -1
        while not self.finished:
            try:
                if not greeted or self._connection.num_connects != connects:
                    connects = self._connection.num_connects
                    await self.greet()
                    greeted = True
                    self._look.set()
                await self._copy_rows()
            except TimeoutError:
                greeted = False

    async def _copy_rows(self) -> None:
        after = self.copy.last_id
        answer, raw = await self._ask(encode(Copy(after, after if self.complete else 0)), Rows)
        assert raw is not None
        try:
            rows = decode_rows(raw)
        except MALFORMED as error:
            raise WireError(f"rows that cannot be read: {error}") from None
        if answer.after != self.copy.last_id:
            return
        self.newest = answer.newest
        for piece in pieces([understood(row) for row in rows], PIECE_BYTES):
            payloads = await self._payloads(piece)
            await self._in_thread(partial(self.copy.append, piece, payloads))
            for row in piece:
                if is_note(row, notes.Checkpointed):
                    self._look.set()
                elif is_note(row, notes.Finished):
                    self.finished = "the run is over"
        if not self.lag:
            self.in_sync_at = time.monotonic()

    async def _payloads(self, rows: Sequence[DecodedRow]) -> dict[int, bytes]:
        """Fetch the payloads of the contributions among `rows`, as far as the controller still has them."""
        wanted = [(row.id, judged) for row in rows if (judged := brought(row)) is not None]
        blobs = {j.claim.digest: Blob(j.claim.digest, j.claim.num_bytes) for _, j in wanted}
        fetched = dict(zip(blobs, await asyncio.gather(*map(self.fetch, blobs.values())), strict=True))
        payloads = {}
        for row_id, judged in wanted:
            content = fetched[judged.claim.digest]
            if content is None:
                self._gap = max(self._gap, row_id)
            else:
                payloads[judged.assignment] = content
        return payloads

    async def fetch(self, blob: Blob) -> bytes | None:
        """Fetch bytes; None when the controller does not keep them.

        Raises TimeoutError, WireError.
        """
        if blob.digest in self._fetching:  # for another contribution of the same bytes
            return await asyncio.shield(self._fetching[blob.digest].arrived)
        download = self._unfinished.pop(blob.digest, None)
        if download is None:
            download = Download(blob, limit=MOST_BYTES, window=WINDOW, patience=PATIENCE)
        fetching, begun = _Fetching(download), False
        if download.complete:
            return b""
        self._fetching[blob.digest] = fetching
        try:
            async with self._places:
                begun = True
                connects = self._connection.num_connects
                while not fetching.arrived.done():
                    for offset, num_bytes in fetching.download.requests(time.monotonic()):
                        await self._send(encode(Fetch(blob.digest, offset, num_bytes)))
                    await self._until(fetching.moved.wait(), connects)
                    fetching.moved.clear()
            self.copied_bytes += fetching.download.blob.num_bytes
            return fetching.arrived.result()
        finally:
            if begun and not fetching.arrived.done():
                self._keep(download)
            fetching.give_up()
            del self._fetching[blob.digest]

    def _keep(self, download: Download) -> None:
        """Keep a partial download, which continues when the same bytes are requested again."""
        download.forget_requests()
        self._unfinished[download.blob.digest] = download
        while len(self._unfinished) > AT_ONCE:
            del self._unfinished[next(iter(self._unfinished))]

    async def _keep_files(self) -> None:
        """Copy the controller's files, from time to time and whenever there is a new checkpoint."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look.wait(), SURVEY)
            self._look.clear()
            if not self.term.epoch:
                continue
            with contextlib.suppress(TimeoutError):
                answer, _ = await self._ask(encode(Survey()), Inventory)
                await self._take_files(answer.files)

    async def _take_files(self, files: Sequence[CopiedFile]) -> None:
        for file in await self._in_thread(partial(self.files.wanted, files)):
            content = await self.fetch(file.blob)
            if content is not None:
                await self._in_thread(partial(self.files.put, file, content))
        await self._settle()

    async def _settle(self) -> None:
        """Put a complete checkpoint in its place, once the rows that it depends on are here."""
        unsettled = self.files.unsettled
        while unsettled is not None and self.files.unsettled is unsettled:
            if unsettled.ledger_id <= self.copy.last_id and unsettled.version <= self.copy.newest_made():
                await self._in_thread(self.files.settle)
                await self._in_thread(lambda: self.copy.forget_until(self.files.oldest))
                return
            await asyncio.sleep(0.05)

    async def _read(self) -> None:
        while batch := await self._connection.receive_many():
            for frames in batch:
                self._receive(*decode_to_standby(frames))
            await asyncio.sleep(0)

    def _receive(self, message: Message, raw: memoryview | None) -> None:
        if isinstance(message, Stop) and message.refusal != LATER:
            raise InviteError(printable(message.reason, 1000))
        self.silence = 0.0
        if isinstance(message, Stop):  # it is asked again: `_ask` waits in vain meanwhile
            return
        if isinstance(message, Chunk | Gone):
            if (fetching := self._fetching.get(message.digest)) is not None:
                fetching.take(message, raw)
        elif (future := self._waiting.pop(type(message), None)) is not None and not future.done():
            future.set_result((message, raw))

    async def _ask(self, question: Sequence[Buffer], answer: type[Message]) -> tuple[Any, memoryview | None]:
        """Ask once, and wait for that answer.

        Raises TimeoutError.
        """
        future = self._waiting[answer] = asyncio.get_running_loop().create_future()
        connects = self._connection.num_connects
        await self._send(question)
        return await self._until(future, connects)

    async def _send(self, frames: Sequence[Buffer]) -> None:
        await self._until(self._connection.send(frames), -1)

    async def _until(self, awaited: Awaitable[Result], connects: int) -> Result:
        """Wait, for as long as the controller answers, over the connection of the question (-1: any).

        Raises TimeoutError.
        """
        task = asyncio.ensure_future(awaited)
        self._asking += 1
        waited = 0.0
        try:
            while True:
                await asyncio.wait([task], timeout=TICK)
                waited += TICK
                if task.done():
                    return task.result()
                lost = connects >= 0 and self._connection.num_connects != connects
                if lost or min(self.silence, waited) >= ANSWER or waited >= self.lease:
                    raise TimeoutError
        finally:
            self._asking -= 1
            task.cancel()

    async def _keep_time(self) -> None:
        """Count the seconds of silence after a question, tick by tick.

        A process that was stopped for long, or was busy, has not measured silence.
        """
        while not self.finished:
            await asyncio.sleep(TICK)
            self.silence += TICK if self._asking else 0.0

    def _tail(self) -> str | None:
        reader = RowReader(self.copy.path)
        try:
            return reader.tail(self.copy.last_id)
        finally:
            reader.close()

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
