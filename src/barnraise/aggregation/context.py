"""What a rule may know besides the updates, and what it keeps from version to version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .shares import NODE

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Context:
    """One `version`'s, for n updates [size].

    `nodes` [n] says whose they are, `ages` [n] how many versions behind each was as it came. `values` is the rule's
    own, by the node's name: small, of what MessagePack knows, changed in place by `mix_knowing`. `kept` are the vectors
    [size] that the rule declares to keep: they are rows behind the updates, and it writes them span by span in
    `keep`; those `fresh` hold nothing yet. Values and vectors are in checkpoints, and what is a node's is forgotten
    when it has been in no version for long. What a rule makes of all this must follow from it alone: a replay makes it
    again.
    """

    nodes: Sequence[str]
    ages: Sequence[int]
    values: dict[str, Any] = field(default_factory=dict)
    kept: Mapping[str, Array] = field(default_factory=dict)
    version: int = 1
    fresh: frozenset[str] = frozenset()

    @classmethod
    def first(cls, keeps: Sequence[str], num_updates: int, size: int, dtype: np.dtype[Any]) -> Context:
        """That of a first version: nothing is kept yet, and nodes go by their places."""
        nodes = [str(place) for place in range(num_updates)]
        kept = {name: np.zeros(size, dtype) for name in names_of(keeps, nodes)}
        return cls(nodes, [0] * num_updates, {}, kept)


def names_of(keeps: Sequence[str], nodes: Sequence[str]) -> list[str]:
    """The vectors that a rule keeps of updates of `nodes`.

    >>> names_of(["previous", "momentum of {node}"], ["ann", "bob"])
    ['previous', 'momentum of ann', 'momentum of bob']
    """
    found = []
    for name in keeps:
        found += [name.replace(NODE, node) for node in dict.fromkeys(nodes)] if NODE in name else [name]
    return found


def of_nodes(keeps: Sequence[str]) -> list[str]:
    """Those of the vectors of which there is one for each node."""
    return [name for name in keeps if NODE in name]
