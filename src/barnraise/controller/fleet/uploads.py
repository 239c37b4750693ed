"""The stages of payloads: promised, on their way, or here and inspected.

An offer is judged before its payload travels. Payloads are requested in the order of the offers, one a node at a time,
as far as there is memory; uploads that stop make room for others. A payload that is here is never replaced: the
inspected one is the committed one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from barnraise.controller.state.actions import Discard, Receive, Send
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.core.types import PayloadResult
from barnraise.wire.messages import Identify

PATIENCE = 30.0
"""Seconds without a byte after which an upload is given up; the node is asked to greet, and offers it again."""

PRESSED_PATIENCE = 10.0
"""The same while others wait for the room that it takes."""

SLOWEST_UPLOAD = 10_000.0
"""Bytes a second below which an upload is given up at any time beyond its first PATIENCE, however often some come."""


class Grant(NamedTuple):
    """The facts that weigh a result, fixed when the controller asks for its payload.

    The version that arrivals are compared with, and the trust in its node (`trust.reputation`).
    """

    version: int
    trust: float


class Upload(msgspec.Struct):
    """A payload on its way `since` its request, with `received` bytes.

    It is kept `until` then without further bytes.
    """

    node: str
    offer: PayloadResult
    grant: Grant
    until: float
    received: int = 0
    since: float = 0.0

    @property
    def num_bytes(self) -> int:
        return self.offer.payload.num_bytes


class Uploads(Part):
    """The uploads of all nodes.

    `offered` payloads wait for their request, by node; `uploads` are on their way, `inspecting` are here, with the
    version that was newest when they were complete, both by assignment.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.memory = context.settings.payloads.memory
        self.offered: dict[str, dict[int, PayloadResult]] = {}
        self.ready: dict[str, None] = {}  # nodes of `offered` without an upload
        self.uploads: dict[int, Upload] = {}
        self.heard: dict[int, float] = {}  # time of each upload's last bytes, the longest silent first
        self.sending: dict[str, int] = {}  # node -> its upload
        self.inspecting: dict[int, tuple[Upload, int]] = {}
        self.num_bytes = 0  # size of uploads and inspected payloads, as offered

    def expect(self, node: str, offer: PayloadResult) -> Steps:
        """Request the payload of an acceptable offer, now or in the order of offers.

        The first offer of an assignment counts; when that is repeated, the missing bytes of its payload are requested
        again.
        """
        number = offer.assignment
        if number in self.uploads:
            if self.uploads[number].offer.payload == offer.payload:
                yield Receive(node, self.uploads[number].offer)
        elif number not in self.offered.get(node, {}):
            self.offered.setdefault(node, {})[number] = offer
            if node not in self.sending:
                self.ready[node] = None
            yield from self.look()

    def look(self) -> Steps:
        """Request offered payloads, as far as there is room."""
        room = self.memory - self.num_bytes
        while self.ready:
            node = next(iter(self.ready))
            offers = self.offered[node]
            number, offer = next(iter(offers.items()))
            size = offer.payload.num_bytes
            if size > room:
                break
            room -= size
            del offers[number], self.ready[node]
            if not offers:
                del self.offered[node]
            self.uploads[number] = Upload(node, offer, self.grant(node), self.now + PATIENCE, since=self.now)
            self.heard[number], self.sending[node] = self.now, number
            self.num_bytes += size
            yield Receive(node, offer)

    def grant(self, node: str) -> Grant:
        """Return the facts that weigh a result of the node whose payload is requested now."""
        return Grant(self.context.arrival_version, self.state.nodes[node].tally.reputation.weight())

    def arrived(self, node: str, number: int, received: int) -> Upload | None:
        """Record the bytes of a payload; return the upload when it is complete.

        A complete one counts as held until `settled`.
        """
        upload = self.uploads.get(number)
        if upload is None or upload.node != node:
            return None
        if received >= upload.num_bytes:
            self._end(number, upload)
            return upload
        upload.until += (received - upload.received) / SLOWEST_UPLOAD
        upload.received = received
        if self.now < upload.until:  # a trickle of bytes keeps no upload alive
            del self.heard[number]
            self.heard[number] = self.now
        return None

    def settled(self, offer: PayloadResult) -> None:
        """Record the verdict on a complete payload: it is on the ledger, or dropped."""
        self.inspecting.pop(offer.assignment, None)
        self.num_bytes -= offer.payload.num_bytes

    def drop(self, node: str, number: int) -> Steps:
        """Drop a payload that is not needed (any more).

        A complete one stays.
        """
        upload = self.uploads.get(number)
        if upload is not None and upload.node == node:
            self._end(number, upload)
            self.num_bytes -= upload.num_bytes
            yield Discard(node, number)
        elif self.offered.get(node, {}).pop(number, None) is not None:
            if not self.offered[node]:
                del self.offered[node]
                self.ready.pop(node, None)
            yield Discard(node, number)

    def _end(self, number: int, upload: Upload) -> None:
        """End an upload."""
        del self.uploads[number], self.heard[number], self.sending[upload.node]
        if upload.node in self.offered:
            self.ready[upload.node] = None

    def excuse(self, seconds: float) -> None:
        self.heard = {number: heard + seconds for number, heard in self.heard.items()}
        for upload in self.uploads.values():
            upload.until += seconds

    def deadline(self) -> float:
        """Return when the next upload is given up, unless bytes of it come before."""
        return next(iter(self.heard.values()), math.inf) + (PRESSED_PATIENCE if self.ready else PATIENCE)

    def expire(self) -> Steps:
        """Give up uploads that have stopped: the node greets again and offers the result again."""
        while self.deadline() <= self.now:
            number = next(iter(self.heard))
            node = self.uploads[number].node
            yield from self.drop(node, number)
            yield from self.look()
            yield Send(node, Identify())
