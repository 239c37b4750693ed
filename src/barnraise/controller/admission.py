"""Whether a contribution may enter the buffer: one check after another, the cheap ones first.

Identity was settled by the transport (the CURVE key names the node) and the payload's digest by the shell. What is
left: is it the answer to an open assignment, does it claim what was assigned, is it fresh, is it sane.
"""

from __future__ import annotations

import math

from barnraise.controller.settings import EngineSettings
from barnraise.controller.state import Work
from barnraise.core.types import Contribution


def refuse_offer(offer: Contribution, work: Work, version: int, settings: EngineSettings) -> str:
    """Why `offer`, arriving when `version` was newest, cannot be an answer to `work`; empty when it can."""
    if offer.base != work.base:
        return f"base is version {offer.base}, but the task started from {work.base}: fetch the assigned version"
    if offer.parameters != work.parameters:
        return f"updates parameters {offer.parameters}, but {work.parameters} were assigned"
    if not offer.payload.num_bytes:
        return "payload of 0 bytes: a contribution has one"
    most = settings.last_bytes if work.kind == "flush" else settings.rungs[work.rung]
    if offer.payload.num_bytes > most and offer.payload.num_bytes != settings.last_bytes:  # of a node that leaves
        return f"payload of {offer.payload.num_bytes} bytes, but the codec needs at most {most}"
    if offer.steps > work.local_steps:
        return f"claims {offer.steps} steps, but {work.local_steps} were assigned"
    if work.kind == "train" and not offer.steps:
        return "claims no step: nothing was done, so nothing is taken"
    if not math.isfinite(offer.loss):
        return f"training loss is {offer.loss}: training diverged on this worker; lower the learning rate"
    staleness = version - offer.base
    if staleness > work.max_staleness:
        return f"stale: {staleness} versions behind, at most {work.max_staleness} are allowed for this node"
    return ""


def refuse_inspection(norm: float, reason: str, settings: EngineSettings) -> str:
    """Why an update of L2 norm `norm` (and `reason`, when it could not be decoded) is refused; empty when fine."""
    if reason:
        return reason
    if not math.isfinite(norm):
        return f"norm is {norm}: the update holds NaN or infinite values"
    if settings.max_update_norm is not None and norm > settings.max_update_norm:
        return f"norm {norm:.4g} is above controller.max_update_norm {settings.max_update_norm:g}"
    return ""
