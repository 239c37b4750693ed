"""Attacks that use others' updates, and hide among them.

In the formulas x_1 ... x_m are the honest updates that are known (`board.Scene.others`), mu and s their mean and
standard deviation in each coordinate, n the nodes and f the liars, and D' (float32 [d]) is sent, before error feedback
and codec. All liars that see the same send the same.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from barnraise import aggregation
from barnraise.aggregation.base import Rule
from barnraise.core.errors import OptionError

from .base import Attack
from .board import FEWEST, Array, Board, Scene

LONE_Z = 1.0
"""z of an attacker that does not know the numbers of nodes and liars."""

MOST_LIKELY = 0.999
"""The quantile at which z is taken, at most: with a majority of liars there would be none."""

FACTORS = [2.0 ** (k / 2) for k in range(-6, 13)]
"""Factors that a search tries: from an eighth to 64."""

LONGEST = 15.0
"""Times the median honest update's norm: the controller shortens a longer lie, or detects it."""

ENOUGH = 0.99
"""Share of the worst harm at which a search stops: a longer lie is only detected more easily."""


class Seeing(Attack):
    """Sends the `lie` that it computes from the honest updates."""

    @property
    def sees(self) -> bool:
        return True

    def update(self, vector: Tensor, scene: Scene) -> None:
        honest = np.stack(scene.others(vector.numpy()))
        vector.numpy()[:] = self.lie(honest, scene)

    @abstractmethod
    def lie(self, honest: Array, scene: Scene) -> Array:
        """Return D' [d] for the updates `honest` [m, d], which are scratch."""


class InnerProduct(Seeing):
    """Sends D' = -epsilon * mu.

    A small epsilon stays close to the honest and turns the mean of few, one above (n - f) / f turns any mean. Xie et
    al. (2019), "Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product Manipulation".

    >>> from barnraise.emulation.attacks.board import Board
    >>> board = Board()
    >>> board.post("ann", 0, np.array([1, 0], np.float32))
    >>> board.post("bob", 0, np.array([3, 2], np.float32))
    >>> vector = torch.zeros(2)
    >>> InnerProduct(epsilon=0.5).update(vector, Scene("", board=board))
    >>> vector.tolist()
    [-1.0, -0.5]
    """

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def lie(self, honest: Array, scene: Scene) -> Array:
        return -np.float32(self.epsilon) * mean_of(honest)


class LittleIsEnough(Seeing):
    """Sends D' = mu - z * s, with enough honest updates further out that a rule takes the liars for the middle.

    Without a given z the one of the paper: Phi(z) = (n - f - q) / (n - f), q = floor(n/2 + 1) - f. Baruch et al.
    (2019), "A Little Is Enough: Circumventing Defenses For Distributed Learning".
    """

    def __init__(self, z: float | None) -> None:
        self.z = z

    def lie(self, honest: Array, scene: Scene) -> Array:
        z = largest_z(len(honest), scene.board) if self.z is None else self.z
        return mean_of(honest) - np.float32(z) * spread_of(honest)


def mean_of(honest: Array) -> Array:
    """Return mu [d] of updates [m, d]."""
    found: Array = honest.mean(axis=0)
    return found


def spread_of(honest: Array) -> Array:
    """Return s [d] of updates [m, d]."""
    found: Array = honest.std(axis=0)
    return found


def largest_z(num_honest: int, board: Board) -> float:
    """Return the paper's z for the honest nodes that are known beside the liars.

    >>> board = Board()
    >>> board.liars |= {f"eve-{number}" for number in range(12)}
    >>> round(largest_z(38, board), 3)
    0.336
    """
    if num_honest <= FEWEST:
        return LONE_Z
    nodes = num_honest + board.num_liars
    needed = math.floor(nodes / 2 + 1) - board.num_liars
    share = (num_honest - needed) / num_honest
    return NormalDist().inv_cdf(min(MOST_LIKELY, share)) if share > 0.5 else 0.0


class Searching(Seeing):
    """Tries lies of several lengths against a rule, and sends the one that leads its aggregate furthest from mu.

    As Shejwalkar and Houmansadr (2021), "Manipulating the Byzantine", with knowledge of the rule; none that would be
    refused for its norm. `rule` None: the run's, where the board knows it, or the mean.
    """

    def __init__(self, rule: str | None) -> None:
        self.rule = rule

    @abstractmethod
    def direction(self, honest: Array) -> tuple[Array, Array]:
        """Return the start and the direction of the lies, each [d]."""

    def lie(self, honest: Array, scene: Scene) -> Array:
        origin, way = self.direction(honest)
        rule = against(self.rule, scene.board)
        mean, liars = mean_of(honest), scene.board.num_liars

        def harm(factor: float) -> float:
            lie = origin + np.float32(factor) * way
            return float(np.linalg.norm(aggregate(rule, [*honest, *[lie] * liars]) - mean))

        longest = LONGEST * float(np.median(np.linalg.norm(honest, axis=1)))
        inside = [f for f in FACTORS if np.linalg.norm(origin + np.float32(f) * way) <= longest] or FACTORS[:1]
        found = [harm(factor) for factor in inside]
        chosen = next(factor for factor, done in zip(inside, found, strict=True) if done >= ENOUGH * max(found))
        return origin + np.float32(chosen) * way


class OptimisedInnerProduct(Searching):
    """Sends D' = -epsilon * mu with the epsilon that does the most harm."""

    def direction(self, honest: Array) -> tuple[Array, Array]:
        mean = mean_of(honest)
        return np.zeros_like(mean), -mean


class OptimisedLittle(Searching):
    """Sends D' = mu - z * s with the z that does the most harm."""

    def direction(self, honest: Array) -> tuple[Array, Array]:
        return mean_of(honest), -spread_of(honest)


def against(name: str | None, board: Board) -> Rule:
    """Return the rule that a lie is tried on: the one of that name with the number of liars as its f.

    None: the run's, or the mean where the run's is not known.
    """
    if name is None:
        return board.rule or aggregation.create("mean")
    options: dict[str, Any] = {"f": board.num_liars}
    known = aggregation.CATALOG.entry(name).known_options
    return aggregation.create(name, **{option: value for option, value in options.items() if option in known})


def aggregate(rule: Rule, rows: Sequence[Array]) -> Array:
    """Return the aggregate of the rows by `rule`; their mean where they are too few for it."""
    try:
        found: Array = rule([torch.from_numpy(row) for row in rows]).numpy()
    except OptionError:  # too few are known
        found = np.mean(rows, axis=0)
    return found


Floats = NDArray[np.float64]
Perturbation = Literal["std", "unit", "sign"]


class MinMax(Seeing):
    """Sends D' = mu + gamma * p with the largest gamma that stays among the honest updates.

    D' is no further from any honest update than two of these are from each other: max_i ||D' - x_i|| <= max_ij ||x_i -
    x_j||. p is -s, -mu / ||mu|| or -sign(mu). Shejwalkar and Houmansadr (2021), "Manipulating the Byzantine", search
    for gamma; it is a root.
    """

    def __init__(self, perturbation: Perturbation) -> None:
        self.perturbation = perturbation

    def lie(self, honest: Array, scene: Scene) -> Array:
        mean = mean_of(honest)
        way = self._way(honest, mean)
        gamma = self.gamma(honest - mean, way)
        return mean + np.float32(gamma) * way

    def _way(self, honest: Array, mean: Array) -> Array:
        if self.perturbation == "std":
            return -spread_of(honest)
        if self.perturbation == "sign":
            signs: Array = np.sign(mean)
            return -signs
        return -mean / np.float32(max(float(np.linalg.norm(mean)), 1e-30))

    def gamma(self, centred: Array, way: Array) -> float:
        """Return the largest that hides among updates [m, d] around 0, along `way` [d]."""
        inner, squares, distances = _geometry(centred, way)
        length = _square(way)
        return min(largest_root(length, -2 * i, s - distances.max()) for i, s in zip(inner, squares, strict=True))


class MinSum(MinMax):
    """As `MinMax`, but sum_i ||D' - x_i||^2 <= max_i sum_j ||x_i - x_j||^2: less far, and less noticeable."""

    def gamma(self, centred: Array, way: Array) -> float:
        inner, squares, distances = _geometry(centred, way)
        most = distances.sum(axis=1).max()
        return largest_root(len(centred) * _square(way), -2 * inner.sum(), squares.sum() - most)


def _geometry(centred: Array, way: Array) -> tuple[Floats, Floats, Floats]:
    """Return the rows' inner products with `way` [m], their squares [m], and their squared distances [m, m]."""
    gram = _gram(centred)
    squares = np.diagonal(gram)
    inner = np.array([float(np.dot(row, way)) for row in centred])
    return inner, squares, np.maximum(squares[:, None] + squares[None, :] - 2 * gram, 0.0)


def _square(vector: Array) -> float:
    return float(np.dot(vector, vector))


def largest_root(a: float, b: float, c: float) -> float:
    """Return the largest root of a x^2 + b x + c; 0 where there is none above it.

    >>> largest_root(1.0, -1.0, -6.0), largest_root(0.0, 0.0, -1.0)
    (3.0, 0.0)
    """
    under = b * b - 4 * a * c
    return max(0.0, (-b + math.sqrt(under)) / (2 * a)) if a > 0 and under > 0 else 0.0


class Mimic(Seeing):
    """Sends D' = x_i of one honest node i, which counts f times more over skewed data.

    No part of it is a lie, but the others' share is lost. i is the one that stands out most along the direction in
    which the first updates that were seen differ most, and stays; an attacker that sees no update copies the fleet's
    movement. Karimireddy et al. (2022), "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing".
    """

    def lie(self, honest: Array, scene: Scene) -> Array:
        posted = scene.board.posted
        if len(posted) < FEWEST:
            lone: Array = honest[-1]
            return lone
        return posted[scene.board.agree("mimicked", lambda: _most_apart(posted))]


def _most_apart(posted: Mapping[str, Array]) -> str:
    """Return the node whose update projects furthest on the first principal direction of all."""
    centred = np.stack(list(posted.values()))
    centred -= centred.mean(axis=0)
    return list(posted)[int(np.abs(np.linalg.eigh(_gram(centred))[1][:, -1]).argmax())]


def _gram(rows: Array) -> Floats:
    found: Floats = np.array([[float(np.dot(one, other)) for other in rows] for one in rows])
    return found
