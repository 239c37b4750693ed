"""The stage that hides an update under masks, in place of the one that encodes it.

The update is weighted and rounded to the run's ring, and one fresh mask for each seed of the committee is added. The
rounded update is kept as well, for the worker's own progress. Where members share the noise of differential privacy,
each adds its share between the two (`privacy.masking.noise_share`), and its weight does not depend on its work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from barnraise.compression.base import Codec
from barnraise.compression.feedback import gathered
from barnraise.core.errors import PayloadError, RunFailedError
from barnraise.core.types import Masked, Train
from barnraise.privacy.masking.committee import Committee
from barnraise.privacy.masking.lists import MemberEntry, counted, decode_list, entry_of
from barnraise.privacy.masking.noise_share import NoiseShare
from barnraise.privacy.masking.payload import UpdateOrigin, mask, parse
from barnraise.privacy.masking.ring import Ring
from barnraise.privacy.masking.roster import TrusteeRoster
from barnraise.privacy.masking.seats import committee_of
from barnraise.privacy.masking.terms import MaskTerms
from barnraise.trust.signatures import RunId, Signer
from barnraise.wire.messages import Included, Masks
from barnraise.worker.protection_timer import ProtectionTimer
from barnraise.worker.stages import NOT_FINITE, Draft, WorkerStage


@dataclass(frozen=True)
class MaskedMember:
    """A node's part in a masked run: the run, its name, its signing key, and the trustees that its owner accepts.

    `roster` names these trustees; None: any.
    """

    run: RunId
    node: str
    signer: Signer
    roster: TrusteeRoster | None = None


MOST_OWN = 64
"""Own updates whose entries are kept, to be found in lists."""


@dataclass(frozen=True)
class _Next:
    """The next update: its task, the share of the task that was done, and the digest of the version it began at."""

    task: Masked
    share: float
    model: str


class Mask(WorkerStage):
    """Rounds the update of the current task to the ring and adds its masks.

    `plain` encodes the rounded update. `clip` is the largest L2 norm of one to which a share of noise is added.
    """

    def __init__(
        self, masks: Masks, plain: Codec, timer: ProtectionTimer | None = None, clip: float = math.inf
    ) -> None:
        self.settings, self._plain, self._timer = masks, plain, timer or ProtectionTimer()
        self.ring = Ring(masks.value_bits, masks.most_members, masks.limit, masks.deviation)
        self._noise = NoiseShare(self.ring, clip) if masks.deviation else None
        self.membership: MaskedMember | None = None
        self._next: _Next | None = None
        self._own: dict[int, tuple[MemberEntry, Committee]] = {}

    def begin(self, task: Train, steps: int, age: int, model: str) -> None:
        """Take the terms of the next update: of `steps` steps of `task`, `age` versions old as it is encoded.

        `model` is the digest of the version that the task began at. PayloadError for a task without terms of masks.
        """
        if not isinstance(task, Masked):
            raise PayloadError(f"task {task.id} names no committee, but updates are masked")
        freshness = self.settings.freshness[min(age, len(self.settings.freshness) - 1)]
        of_work = task.weight * steps / max(1, task.local_steps) if self._noise is None else 1.0
        self._next = _Next(task, freshness * of_work, model)

    def forward(self, update: Draft) -> None:
        coming, member = self._next, self.membership
        if coming is None:
            raise RunFailedError("the controller gave a task without masks in a run that masks updates: ask the host")
        assert member is not None, "the node is known"
        self._next = None
        task, committee = coming.task, committee_of(coming.task.committee, self.settings.colluding)
        if member.roster is not None and (why := member.roster.refuse(committee)):
            raise RunFailedError(f"this machine sends no update: {why}")
        values = gathered(update.vector, update.covered).numpy()
        terms = MaskTerms(member.run, self.ring, values.size, committee)
        weight = self.ring.weight(coming.share)
        with self._timer.protecting():
            words = self.ring.quantise(values, weight) if self._noise is None else self._noise.bounded(values, weight)
            mean, _ = self.ring.decode(words, 1)
        update.encoded = self._plain.encode(torch.from_numpy(mean), update.version)
        if self._noise is not None:
            with self._timer.protecting():
                self._noise.add(words)
        origin = UpdateOrigin(member.node, task.id, task.base, coming.model)
        with self._timer.protecting():
            update.masked = mask(terms, origin, words, member.signer)
        self._own[task.id] = entry_of(parse(update.masked, terms), origin), committee
        if len(self._own) > MOST_OWN:
            del self._own[min(self._own)]

    def prove(self, told: Included) -> str:
        """Return why it is not proven that a version has an own update; empty when it is."""
        if (own := self._own.get(told.assignment)) is None or self.membership is None:
            return "this process has made no such update, or too long ago"
        entry, committee = own
        signatures = {one.name: sign for one, sign in zip(committee.trustees, told.endorsements, strict=False) if sign}
        try:
            members = decode_list(told.members)
            if (members.run, members.version) != (self.membership.run, told.version):
                return f"the list is for version {members.version} of run {members.run.name}, not {told.version}"
            if members.digest != told.digest:
                return f"the list has the digest {members.digest}, but the ledger is said to have {told.digest!r}"
            counted(members, entry, signatures, committee)
        except PayloadError as error:
            return str(error)
        return ""


class Bound(WorkerStage):
    """Scales an update down to an L2 norm of at most `limit`, before it is encoded."""

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def forward(self, update: Draft) -> None:
        norm = float(torch.linalg.vector_norm(gathered(update.vector, update.covered), dtype=torch.float64))
        if not math.isfinite(norm):
            raise PayloadError(NOT_FINITE)
        if norm > self.limit:
            update.vector *= self.limit / norm
