"""What an attempt is, and what came of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from random import Random
from typing import ClassVar, NamedTuple

from .evidence import Mark
from .scene import Scene
from .ways import WAYS


class Trace(NamedTuple):
    """What an attempt left: what its maker `heard` that nobody should have told it ("": nothing), and what must not be
    seen on the controller's side."""

    heard: str = ""
    marks: tuple[Mark, ...] = ()


class Attempt(ABC):
    """One kind of attempt. `ways` are the doors it is made at. Each try has an instance, with chance
    of its own; its keys are fresh."""

    ways: ClassVar[tuple[str, ...]] = WAYS
    lasting: ClassVar[bool] = False
    """Whether it takes long and does little, so that many go on at a time."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    @abstractmethod
    async def make(self, scene: Scene, way: str) -> Trace:
        """Try it. OSError and AddressError: it was hung up on, or not even heard. Raises Unmade."""
