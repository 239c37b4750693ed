"""Attacks on scheduling: claims, delays, refusals.

They change no tensor, so no torch is imported.
"""

from __future__ import annotations

import random

import msgspec

from barnraise.core.types import LinkReport, NodeProfile
from barnraise.wire.messages import Heartbeat, Hello, Message, RequestTask

from .base import Attack


class Instant(Attack):
    """Takes one step of h, claims all of them, and is done at once: a scheduler by speed gives it most of the work."""

    def num_steps(self, assigned: int) -> int:
        return min(assigned, 1)

    def pace(self) -> float:
        return 0.0


class Claim(Attack):
    """Claims to train `speed` times as fast as it does, with a link `link` times as fast.

    And as many times less delay: inflated to get more work, deflated to get less and delay it.
    """

    def __init__(self, speed: float, link: float) -> None:
        self.speed, self.link = speed, link

    def says(self, message: Message) -> Message:
        if isinstance(message, Hello):
            return msgspec.structs.replace(message, profile=self._profile(message.profile))
        if isinstance(message, RequestTask):
            return msgspec.structs.replace(message, link=self._report(message.link))
        if isinstance(message, Heartbeat) and (told := message.telemetry) is not None:
            rate, seconds = told.tokens_per_second * self.speed, told.step_seconds / self.speed
            about = msgspec.structs.replace(
                told, link=self._report(told.link), tokens_per_second=rate, step_seconds=seconds
            )
            return msgspec.structs.replace(message, telemetry=about)
        return message

    def _profile(self, true: NodeProfile) -> NodeProfile:
        return msgspec.structs.replace(
            true,
            tokens_per_second=true.tokens_per_second * self.speed,
            up_bytes_per_second=true.up_bytes_per_second * self.link,
            down_bytes_per_second=true.down_bytes_per_second * self.link,
            latency_seconds=true.latency_seconds / self.link,
        )

    def _report(self, true: LinkReport) -> LinkReport:
        return LinkReport(true.round_trip / self.link, true.up * self.link, true.down * self.link)


class Hold(Attack):
    """Submits its result when that is nearly too stale: at `share` of its bound, after `most` seconds at the latest.

    Late work moves a model that has changed since.
    """

    def __init__(self, share: float, most: float) -> None:
        self.share, self.most = share, most

    def holds(self, staleness: int, bound: int, seconds: float) -> bool:
        return staleness < self.share * bound and seconds < self.most


class SlowDown(Attack):
    """Takes for each task `growth` times as long as for the one before, up to `most` times.

    A node that slows down step by step is never late by its observed times, and delays all that wait for it.
    """

    def __init__(self, growth: float, most: float) -> None:
        self.growth, self.most = growth, most
        self._pace, self._last = 1.0, ""

    def in_task(self, moment: str) -> Attack:
        if moment != self._last:
            self._pace, self._last = min(self.most, self._pace * self.growth), moment
        return self

    def pace(self) -> float:
        return self._pace


class Refuse(Attack):
    """Declines a `share` of its tasks, and asks for another.

    Randomness is drawn from `seed`, the node's name and the task.
    """

    def __init__(self, share: float, seed: int) -> None:
        self.share, self.seed = share, seed
        self._takes = True

    def in_task(self, moment: str) -> Attack:
        acting = Refuse(self.share, self.seed)
        acting._takes = random.Random(f"refuse {self.seed} {moment}").random() >= self.share
        return acting

    def takes(self) -> bool:
        return self._takes


class Flood(Attack):
    """Asks for a task `rate` times a second, whatever it has."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    @property
    def floods(self) -> float:
        return self.rate
