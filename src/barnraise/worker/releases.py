"""Things that a worker sends besides its updates, and their withholding where its rows stay with it.

Noise here hides little differences between tasks. It claims no epsilon: `privacy` does.
"""

from __future__ import annotations

import math
import random
from typing import NamedTuple

import msgspec

from barnraise.core.types import AnyResult, Contribution
from barnraise.wire.messages import Welcome
from barnraise.worker.options import WorkerOptions
from barnraise.worker.withholding import effective

LOSS_NOISE, TIME_NOISE = 0.25, 0.25
"""Standard deviations of the noise: nats a token, and of the logarithm of the seconds."""

_rng = random.SystemRandom()


class SentItem(NamedTuple):
    """A thing that a worker with rows of its own sends: what, when, and the release that withholds it ("": none)."""

    what: str
    when: str
    release: str


SENT = (
    SentItem("the model update, compressed, and its norm, which follows from it", "each task", ""),
    SentItem("the number of steps taken, by which the update counts", "each task", ""),
    SentItem("the mean training loss", "each task", "loss"),
    SentItem("the seconds taken", "each task", "seconds"),
    SentItem("the load of the machine, its speed and its link", "each minute and request", "telemetry"),
    SentItem("the machine's profile: speed, memory, cores, device", "each greeting", "machine"),
    SentItem("the loss of a version on own held-out rows", "each evaluation", "held_out"),
    SentItem("rounded counts of rows, a salted hash of them, a hash of their form", "each greeting", ""),
    SentItem("the name, keys and address of this machine, and when it is there", "always", ""),
)
"""All that leaves the machine of a site; its rows and their token ids never do."""


def reserved(result: AnyResult, welcome: Welcome | None, options: WorkerOptions) -> AnyResult:
    """Return a result with the loss and the seconds that are released: exact, with noise, or 0."""
    releases = effective(options.own.releases if options.own else None, welcome)
    if releases is None:
        return result
    seconds = _changed(result.seconds, releases.seconds, result.seconds * math.exp(_rng.gauss(0.0, TIME_NOISE)))
    if not isinstance(result, Contribution):
        return msgspec.structs.replace(result, seconds=seconds)
    loss = _changed(result.loss, releases.loss, max(0.0, result.loss + _rng.gauss(0.0, LOSS_NOISE)))
    return msgspec.structs.replace(result, seconds=seconds, loss=loss)


def _changed(exact: float, release: str, noised: float) -> float:
    return exact if release == "exact" else noised if release == "noised" else 0.0
