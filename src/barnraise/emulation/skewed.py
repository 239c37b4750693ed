"""Skewed data in a simulation: each node gets rows of its own kinds where a task names any.

Rows of a length are sorted along the direction in which their counts of tokens differ most, and cut into groups; a
node's shares of the groups are drawn from a Dirichlet distribution (Hsu et al. 2019, "Measuring the Effects of
Non-Identical Data Distribution for Federated Visual Classification", with groups for labels). The number of a task's
rows, and their length, do not change. An audit of such a node's work finds other rows.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barnraise.data.shards import Dataset

GROUPS = 8
BUCKETS = 256
"""Tokens are counted by their remainder: vocabularies may be large."""

Array = NDArray[Any]


class Skew:
    """The groups of the rows of `dataset`; the smaller the `concentration`, the fewer of them a node has."""

    def __init__(self, dataset: Dataset, concentration: float, seed: int) -> None:
        self._dataset, self._concentration, self._seed = dataset, concentration, seed
        self._groups: dict[int, list[Array]] = {}  # by length: for each group, [rows, 2] shards and places
        for length in dataset.meta.lengths:
            places = [
                (shard, row)
                for shard, info in enumerate(dataset.meta.shards)
                if dataset.meta.row_length(info) == length
                for row in range(info.rows)
            ]
            shards = sorted({shard for shard, _ in places})
            rows = np.concatenate([dataset.rows(shard, 0, dataset.meta.shards[shard].rows) for shard in shards])
            self._groups[length] = np.array_split(np.array(places)[np.argsort(spread(rows), kind="stable")], GROUPS)

    def of(self, node: str) -> Dataset:
        """Return the dataset as `node` has it."""
        chance = np.random.default_rng(random.Random(f"skew {self._seed} {node}").getrandbits(64))
        shares = chance.dirichlet([self._concentration] * GROUPS)
        return _Kinds(self._dataset, self._groups, shares, chance)


class _Kinds(Dataset):
    """Reads other rows of the same length than those requested: for each always the same one."""

    def __init__(
        self, dataset: Dataset, groups: dict[int, list[Array]], shares: Array, chance: np.random.Generator
    ) -> None:
        super().__init__(dataset.folder, dataset.meta)
        self._instead: list[Array] = []  # by shard
        for info in dataset.meta.shards:
            found = [group for group in groups[dataset.meta.row_length(info)] if len(group)]
            some = shares[: len(found)] + 1e-12
            which = chance.choice(len(found), size=info.rows, p=some / some.sum())
            places = [found[group][int(chance.integers(len(found[group])))] for group in which]
            self._instead.append(np.array(places))

    def rows(self, shard: int, start: int, stop: int) -> Array:
        super().rows(shard, start, stop)  # refuses invalid ranges
        read = super().rows
        return np.concatenate([read(int(of), int(at), int(at) + 1) for of, at in self._instead[shard][start:stop]])


def spread(rows: Array) -> Array:
    """Return where each of `rows` [n] lies along the direction in which their first columns differ most [n]."""
    counts = np.zeros((len(rows), BUCKETS), np.float32)
    first = rows[(rows.dtype.names or ())[0]]
    for column in first.reshape(len(rows), -1).T:
        np.add.at(counts, (np.arange(len(rows)), column.astype(np.int64) % BUCKETS), 1.0)
    counts -= counts.mean(axis=0)
    direction = np.linalg.eigh(counts.T @ counts)[1][:, -1]
    found: Array = counts @ (direction * np.sign(direction[np.abs(direction).argmax()]))
    return found
