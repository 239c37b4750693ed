"""The context of a rule: metadata of the updates, and its state from version to version."""

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
    """The context of one `version`, for n updates [size].

    `nodes` [n] are their senders, `ages` [n] how many versions behind each was at its arrival. `values` is the rule's
    own state, by the node's name: small, of MessagePack types, changed in place by `mix_knowing`. `kept` are the
    vectors [size] that the rule declares to keep: they are rows behind the updates, and it writes them span by span in
    `keep`; those `fresh` hold nothing yet. Values and vectors are in checkpoints, and a node's are dropped when it has
    been in no version for long. The rule must depend on nothing else: a replay computes it again.
    """

    nodes: Sequence[str]
    ages: Sequence[int]
    values: dict[str, Any] = field(default_factory=dict)
    kept: Mapping[str, Array] = field(default_factory=dict)
    version: int = 1
    fresh: frozenset[str] = frozenset()

    @classmethod
    def first(cls, keeps: Sequence[str], num_updates: int, size: int, dtype: np.dtype[Any]) -> Context:
        """Return the context of a first version: nothing is kept yet, and nodes are named by their indices."""
        nodes = [str(place) for place in range(num_updates)]
        kept = {name: np.zeros(size, dtype) for name in names_of(keeps, nodes)}
        return cls(nodes, [0] * num_updates, {}, kept)


def names_of(keeps: Sequence[str], nodes: Sequence[str]) -> list[str]:
    """Return the names of the vectors that a rule keeps of updates of `nodes`.

    >>> names_of(["previous", "momentum of {node}"], ["ann", "bob"])
    ['previous', 'momentum of ann', 'momentum of bob']
    """
    found = []
    for name in keeps:
        found += [name.replace(NODE, node) for node in dict.fromkeys(nodes)] if NODE in name else [name]
    return found


def of_nodes(keeps: Sequence[str]) -> list[str]:
    """Return those of the vectors that exist once for each node."""
    return [name for name in keeps if NODE in name]
