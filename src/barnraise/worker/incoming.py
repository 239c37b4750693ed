"""Versions on their way into a worker's replica: those it has, those announced, and missing bytes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

import msgspec

from barnraise.core.types import Blob, News, Update
from barnraise.worker.actions import Action, ApplyUpdates, Fetch, Forget

MOST_QUEUED = 8
"""Announced updates that wait at a time."""


class Incoming:
    """Takes versions in one after the other, each once its bytes are here.

    `have` is -1 while the replica is void.
    """

    def __init__(self) -> None:
        self.have, self.updating = -1, False
        self._digest: str | None = None  # digest of the parameters at the version that it has, or takes in
        self._void = False  # the update that is being taken in is superseded
        self._unproven = False  # the replica is that of an earlier process, which the controller has not confirmed
        self.room = math.inf  # bytes of versions and deltas that may be here, or on their way, at a time
        self._applied = self._to_undo = self._undone = 0  # bytes being taken in, and bytes that tasks undo
        self.queue: list[News] = []  # the oldest first
        self.needs: set[str] = set()  # digests that the queue, or a waiting task, lacks
        self.back: frozenset[str] = frozenset()  # blobs that the waiting task undoes, once fetched

    def get(self, blobs: Iterable[Blob], snapshots: Collection[str] = ()) -> list[Action]:
        """Fetch blobs, each once: a second answer could come for one that has been taken since.

        `snapshots` are digests.
        """
        distinct = {blob.digest: blob for blob in blobs if blob.digest not in self.needs}
        self.needs.update(distinct)
        return [Fetch(blob, blob.digest in snapshots) for blob in distinct.values()]

    def has_room(self, news: News) -> bool:
        """Return whether the missing bytes of `news` fit into memory, with all that is here or on its way."""
        if len(self.queue) >= MOST_QUEUED:
            return False
        if self.room == math.inf:
            return True
        queued = [update for each in self.queue for update in each.updates]
        used = (self._applied if self.updating else 0) + (self._to_undo if self.back else 0) + self._undone
        return self.num_bytes([*queued, *self._missing(news)]) + used <= self.room

    def num_bytes(self, updates: Iterable[Update]) -> int:
        """Return the bytes of these updates, each blob once."""
        return sum({update.blob.digest: update.blob.num_bytes for update in updates}.values())

    def hear(self, news: News) -> list[Action]:
        """Fetch the missing bytes of `news`."""
        updates = self._missing(news)
        if not updates:
            return []
        self.queue.append(news)
        return self.get((update.blob for update in updates), _snapshots(updates))

    def take(self, latest: float = math.inf) -> list[Action] | None:
        """Take in the oldest update in the queue, up to version `latest`, once its bytes are here.

        None when it does not follow the replica's version.
        """
        while self.queue and not self.updating:
            place, news = 0, self.queue[0]
            if news.updates[-1].version > latest:
                found = next(((i, n) for i, n in enumerate(self.queue) if n.updates[-1].version <= latest), None)
                if found is None:
                    break
                place, news = found
            updates = self._missing(news)
            if self.needs and any(update.blob.digest in self.needs for update in updates):
                break
            if updates and updates[0].kind == "delta" and updates[0].version != self.have + 1:
                return None
            del self.queue[place]
            if updates:
                self.updating, self._applied = True, self.num_bytes(updates)
                self._digest = updates[-1].parameters_digest
                taken = {update.blob.digest for update in updates}
                return [ApplyUpdates(msgspec.structs.replace(news, updates=updates)), *self._again(taken)]
        return []

    def updated(self, version: int) -> int:
        """Record the end of taking in, which led to `version`, -1 for a void replica, and return the version."""
        self.have, self.updating, self._void = -1 if self._void else version, False, False
        return self.have

    def restored(self, version: int, digest: str | None) -> None:
        """Start with the replica of an earlier process."""
        self.have, self._digest, self._unproven = version, digest, version >= 0

    def welcomed(self, version: int, digest: str | None) -> None:
        """Compare a replica of an earlier process with the newest version; later versions check themselves."""
        if self._unproven:
            self._unproven = False
            self.compare(version, digest)

    def compare(self, version: int, digest: str | None) -> None:
        """Void the replica unless it leads to this newest version of another controller.

        The digests of deltas in between check that themselves.
        """
        if self.updating:
            self._void = True
        elif self.have > version or (self.have == version and self._digest != digest):
            self.have = -1

    def get_back(self, updates: Iterable[Update]) -> list[Action]:
        """Fetch the deltas that the waiting task undoes."""
        undone = list(updates)
        self.back, self._to_undo = frozenset(update.blob.digest for update in undone), self.num_bytes(undone)
        return self.get(update.blob for update in undone)

    def started(self) -> list[Action]:
        """Record that the waiting task has the deltas that it undoes."""
        self._undone = self._to_undo if self.back else 0
        taken, self.back = self.back, frozenset()
        return self._again(taken)

    def ended(self) -> None:
        """Record that the running task has ended."""
        self._undone = 0

    def _again(self, taken: Collection[str]) -> list[Action]:
        """Fetch what the queue lacks now: equal deltas are one blob, which is dropped once taken."""
        if not self.queue or not taken:
            return []
        later = [update for news in self.queue for update in news.updates]
        return self.get((update.blob for update in later if update.blob.digest in taken), _snapshots(later))

    @property
    def busy(self) -> bool:
        """Return whether a version is on its way, or is taken in."""
        return bool(self.needs or self.queue or self.updating)

    def forget_task(self) -> list[Action]:
        """Drop the waiting task's needs."""
        queued = {update.blob.digest for news in self.queue for update in news.updates}
        useless, self.back = self.back - queued, frozenset()
        self.needs &= queued
        return [Forget(useless)] if useless else []

    def forget(self) -> list[Action]:
        """Drop the whole queue."""
        digests = self.needs | self.back | {update.blob.digest for news in self.queue for update in news.updates}
        self.queue, self.needs, self.back = [], set(), frozenset()
        return [Forget(frozenset(digests))] if digests else []

    def _missing(self, news: News) -> tuple[Update, ...]:
        """Return the updates of `news` that the replica lacks.

        A snapshot may lead back, to a controller that has lost versions.
        """
        if not news.updates or news.updates[-1].version == self.have:
            return ()
        return tuple([update for update in news.updates if update.kind == "snapshot" or update.version > self.have])


def _snapshots(updates: Iterable[Update]) -> set[str]:
    """Return the digests of those that are snapshots."""
    return {update.blob.digest for update in updates if update.kind == "snapshot"}
