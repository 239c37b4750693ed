"""Messages between an observer and the controller.

    observer -> controller                          controller -> observer
    Observe  asks for the run's status, with proof  Observed  the status, as JSON in the raw frame
                                                    Stop      a refusal, with its reason

Each question has its own proof, and its answer may be a second old. An observer is no node: it leaves no rows on the
ledger.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from barnraise.wire.frames import Decode, decoder
from barnraise.wire.messages import ENROL_LIMIT, Greeting, Message, Raw, Stop


class Observe(Greeting, frozen=True, tag=True):
    """Asks for the run's status."""


class Observed(Message, frozen=True, tag=True):
    """The status of `run`, as JSON in the raw frame."""

    raw: ClassVar[Raw] = Raw.ALWAYS
    run: Annotated[str, msgspec.Meta(max_length=200)]


FromObserver = Observe
ToObserver = Observed | Stop

decode_to_observer: Decode[ToObserver] = decoder(ToObserver, ENROL_LIMIT)
