"""The interface of an attempt, and the trace that it leaves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from random import Random
from typing import ClassVar, NamedTuple

from .evidence import Mark
from .scene import Scene
from .ways import WAYS


class Trace(NamedTuple):
    """The trace of an attempt.

    `heard` is the answer that the controller should not have given to its maker ("": nothing). The marks must not be
    seen on the controller's side.
    """

    heard: str = ""
    marks: tuple[Mark, ...] = ()


class Attempt(ABC):
    """One kind of attempt. `ways` are the doors it is made at. Each try has an instance, with chance
    of its own; its keys are fresh."""

    ways: ClassVar[tuple[str, ...]] = WAYS
    lasting: ClassVar[bool] = False
    """Whether it takes long and does little, so that many such attempts run at a time."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    @abstractmethod
    async def make(self, scene: Scene, way: str) -> Trace:
        """Try it. OSError and AddressError: it was hung up on, or not even heard. Raises Unmade."""
