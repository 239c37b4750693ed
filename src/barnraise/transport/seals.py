"""How a run's controllers are told apart, and none can be put off by a forgery.

The controllers of a run, one after the other, share its secret key. So an epoch is sealed with it:

    seal = HMAC-SHA256(secret key, "barnraise epoch 1" | run | epoch)

A worker shows the seal of the highest epoch that it was welcomed in. A controller that is shown a higher epoch than its
own, rightly sealed, knows that another has taken over; a made-up epoch stops nobody.
"""

from __future__ import annotations

import hashlib
import hmac

from barnraise.transport.identity import Keys
from barnraise.wire.messages import Term


def sealed(keys: Keys, run: str, epoch: int) -> Term:
    """The term of the controller of `run` that has this epoch."""
    message = b"barnraise epoch 1" + run.encode() + b"\0" + str(epoch).encode()
    return Term(epoch, hmac.new(keys.secret.encode(), message, hashlib.sha256).hexdigest())


def supersedes(term: Term, own: Term, keys: Keys, run: str) -> bool:
    """Whether `term` is of a later controller of the run than `own` is."""
    return term.epoch > own.epoch and hmac.compare_digest(sealed(keys, run, term.epoch).seal, term.seal)
