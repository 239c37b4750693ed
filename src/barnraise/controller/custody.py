"""Whose payload is where: promised, on its way, or here and inspected.

An offer is judged before its payload travels. What may come is asked for in the order of the offers, one payload a node
at a time, as far as there is memory; bytes that stop coming make room for others. Nothing replaces a payload that is
here: what was inspected is what is committed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from barnraise.controller.actions import Action, Discard, Receive, Send
from barnraise.controller.settings import EngineSettings
from barnraise.core.types import Contribution
from barnraise.wire.messages import Who

Steps = Iterator[Action]

PATIENCE = 30.0
"""Seconds without a byte after which an upload is given up; the node is asked to greet, and offers it again."""

PRESSED_PATIENCE = 10.0
"""The same while others wait for the room that it takes."""

SLOWEST_UPLOAD = 10_000.0
"""Bytes a second below which an upload is given up at any time beyond its first PATIENCE, however often some come."""


class Upload(msgspec.Struct):
    """A payload on its way, of which so much was `received`. `until` then further bytes keep it."""

    node: str
    offer: Contribution
    until: float
    received: int = 0

    @property
    def num_bytes(self) -> int:
        return self.offer.payload.num_bytes


class Custody:
    """`offered` payloads wait to be asked for, by node; `uploads` are on their way, `inspecting` are here, with the
    version that was newest when they were complete, both by assignment."""

    def __init__(self) -> None:
        self.offered: dict[str, dict[int, Contribution]] = {}
        self.ready: dict[str, None] = {}  # those nodes of `offered` that have nothing on its way
        self.uploads: dict[int, Upload] = {}
        self.heard: dict[int, float] = {}  # of each upload, when bytes last came, the longest silent first
        self.sending: dict[str, int] = {}  # node -> its upload
        self.inspecting: dict[int, tuple[Contribution, int]] = {}
        self.num_bytes = 0  # of uploads and what is inspected, as offered


def expect(custody: Custody, settings: EngineSettings, node: str, offer: Contribution, now: float) -> Steps:
    """The payload of an offer that may come: ask for it now, or when it is its turn. The first offer of an assignment
    counts; when that is made again, its payload is asked for again, from where it stands."""
    number = offer.assignment
    if number in custody.uploads:
        if custody.uploads[number].offer.payload == offer.payload:
            yield Receive(node, custody.uploads[number].offer)
    elif number not in custody.offered.get(node, {}):
        custody.offered.setdefault(node, {})[number] = offer
        if node not in custody.sending:
            custody.ready[node] = None
        yield from ask(custody, settings, now)


def ask(custody: Custody, settings: EngineSettings, now: float) -> Steps:
    """Ask for what is offered, as far as there is room."""
    room = settings.upload_memory - custody.num_bytes
    while custody.ready:
        node = next(iter(custody.ready))
        offers = custody.offered[node]
        number, offer = next(iter(offers.items()))
        size = offer.payload.num_bytes
        if size > room:
            break
        room -= size
        del offers[number], custody.ready[node]
        if not offers:
            del custody.offered[node]
        custody.uploads[number] = Upload(node, offer, now + PATIENCE)
        custody.heard[number], custody.sending[node] = now, number
        custody.num_bytes += size
        yield Receive(node, offer)


def arrived(custody: Custody, node: str, number: int, received: int, now: float) -> Upload | None:
    """So much of a payload has come; the upload, when that is all of it. It counts as held until it is `settled`."""
    upload = custody.uploads.get(number)
    if upload is None or upload.node != node:
        return None
    if received >= upload.num_bytes:
        _end(custody, number, upload)
        return upload
    upload.until += (received - upload.received) / SLOWEST_UPLOAD
    upload.received = received
    if now < upload.until:  # bytes that drip keep nothing alive
        del custody.heard[number]
        custody.heard[number] = now
    return None


def settled(custody: Custody, offer: Contribution) -> None:
    """A payload that was complete is judged: it is on the ledger, or gone."""
    custody.inspecting.pop(offer.assignment, None)
    custody.num_bytes -= offer.payload.num_bytes


def drop(custody: Custody, node: str, number: int) -> Steps:
    """The payload is not wanted (any more). What is complete stays."""
    upload = custody.uploads.get(number)
    if upload is not None and upload.node == node:
        _end(custody, number, upload)
        custody.num_bytes -= upload.num_bytes
        yield Discard(node, number)
    elif custody.offered.get(node, {}).pop(number, None) is not None:
        if not custody.offered[node]:
            del custody.offered[node]
            custody.ready.pop(node, None)
        yield Discard(node, number)


def _end(custody: Custody, number: int, upload: Upload) -> None:
    """Nothing more of the upload will come."""
    del custody.uploads[number], custody.heard[number], custody.sending[upload.node]
    if upload.node in custody.offered:
        custody.ready[upload.node] = None


def excuse(custody: Custody, seconds: float) -> None:
    """For so long no bytes could be read."""
    custody.heard = {number: heard + seconds for number, heard in custody.heard.items()}
    for upload in custody.uploads.values():
        upload.until += seconds


def deadline(custody: Custody) -> float:
    """When the next upload is given up, unless bytes of it come before."""
    return next(iter(custody.heard.values()), math.inf) + (PRESSED_PATIENCE if custody.ready else PATIENCE)


def expire(custody: Custody, settings: EngineSettings, now: float) -> Steps:
    """Give up what no longer comes: its node greets anew and offers it again."""
    while deadline(custody) <= now:
        number = next(iter(custody.heard))
        node = custody.uploads[number].node
        yield from drop(custody, node, number)
        yield from ask(custody, settings, now)
        yield Send(node, Who())
