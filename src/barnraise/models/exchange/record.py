"""The exchange of a run: the layout of what travels, the frozen parts, and the kind that enters it into a module.

The trained parameters come first in the vector. Where tasks are stateless, the inner optimizer's second moments belong
to no worker. They are published behind the parameters, a matrix's as the means of its rows and of its columns, whose
product is the closest of rank one (Shazeer and Stern 2018, "Adafactor", section 3). So compression, aggregation,
versions, checkpoints and digests apply to them too. Torch-free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnraise.core.ranges import CHUNK
from barnraise.models.exchange.catalog import CATALOG
from barnraise.models.exchange.layout import Layout, Leaf
from barnraise.wire.manifest import FULL_MODEL, ExchangeName

if TYPE_CHECKING:
    from barnraise.models.exchange.module import ModuleExchange  # it imports torch

UNIT = 2.0**-8
"""Change of a published moment when the second moment doubles: in an update's norm the moments weigh like parameters.

A usual task moves each by about as much.
"""

LARGEST = 96.0
"""Binary orders of magnitude by which a second moment differs from 1, at most."""

MOST_MOVED = UNIT * LARGEST
"""Largest change of a published moment by one task: from about 1 to the smallest value."""


@dataclass(frozen=True)
class Exchange:
    """The vector that travels: `layout` places the trained parameters, `moments` their second moments, if published.

    Between the two are zeros up to a multiple of the codecs' chunks. With `digits` the values travel encrypted: in
    their place is a ciphertext of that many float32 digits (`privacy.encryption.digits`). `name` is what the manifest
    says: the kind, its options, and the frozen parts of the module that a worker fetches by digest.
    """

    layout: Layout
    moments: Layout | None = None
    name: ExchangeName = FULL_MODEL
    digits: int = 0

    @classmethod
    def of(cls, config: Mapping[str, Any], name: ExchangeName = FULL_MODEL, *, moments: bool = False) -> Exchange:
        """Return the exchange of a model before it is built; without torch for known architectures.

        Raises UnknownNameError or OptionError when there is no such kind, ModelError when it has nothing to train.
        """
        options = CATALOG.resolve(name.kind, name.options)
        layout = Layout.of(CATALOG.entry(name.kind).declares.leaves(config, options))
        return cls(layout, moments_behind(layout) if moments else None, name)

    @property
    def trained(self) -> int:
        """Return the number of trained parameters: the values at the vector's start, which enter a module."""
        return self.layout.size

    @property
    def exchanged(self) -> int:
        """Return the number of values that travel: the vector's length."""
        return self.digits or (self.moments or self.layout).size

    @property
    def moments_start(self) -> int | None:
        """Return where the published moments start; None without."""
        return self.moments.leaves[0].offset if self.moments else None

    def each_moments(self) -> Iterator[tuple[slice, tuple[int, int], slice]]:
        """Yield for each leaf the slice of its parameters, its rows and columns, and the slice of its moments.

        A vector has no columns. The moments of rows come before those of columns. Nothing without published moments.
        """
        if self.moments is not None:
            for leaf, moments in zip(self.layout.leaves, self.moments.leaves, strict=True):
                yield leaf.place, sides(leaf), moments.place

    def parts(self, folder: Path) -> list[Path]:
        """Return the files of the frozen parts in `folder`: the weights of a checkpoint."""
        return [folder / part.name for part in self.name.frozen]

    def in_float32(self) -> Exchange:
        """Return the same exchange with its base in float32."""
        name = self.name
        if "base" not in name.options:
            return self
        return replace(self, name=ExchangeName(name.kind, name.options | {"base": "float32"}, name.frozen))

    def module_exchange(self) -> ModuleExchange:
        """Import and return the kind's torch side."""
        found: ModuleExchange = CATALOG.create(self.name.kind, **self.name.options)
        return found


def moments_behind(layout: Layout) -> Layout:
    """Return the layout of the second moments of `layout`, from the next multiple of the codecs' chunks on."""
    start = -(-layout.size // CHUNK) * CHUNK
    return Layout.of(((leaf.name, (sum(sides(leaf)),)) for leaf in layout.leaves), start)


def sides(leaf: Leaf) -> tuple[int, int]:
    """Return the rows and columns of a tensor, whose last axes are merged; a vector has no columns.

    >>> sides(Leaf("a", (3, 4, 5))), sides(Leaf("b", (7,)))
    ((3, 20), (7, 0))
    """
    if len(leaf.shape) < 2:
        return leaf.size, 0
    return leaf.shape[0], leaf.size // leaf.shape[0]
