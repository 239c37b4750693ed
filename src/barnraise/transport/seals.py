"""Sealed terms, which distinguish a run's controllers and cannot be forged.

The controllers of a run, one after the other, share its secret key. So an epoch is sealed with it:

    seal = HMAC-SHA256(secret key, "barnraise epoch 1" | run | epoch | by)

`by` is the key of the standby that the controller was, if it was one: of two that took over with the same epoch, the
one with the greater key counts. A worker shows the seal of the highest epoch that it was welcomed in. A controller that
is shown a higher epoch than its own, rightly sealed, knows that another has taken over; a made-up epoch has no effect.
"""

from __future__ import annotations

import hashlib
import hmac

from barnraise.transport.identity import Keys
from barnraise.wire.messages import Term


def sealed(keys: Keys, run: str, epoch: int, by: str = "") -> Term:
    """Return the sealed term of the controller of `run` with this epoch; `by` is the key of the standby that it was."""
    message = b"barnraise epoch 1" + run.encode() + b"\0" + str(epoch).encode() + b"\0" + by.encode()
    return Term(epoch, hmac.new(keys.secret.encode(), message, hashlib.sha256).hexdigest(), by)


def supersedes(term: Term, own: Term, keys: Keys, run: str) -> bool:
    """Return whether `term` is of a later controller of the run than `own` is."""
    return term.rank > own.rank and hmac.compare_digest(sealed(keys, run, term.epoch, term.by).seal, term.seal)
