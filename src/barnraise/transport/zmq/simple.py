"""A worker's connection for scripts: one question, one answer, no event loop; for any ZMQ controller.

    client = SimpleClient(invite.uri, invite.server_key, Keys.generate())
    client.enrol(invite, "my-script")
    welcome = client.hello(NodeProfile(100.0))
    task = client.next()
    model = client.fetch(task.updates[0].blob, limit=1 << 30)
    ack = client.offer(task, payload, steps=task.local_steps, loss=1.0, seconds=0.5)
    client.leave("done")

The messages, keys and guarantees are those of every worker: an offer is acknowledged once it is durable, and counts
once however often it is made. A socket that got no answer in time is replaced by a new one. One thread only.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import TypeVar

import zmq

from barnraise.core.errors import AddressError, InviteError, RunFailedError, WireError
from barnraise.core.types import AnyTask, Blob, Contribution, NodeProfile, Train, name_of
from barnraise.transport.base import parse
from barnraise.transport.identity import Keys
from barnraise.transport.invite import Invite, proof
from barnraise.transport.zmq.options import endpoint, new_context, new_dealer
from barnraise.trust.signatures import RunId, signed
from barnraise.wire.blobs import chunks
from barnraise.wire.downloads import Download, SnapshotDownload
from barnraise.wire.frames import Buffer, decode_from_controller, encode
from barnraise.wire.messages import (
    INLINE_BYTES,
    PROTOCOL_VERSION,
    Ack,
    Assign,
    Chunk,
    Enrol,
    Enrolled,
    Fetch,
    FromController,
    Gone,
    Heartbeat,
    Hello,
    Identify,
    Leave,
    Message,
    Offer,
    PayloadChunk,
    Pulse,
    RequestTask,
    SendPayload,
    Stop,
    Welcome,
)

HEARTBEAT_SECONDS = 0.3
"""Seconds between heartbeats of a client that only waits."""

Answer = tuple[FromController, memoryview | None]
M = TypeVar("M", bound=Message)


class SimpleClient:
    """A REQ socket and the few messages a worker needs.

    `seconds` is the time limit of any answer.
    """

    def __init__(self, uri: str, server_key: str, keys: Keys, *, seconds: float = 15.0) -> None:
        self.address = parse(uri.split()[0])
        if self.address.scheme != "zmq":
            raise AddressError(f"a simple client speaks ZMQ, but the controller's address is {self.address}")
        self.server_key, self.keys, self.seconds = server_key, keys, seconds
        self.welcome: Welcome | None = None
        self._profile = NodeProfile()
        self._session, self._greeting = secrets.randbits(53), 0
        self._unread: list[Answer] = []
        self._spoke = 0.0
        self._context = new_context(1)
        self._socket = self._dial()

    def _dial(self) -> zmq.Socket[bytes]:
        ipv6 = ":" in self.address.host
        socket = new_dealer(self._context, self.keys, self.server_key, ipv6=ipv6, kind=zmq.REQ)
        socket.connect(endpoint(self.address.host, self.address.port))
        return socket

    def __enter__(self) -> SimpleClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket and its context."""
        self._socket.close(linger=0)
        self._context.term()

    # One question, one answer

    def ask(self, message: Message | None = None, raw: Buffer | None = None, *, wait: bool = True) -> Answer | None:
        """Send a message (or none), and return the answer: the next message for this client, None when there is none.

        AddressError when the controller does not answer in time; the next call dials again.
        """
        frames: list[Buffer] = encode(message, raw) if message is not None else [b""]
        self._socket.send_multipart(frames if wait or raw is not None else [*frames, b""])
        if message is not None:
            self._spoke = time.monotonic()
        if not self._socket.poll(round(self.seconds * 1000)):
            self._socket.close(linger=0)
            self._socket = self._dial()
            why = f"no answer from {self.address} within {self.seconds:g} s"
            raise AddressError(f"{why}: check that the controller runs there")
        answer = self._socket.recv_multipart()
        return None if answer == [b""] else decode_from_controller(answer)

    def _tell(self, message: Message, raw: Buffer | None = None) -> None:
        """Send a message that needs no answer; an answer that comes all the same is kept."""
        answer = self.ask(message, raw, wait=False)
        if answer is not None:
            self._unread.append(answer)

    def expect(self, kind: type[M], *others: type[Message]) -> tuple[M | Message, memoryview | None]:
        """Return the next message of one of these kinds; RunFailedError when the controller sends Stop instead."""
        deadline = time.monotonic() + self.seconds
        while time.monotonic() < deadline:
            for index, answer in enumerate(self._unread):
                if isinstance(answer[0], (kind, *others)):
                    return self._unread.pop(index)
                if isinstance(answer[0], Stop):
                    raise RunFailedError(answer[0].reason)
            silent = time.monotonic() - self._spoke > HEARTBEAT_SECONDS and self.welcome is not None
            found = self.ask(Heartbeat(time.monotonic()) if silent else None)
            if found is not None and not isinstance(found[0], Pulse):
                self._unread.append(found)
        raise AddressError(f"no {kind.__name__} from the controller within {self.seconds:g} s")

    # Messages of a worker

    def enrol(self, invite: Invite, name: str) -> str:
        """Become a node of the run, and return the name by which the key is known from now on.

        InviteError when that is refused.
        """
        nonce = secrets.token_hex(32)
        signer = self.keys.signer.public
        mark = proof(invite.secret, self.server_key, self.keys.public, name, nonce, signer)
        self._tell(Enrol(PROTOCOL_VERSION, invite.token, name, nonce, mark, signer))
        answer, _ = self.expect(Enrolled, Stop)
        if isinstance(answer, Stop):
            raise InviteError(answer.reason)
        assert isinstance(answer, Enrolled)
        return answer.node

    def hello(self, profile: NodeProfile, *, have: int = -1, pending: tuple[int, ...] = ()) -> Welcome:
        """Begin a session, with version `have` and unanswered contributions (`pending`)."""
        self._profile, self._greeting = profile, self._greeting + 1
        who = self._session, self._greeting, profile
        self._tell(Hello(PROTOCOL_VERSION, *who, have, pending, kinds=(name_of(Train),)))
        answer, _ = self.expect(Welcome)
        assert isinstance(answer, Welcome)
        self.welcome = answer
        return answer

    def next(self, have: int = -1) -> AnyTask:
        """Return a task, waiting up to `seconds`."""
        self._tell(RequestTask(have))
        answer, _ = self.expect(Assign)
        assert isinstance(answer, Assign)
        return answer.task

    def fetch(self, blob: Blob, *, limit: int, snapshot: bool = False) -> bytes:
        """Return the bytes of a blob of at most `limit` bytes, checked by hash.

        WireError when it is too large or no longer kept.
        """
        download = (SnapshotDownload if snapshot else Download)(blob, limit=limit, window=1)
        while not download.complete:
            ((offset, size),) = download.requests(time.monotonic())
            self._tell(Fetch(blob.digest, offset, size))
            answer, raw = self.expect(Chunk, Gone)
            if isinstance(answer, Gone):
                raise WireError(f"blob {blob.digest[:16]}... is no longer kept: ask for a newer task")
            assert isinstance(answer, Chunk)
            assert raw is not None
            if answer.digest == blob.digest:
                download.add(answer.offset, raw, time.monotonic())
        return bytes(download.payload)

    def offer(self, task: Train, payload: Buffer, *, steps: int, loss: float, seconds: float) -> Ack:
        """Submit the work on `task`, in the codec of its rung, and return its durable verdict.

        It is repeated after a lost connection.
        """
        blob = Blob(hashlib.sha256(payload).hexdigest(), len(payload))
        made = Contribution.of(task, blob, codec=task.rung, steps=steps, loss=loss, seconds=seconds)
        assert self.welcome is not None, "hello comes first"
        run = RunId(self.welcome.run, self.server_key)
        offered = signed(run, self.welcome.node, made, self.keys.signer)
        for attempt in range(3):
            try:
                if attempt:
                    self.hello(self._profile, have=task.base, pending=(task.id,))
                if not any(isinstance(message, Ack) for message, _ in self._unread):
                    self._tell(Offer(offered), payload if blob.num_bytes <= INLINE_BYTES else None)
                answer, _ = self.expect(Ack, SendPayload, Identify)
                if isinstance(answer, SendPayload):
                    for offset, chunk in chunks(payload, start=answer.offset):
                        self._tell(PayloadChunk(task.id, offset), chunk)
                    answer, _ = self.expect(Ack, Identify)
                if isinstance(answer, Ack) and answer.assignment == task.id:
                    return answer
            except AddressError:
                if attempt == 2:
                    raise
        raise AddressError(f"the work on task {task.id} was offered three times, and has no answer")

    def leave(self, reason: str = "") -> None:
        """Leave the run, with a reason."""
        self._tell(Leave(reason))
