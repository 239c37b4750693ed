"""Whose payload is where: promised, on its way, or here and inspected.

An offer is judged before its payload travels. What may come is asked for in the order of the offers, one payload a node
at a time, as far as there is memory; bytes that stop coming make room for others. Nothing replaces a payload that is
here: what was inspected is what is committed.
"""

from __future__ import annotations

import math

import msgspec

from barnraise.controller.state.actions import Discard, Receive, Send
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.core.types import Contribution
from barnraise.wire.messages import Identify

PATIENCE = 30.0
"""Seconds without a byte after which an upload is given up; the node is asked to greet, and offers it again."""

PRESSED_PATIENCE = 10.0
"""The same while others wait for the room that it takes."""

SLOWEST_UPLOAD = 10_000.0
"""Bytes a second below which an upload is given up at any time beyond its first PATIENCE, however often some come."""


class Upload(msgspec.Struct):
    """A payload on its way `since` it was asked for, of which so much was `received`. `until` then further bytes keep
    it."""

    node: str
    offer: Contribution
    until: float
    received: int = 0
    since: float = 0.0

    @property
    def num_bytes(self) -> int:
        return self.offer.payload.num_bytes


class Uploads(Part):
    """`offered` payloads wait to be asked for, by node; `uploads` are on their way, `inspecting` are here, with the
    version that was newest when they were complete, both by assignment."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.memory = context.settings.payloads.memory
        self.offered: dict[str, dict[int, Contribution]] = {}
        self.ready: dict[str, None] = {}  # those nodes of `offered` that have nothing on its way
        self.uploads: dict[int, Upload] = {}
        self.heard: dict[int, float] = {}  # of each upload, when bytes last came, the longest silent first
        self.sending: dict[str, int] = {}  # node -> its upload
        self.inspecting: dict[int, tuple[Contribution, int]] = {}
        self.num_bytes = 0  # of uploads and what is inspected, as offered

    def expect(self, node: str, offer: Contribution) -> Steps:
        """The payload of an offer that may come: ask for it now, or when it is its turn. The first offer of an
        assignment counts; when that is made again, its payload is asked for again, from where it stands."""
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
        """Ask for what is offered, as far as there is room."""
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
            self.uploads[number] = Upload(node, offer, self.now + PATIENCE, since=self.now)
            self.heard[number], self.sending[node] = self.now, number
            self.num_bytes += size
            yield Receive(node, offer)

    def arrived(self, node: str, number: int, received: int) -> Upload | None:
        """So much of a payload has come; the upload, when that is all of it, which counts as held until `settled`."""
        upload = self.uploads.get(number)
        if upload is None or upload.node != node:
            return None
        if received >= upload.num_bytes:
            self._end(number, upload)
            return upload
        upload.until += (received - upload.received) / SLOWEST_UPLOAD
        upload.received = received
        if self.now < upload.until:  # bytes that drip keep nothing alive
            del self.heard[number]
            self.heard[number] = self.now
        return None

    def settled(self, offer: Contribution) -> None:
        """A payload that was complete is judged: it is on the ledger, or gone."""
        self.inspecting.pop(offer.assignment, None)
        self.num_bytes -= offer.payload.num_bytes

    def drop(self, node: str, number: int) -> Steps:
        """The payload is not wanted (any more). What is complete stays."""
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
        """Nothing more of the upload will come."""
        del self.uploads[number], self.heard[number], self.sending[upload.node]
        if upload.node in self.offered:
            self.ready[upload.node] = None

    def excuse(self, seconds: float) -> None:
        self.heard = {number: heard + seconds for number, heard in self.heard.items()}
        for upload in self.uploads.values():
            upload.until += seconds

    def deadline(self) -> float:
        """When the next upload is given up, unless bytes of it come before."""
        return next(iter(self.heard.values()), math.inf) + (PRESSED_PATIENCE if self.ready else PATIENCE)

    def expire(self) -> Steps:
        """Give up what no longer comes: its node greets anew and offers it again."""
        while self.deadline() <= self.now:
            number = next(iter(self.heard))
            node = self.uploads[number].node
            yield from self.drop(node, number)
            yield from self.look()
            yield Send(node, Identify())
