"""Withholding of what a worker with rows of its own does not release, from all of its messages."""

from __future__ import annotations

import msgspec

from barnraise.core.sites import Releases
from barnraise.core.types import LinkReport, NodeProfile
from barnraise.wire.messages import Heartbeat, Hello, Message, RequestTask, Welcome


def effective(most: Releases | None, welcome: Welcome | None) -> Releases | None:
    """Return what a worker releases: at most what its owner allows and what the run wants; None: all."""
    if most is None or welcome is None or welcome.settings.site is None:
        return most
    return most.within(welcome.settings.site.releases)


def withheld(message: Message, releases: Releases | None) -> Message:
    """Return a message without what is not released."""
    if releases is None:
        return message
    if isinstance(message, Hello) and releases.machine == "off":
        return msgspec.structs.replace(message, profile=NodeProfile())
    if releases.telemetry == "off" and isinstance(message, Heartbeat):
        return msgspec.structs.replace(message, telemetry=None)
    if releases.telemetry == "off" and isinstance(message, RequestTask):
        return msgspec.structs.replace(message, link=LinkReport())
    return message
