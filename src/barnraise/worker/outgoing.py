"""Results on their way to the controller: offered, payloads uploaded one at a time, kept until answered."""

from __future__ import annotations

from barnraise.core.types import AnyResult, LinkReport, PayloadResult
from barnraise.wire.messages import INLINE_BYTES, SendPayload
from barnraise.wire.messages import Offer as OfferMessage
from barnraise.worker import measure
from barnraise.worker.actions import Action, CancelUpload, Offer, Send, Settle, Upload

OFFER_PATIENCE = 15.0
"""Seconds after which an unanswered offer is repeated: a message may have been lost."""

UPLOAD_PATIENCE = 45.0
"""The same for a requested payload, beyond the time of its bytes at a quarter of the link's rate.

The controller has given it up by then, or judged it.
"""

SLOWER, SLOWEST = 4.0, 10_000.0
"""That quarter; and the least bytes a second that are assumed."""


class Outgoing:
    """Unanswered results, and the last update.

    `pending` have no answer yet, the oldest first; `newest` is the last submitted update, answered or not.
    """

    def __init__(self) -> None:
        self.pending: dict[int, AnyResult] = {}
        self.newest = 0
        self._uploading: int | None = None  # the assignment whose payload is on its way
        self._sent: dict[int, tuple[float, int]] = {}  # payloads on their way: start time, bytes
        self._offered_at = 0.0

    def add(self, result: AnyResult, now: float) -> list[Action]:
        """Offer the result of a task.

        A small payload is attached.
        """
        self.keep(result)
        self._offered_at = now
        if isinstance(result, PayloadResult) and result.payload.num_bytes <= INLINE_BYTES:
            self._sent[result.assignment] = now, result.payload.num_bytes
        return [Offer(result)]

    @property
    def uploading(self) -> bool:
        """Return whether a payload is on its way."""
        return self._uploading is not None

    def keep(self, result: AnyResult) -> None:
        """Keep a result while there is no connection: the next `greeted` offers it."""
        self.pending[result.assignment] = result
        if isinstance(result, PayloadResult):
            self.newest = result.assignment

    def again(self, now: float) -> list[Action]:
        """Offer all unanswered results; the controller knows which bytes it has."""
        self._offered_at = now
        return [Send(OfferMessage(result)) for result in self.pending.values()]

    def overdue(self, now: float, link: LinkReport) -> list[Action]:
        """Repeat offers without an answer or a `SendPayload` for long.

        Nor has an answer come after the last byte of a payload, which depends on the link.
        """
        patience, since = OFFER_PATIENCE, self._offered_at
        if self._uploading is not None:
            began, num_bytes = self._sent.get(self._uploading, (now, 0))
            patience, since = UPLOAD_PATIENCE + num_bytes / max(link.up / SLOWER, SLOWEST), max(began, since)
        return self.again(now) if self.pending and now - since > patience else []

    def greeted(self, now: float) -> list[Action]:
        """Repeat offers on a new connection: transfers on the one before are lost."""
        self._sent.clear()
        return [*self._cancel(self._uploading), *self.again(now)]

    def go(self, message: SendPayload, now: float) -> list[Action]:
        """Upload the requested payload from some byte on.

        One at a time: the controller's last request counts.
        """
        result = self.pending.get(message.assignment)
        if not isinstance(result, PayloadResult) or message.offset >= result.payload.num_bytes:
            return []
        self._sent[message.assignment] = now, result.payload.num_bytes - message.offset
        self._uploading = message.assignment
        return [Upload(result, message.offset)]

    def arrived(self, assignment: int, link: LinkReport, now: float) -> tuple[list[Action], LinkReport]:
        """Record that the controller has the whole payload: later messages say nothing about the link."""
        began, num_bytes = self._sent.pop(assignment, (now, 0))
        return self._cancel(assignment), measure.uploaded(link, num_bytes, now - began)

    def answered(
        self, assignment: int, accepted: bool, link: LinkReport, now: float
    ) -> tuple[list[Action], LinkReport]:
        """Record the controller's verdict, and what its upload measures of the link."""
        if self.pending.pop(assignment, None) is None:
            return [], link
        began, num_bytes = self._sent.pop(assignment, (now, 0))
        if accepted:
            link = measure.uploaded(link, num_bytes, now - began)
        return [*self._cancel(assignment), Settle(assignment, accepted)], link

    def forget(self, assignment: int) -> list[Action]:
        """Drop a result that is not wanted any more."""
        if self.pending.pop(assignment, None) is None:
            return []
        self._sent.pop(assignment, None)
        return [*self._cancel(assignment), Settle(assignment, False)]

    def _cancel(self, assignment: int | None) -> list[Action]:
        if assignment is None or assignment != self._uploading:
            return []
        self._uploading = None
        return [CancelUpload()]
