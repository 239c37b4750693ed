"""Admission of contributions to the buffer: one check after another, the cheap ones first.

Identity was settled by the transport (the CURVE key names the node) and the payload's digest by the shell. The
remaining checks: is it the answer to an open assignment, does it claim what was assigned, is it signed, is it fresh, is
it sane.
"""

from __future__ import annotations

import math
from itertools import pairwise

from barnraise.controller.state.settings import EngineSettings, PayloadSettings
from barnraise.controller.state.state import Work
from barnraise.core.types import Contribution, PayloadResult, Result
from barnraise.ledger.notes import NOT_SIGNED
from barnraise.trust import signatures
from barnraise.trust.signatures import RunId

LARGEST_LOSS = 1e6
"""Nats a token that no training reaches."""

LARGEST = 100.0
"""Root mean square of an update's elements beyond which no model could follow: longer updates are refused."""


class Offence(str):
    """The reason for refusing a result that no correct node sends, however slow or late it is."""

    __slots__ = ()


def refuse_result(result: Result, work: Work, version: int) -> str:
    """Return why `result`, arriving when `version` was newest, is no answer to `work`; empty when it can be."""
    if result.base != work.base:
        told = f"base is version {result.base}, but the task started from {work.base}"
        return Offence(f"{told}: fetch the assigned version")
    if result.steps > work.local_steps:
        return Offence(f"claims {result.steps} steps, but {work.local_steps} were assigned")
    if work.local_steps and not result.steps:
        return Offence("claims no step: nothing was done, so nothing is taken")
    staleness = version - result.base
    if staleness > work.terms.max_staleness:
        return f"stale: {staleness} versions behind, at most {work.terms.max_staleness} are allowed for this node"
    return ""


def refuse_update(offer: Contribution, work: Work, codec: int, payloads: PayloadSettings) -> str:
    """Return why `offer` is no update that was assigned, in `codec`; empty when it can be."""
    if offer.parameters != work.terms.parameters:
        return Offence(f"updates parameters {offer.parameters}, but {work.terms.parameters} were assigned")
    if offer.support != (work.cohort or work.base):
        return Offence(f"has the support of {offer.support}, but {work.cohort or work.base} was assigned")
    if not offer.payload.num_bytes:
        return Offence("payload of 0 bytes: a contribution has one")
    last = offer.codec == payloads.last_codec and payloads.last > 0  # a residual, or the last one of a leaving node
    if not last and offer.codec != codec:
        return Offence(f"is written in codec {offer.codec}, but codec {codec} was assigned")
    most = payloads.last if last else payloads.rungs[codec]
    if offer.payload.num_bytes > most:
        return Offence(f"payload of {offer.payload.num_bytes} bytes, but the codec needs at most {most}")
    if not 0.0 <= offer.loss <= LARGEST_LOSS:
        return f"training loss is {offer.loss}: training diverged on this worker; lower the learning rate"
    return ""


def refuse_transcript(offer: Contribution, work: Work, newest: int) -> str:
    """Return why its transcript cannot be that of `work`, with versions up to the `newest`; empty when it can be."""
    told, stateless = offer.transcript, work.terms.pace is not None
    if told is None or not stateless:
        missing = Offence("tells no transcript, but its task was stateless") if stateless else ""
        return Offence("tells a transcript, but its task was stateful") if told is not None else missing
    places = [(0, told.start), *((taken.step, taken.version) for taken in told.taken)]
    ordered = all(a[0] <= b[0] and a[1] < b[1] for a, b in pairwise(places))
    if told.moved and not told.start:
        return Offence("tells how version 0 had moved, which nothing led to")
    if not offer.steps <= told.batches <= work.local_steps:
        return Offence(f"tells {told.batches} batches, but took {offer.steps} steps of {work.local_steps} assigned")
    if not ordered or told.start < work.base or told.newest > newest or places[-1][0] > told.batches:
        batches = f"{told.batches} batches from version {work.base}"
        return Offence(f"tells versions {places} by batch, which no task of {batches} can have had by now")
    return ""


def refuse_signature(run: RunId, node: str, offer: Result, signer: str) -> str:
    """Return why `offer` is not signed by `node`, whose key is `signer`; empty when it is.

    Also empty when the node signs nothing, or there is nothing to sign.
    """
    if not signer or not isinstance(offer, PayloadResult):
        return ""
    if signatures.verified(signatures.statement(run, node, offer), offer.signature, signer):
        return ""
    wrong = f"{NOT_SIGNED} ({'wrong signature' if offer.signature else 'no signature'})"
    return Offence(f"{wrong}; join again with the key file that this machine joined with")


def scale(norm: float, work: Work, settings: EngineSettings) -> float:
    """Return the factor for an update of L2 norm `norm`: 1, or less where it is longer than `work` allows.

    The longest update follows from the optimizer and from the task's learning rate and steps (`training.reach`), and
    never from other nodes' messages. Where the run file sets a largest norm itself, nothing is shortened.
    """
    tasks, reach, rate = settings.tasks, settings.payloads.reach, work.terms.learning_rate
    steps = settings.worker.uplink.normalize_steps or work.local_steps
    if reach.tasks > 1.0:  # it may hold earlier work, done at the largest rate
        rate, steps = max(rate, tasks.learning_rate), max(steps, tasks.local_steps)
    longest = reach.longest(rate * steps)
    if settings.payloads.max_norm is not None or norm <= longest:
        return 1.0
    return longest / norm


def refuse_inspection(norm: float, reason: str, payloads: PayloadSettings) -> str:
    """Return why an update of L2 norm `norm` (and `reason`, if undecodable) is refused; empty when fine.

    The limits are absolute: the run file's, or the length that no model could follow.
    """
    if reason:
        return reason
    if not math.isfinite(norm):
        return f"norm is {norm}: the update holds NaN or infinite values"
    if payloads.max_norm is not None and norm > payloads.max_norm:
        return f"norm {norm:.4g} is above trust.max_update_norm {payloads.max_norm:g}"
    most = LARGEST * math.sqrt(payloads.exchanged)
    if payloads.max_norm is None and norm > most:
        return f"norm {norm:.4g} is above {most:.4g}, which no model could follow"
    return ""
