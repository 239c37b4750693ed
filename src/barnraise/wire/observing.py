"""What somebody who only looks on and the controller say to each other.

    observer -> controller                       controller -> observer
    Observe  I hold an invite for an observer:   Observed   so, as JSON in the raw frame
             how does the run stand?             Stop       you may not know, and why

Each question is proven by itself, and answered with what may be a second old. Who asks is no node: nothing of it is on
the ledger.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from barnraise.core.types import Count, NodeId
from barnraise.wire.messages import Hex32, Message, Name, Stop


class Observe(Message, frozen=True, tag=True):
    """Asks how the run stands, proven like an `Enrol`."""

    protocol: Count
    token: Name
    name: NodeId
    nonce: Hex32
    proof: Hex32


class Observed(Message, frozen=True, tag=True):
    """How `run` stands; the raw frame says it."""

    run: Annotated[str, msgspec.Meta(max_length=200)]


ToObserver = Observed | Stop
