"""Messages between an observer and the controller.

    observer -> controller                          controller -> observer
    Observe  asks for the run's status, with proof  Observed  the status, as JSON in the raw frame
                                                    Stop      a refusal, with its reason

Each question has its own proof, and its answer may be a second old. An observer is no node: it leaves no rows on the
ledger.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from barnraise.core.types import Count, NodeId
from barnraise.wire.messages import Hex32, Message, Name, Stop


class Observe(Message, frozen=True, tag=True):
    """Asks for the run's status, proven like an `Enrol`."""

    protocol: Count
    token: Name
    name: NodeId
    nonce: Hex32
    proof: Hex32


class Observed(Message, frozen=True, tag=True):
    """The status of `run`, as JSON in the raw frame."""

    run: Annotated[str, msgspec.Meta(max_length=200)]


ToObserver = Observed | Stop
