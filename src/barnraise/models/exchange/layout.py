"""The place of each named tensor in the one flat float32 vector that travels; torch-free."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from barnraise.core.errors import ModelError

FLOAT32 = "float32"

MAX_VALUES = 1 << 40
"""Most values of a layout."""

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A named tensor, flattened into the values from `offset` on of a vector of `dtype`."""

    name: str
    shape: Shape
    offset: int = 0
    dtype: str = FLOAT32

    @property
    def size(self) -> int:
        """Return the number of its values."""
        return math.prod(self.shape)

    @property
    def place(self) -> slice:
        """Return its place in the vector.

        >>> Leaf("a", (2, 3), offset=4).place
        slice(4, 10, None)
        """
        return slice(self.offset, self.offset + self.size)


@dataclass(frozen=True)
class Layout:
    """The leaves of a vector in the order of their places; a tensor that a module uses several times is listed once."""

    leaves: tuple[Leaf, ...]

    def __post_init__(self) -> None:
        if not self.leaves:
            raise ModelError("no tensor would travel; name an exchange with at least one")
        if len({leaf.name for leaf in self.leaves}) < len(self.leaves):
            raise ModelError("two tensors that travel have the same name; rename one")
        if self.size > MAX_VALUES:
            raise ModelError(f"{self.size} values would travel, but a layout has {MAX_VALUES} at most")

    @classmethod
    def of(cls, shapes: Iterable[tuple[str, Shape]], start: int = 0) -> Layout:
        """Return the layout of named shapes, one behind the other from `start` on."""
        leaves = list[Leaf]()
        for name, shape in shapes:
            leaves.append(Leaf(name, tuple(shape), start))
            start += leaves[-1].size
        return cls(tuple(leaves))

    @property
    def size(self) -> int:
        """Return the number of values up to the end of the last leaf."""
        last = self.leaves[-1]
        return last.offset + last.size
