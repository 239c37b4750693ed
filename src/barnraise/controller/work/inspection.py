"""From an offer to its verdict: the header is judged, the payload requested, inspected once it is here, and judged.

A payload that is here is never replaced, so the inspected one is the committed one. The checks are in `admission`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from barnraise.controller.fleet.uploads import Grant, Uploads
from barnraise.controller.state.actions import Discard, Send
from barnraise.controller.state.effects import Inspect, Inspected
from barnraise.controller.state.events import Arrived, Changed, Event
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.controller.state.state import Work
from barnraise.controller.work import admission
from barnraise.controller.work.auditing import Auditing
from barnraise.controller.work.sanctions import Offences
from barnraise.controller.work.scoring import Scoring
from barnraise.controller.work.speculation import Speculation
from barnraise.controller.work.task_kinds import TaskKinds
from barnraise.core.types import Contribution, PayloadResult, Result
from barnraise.ledger.decisions import Claim, Judged, Weighing
from barnraise.ledger.notes import COPY_CAME_FIRST
from barnraise.wire.messages import Ack, Message, Offer


class Inspection(Part):
    """Has no state: an offer that is inspected is in `uploads`."""

    def __init__(
        self,
        context: Context,
        uploads: Uploads,
        offences: Offences,
        speculation: Speculation,
        task_kinds: TaskKinds,
        auditing: Auditing,
        scoring: Scoring,
    ) -> None:
        super().__init__(context)
        self.speculation, self.kinds = speculation, task_kinds.by_name
        self.auditing, self.scoring = auditing, scoring
        self.settings = context.settings
        self.uploads, self.offences = uploads, offences

    def offered(self, node: str, message: Offer) -> Steps:
        """Judge a header, and request the payload of an acceptable one."""
        offer = message.result
        number = offer.assignment
        work = self.state.works.get(number)
        if work is None or work.node != node:
            unknown = False, "this work is not yours (any more): it runs elsewhere"
            yield Send(node, Ack(number, *self.state.nodes[node].verdicts.get(number, unknown)))
        elif number in self.uploads.inspecting:
            return  # its payload is here: the answer follows
        elif reason := self._refuse(work, offer) or self._unsigned(node, offer):
            yield from self._turn_down(work, offer, reason)
            yield Changed()
        elif isinstance(offer, PayloadResult):
            yield from self.uploads.expect(node, offer)
        else:
            yield from self._judge(work, offer, self.context.arrival_version, 0.0, "")
            yield Changed()

    def _turn_down(self, work: Work, offer: Result, reason: str) -> Steps:
        """Refuse a result by its header: its payload is not needed."""
        yield from self.uploads.drop(work.node, work.assignment)
        yield from self._judge(work, offer, self.context.arrival_version, 0.0, reason)
        yield from self.offences.refused(work.node, work.assignment, reason)

    def arrived(self, event: Arrived) -> Steps:
        """Handle bytes of a payload; a complete one is inspected.

        It is checked again first, since versions were made meanwhile.
        """
        upload = self.uploads.arrived(event.node, event.assignment, event.num_bytes)
        if upload is None:
            return
        offer, work, version = upload.offer, self.state.works[event.assignment], self.context.arrival_version
        if reason := self._refuse(work, offer):
            self.uploads.settled(offer)
            yield from self._judge(work, offer, version, 0.0, reason)
            yield Changed()
        else:
            self.uploads.inspecting[event.assignment] = upload, version
            yield Inspect(self.context.epoch, event.node, offer, self.auditing.seed(work), work.task.inspects)
            yield from self.uploads.look()

    def inspected(self, event: Inspected) -> Steps:
        if event.epoch != self.context.epoch:
            return
        upload, version = self.uploads.inspecting[event.assignment]
        offer = upload.offer
        self.uploads.settled(offer)
        work = self.state.works[event.assignment]
        reason = admission.refuse_inspection(event.norm, event.reason, self.settings.payloads)
        yield from self._judge(work, offer, version, event.norm, reason, upload.grant)
        if self.state.nodes[work.node].verdicts[work.assignment][0] and isinstance(offer, Contribution):
            if event.sketch:
                yield from self.auditing.begin(work, offer, event.sketch)
            yield from self.scoring.begin(work, offer)
        yield from self.offences.inspected(work.node, reason)
        yield Changed()

    def _refuse(self, work: Work, offer: Result) -> str:
        """Return the present defect of an offer; empty when it may continue."""
        kind, version = self.kinds.get(work.kind), self.context.arrival_version
        if kind is None or not isinstance(offer, kind.task.result):
            return admission.Offence(f"a {type(offer).__name__.lower()} is no answer to a task of the kind {work.kind}")
        if reason := self._too_late(work):
            return reason
        return admission.refuse_result(offer, work, version) or kind.refuse(offer, work, version)

    def _unsigned(self, node: str, offer: Result) -> str:
        return admission.refuse_signature(self.settings.run, node, offer, self.state.nodes[node].badge.signer)

    def _too_late(self, work: Work) -> str:
        """Return why a result of `work` is not needed any more; empty while it is."""
        if self.state.came_second(work):
            return COPY_CAME_FIRST
        kind = self.kinds.get(work.kind)
        return kind.too_late(work) if kind is not None else ""

    def _judge(
        self, work: Work, offer: Result, version: int, norm: float, reason: str, grant: Grant | None = None
    ) -> Steps:
        """Put the verdict on the ledger and answer the worker; the `grant` of its payload weighs a result."""
        verdict: Literal["accepted", "refused", "discarded"]
        if late := self._too_late(work):
            verdict, reason = "discarded", late
        else:
            verdict = "refused" if reason else "accepted"
        if verdict == "accepted":
            yield from self.speculation.won(work)
        staleness = max(0, version - offer.base) if work.task.contributes else 0
        tokens = work.credit(offer.steps) if verdict == "accepted" else work.tokens
        if not work.task.trains:
            tokens = 0  # only tokens of training count
        recorded = self.kinds[work.kind].recorded(offer, work) if verdict == "accepted" else offer
        yield Judged(
            time=self.now,
            assignment=work.assignment,
            node=work.node,
            verdict=verdict,
            reason=str(reason),
            claim=Claim.of(recorded),
            version=version,
            staleness=staleness,
            tokens=tokens,
            norm=norm,
            parameters=work.terms.parameters,
            weighing=self._weighing(work, offer, tokens, norm if verdict == "accepted" else 0.0, grant),
        )
        if verdict == "accepted":
            yield from self.kinds[work.kind].taken(offer, work)
        elif isinstance(offer, PayloadResult):
            yield Discard(work.node, work.assignment)
        yield Send(work.node, Ack(work.assignment, verdict == "accepted", str(reason)))

    def _weighing(self, work: Work, offer: Result, tokens: int, norm: float, grant: Grant | None) -> Weighing:
        """Return the weight of a result, as its grant says; it is granted now where there is no payload."""
        version, trust = grant or self.uploads.grant(work.node)
        staleness = max(0, version - offer.base) if work.task.contributes else 0
        kind, weight = self.kinds.get(work.kind), 0.0
        if kind is not None and isinstance(offer, kind.task.result):
            weight = kind.weight(offer, work, tokens, trust, staleness)
        return Weighing(weight, admission.scale(norm, work, self.settings), trust)

    def events(self) -> dict[type[Event], Callable[[Any], Steps]]:
        return {Arrived: self.arrived, Inspected: self.inspected}

    def messages(self) -> dict[type[Message], Callable[[str, Any], Steps]]:
        return {Offer: self.offered}
