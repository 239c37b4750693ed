"""An adaptive attack: it searches for the update that raises the loss most, instead of the furthest one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from barnraise.aggregation.base import Rule
from barnraise.compression.base import Array
from barnraise.controller.tensors.weigher import HARM, HARM_SHARE, lower

from .board import FEWEST, Scene
from .seeing import LONGEST, Seeing, against, aggregate, mean_of
from .surface import Surface, unit

STEPS = 8
"""Steps uphill that give a direction."""

STRIDE, RADIUS = 0.25, 0.3
"""The length of a step, and the most that all of them lead, in units of the honest updates' spread."""

LENGTHS = [2.0 ** (k / 2) for k in range(-4, 5)]
"""Lengths to try, in units of the honest updates' spread: from a quarter to four."""

ALONE = 0.8
"""Distance from its own update, in lengths of that update, for an attacker that sees no other."""


class Ascent(Seeing):
    """Sends D' = mu + gamma * s * p, which raises most the loss L that the attacker measures on its task's rows.

    s is the median distance of an honest update from mu. p has length 1: the gradient of L at mu, the direction in
    which `STEPS` steps uphill lead that stay within `RADIUS` * s of mu, or -mu / ||mu||. The attacker sends the D' with
    the highest L(A(x_1 ... x_m, D' ... D')), A being the aggregation rule, of all p and all gamma in `LENGTHS`. It
    knows the honest updates, the rule, the number of liars, the published parameters and its own rows. All liars send
    the same. Projected gradient ascent with a search over the rule, as Shejwalkar et al. (2022), "Back to the Drawing
    Board: A Critical Evaluation of Poisoning Attacks on Production Federated Learning", with steps that stay near mu.

    With `gate` the attacker takes the loss after the loss gate instead (`gated`), for each D' that it tries.

    A `blind` attacker, and one that sees no others, knows its own honest update x, the published parameters and its own
    rows alone: D' = x + 0.8 * ||x|| * p, shortened to ||x||, p being the direction of steps uphill from x.
    """

    def __init__(self, blind: bool, gate: bool, rule: str | None) -> None:
        self.blind, self.gate, self.rule = blind, gate, rule

    @property
    def sees(self) -> bool:
        return not self.blind

    def update(self, vector: Tensor, scene: Scene) -> None:
        assert scene.surface is not None, "an attacker that trains has rows"
        surface, posted = scene.surface, scene.board.honest(scene.base)
        if self.blind or len(posted) < FEWEST:
            lie = alone(vector.numpy(), surface)
        else:
            what = ("ascent", self.gate, self.rule, scene.base)
            lie = scene.board.agree(what, lambda: self.lie(np.stack(posted), scene))
        vector.numpy()[:] = lie

    def lie(self, honest: Array, scene: Scene) -> Array:
        surface, rule, liars = scene.surface, against(self.rule, scene.board), scene.board.num_liars
        assert surface is not None
        mean = mean_of(honest)
        spread = float(np.median(np.linalg.norm(honest - mean, axis=1)))
        longest = LONGEST * float(np.median(np.linalg.norm(honest, axis=1)))
        best: Array = mean
        most = -np.inf
        for way in (surface.ascent(mean), uphill(mean, spread, surface), -unit(mean)):
            for length in LENGTHS:
                lie: Array = mean + np.float32(length * spread) * way
                if np.linalg.norm(lie) > longest:
                    break
                rows = [*honest, *[lie] * liars]
                loss = gated(rule, rows, surface) if self.gate else surface.loss(aggregate(rule, rows))
                if loss > most:
                    best, most = lie, loss
        return best


def gated(rule: Rule, rows: Sequence[Array], surface: Surface) -> float:
    """Return L after a version of the updates `rows` that passed the loss gate, as estimated by the attacker.

    The gate is in `controller.tensors.weigher`; it measures on rows of its own, and the attacker on others.
    """
    kept, made = list(rows), aggregate(rule, rows)
    losses = surface.losses(made)
    for _ in range((len(rows) - 1) // 2):
        way = surface.ascent(made)
        harm = [float(np.dot(row - made, way)) for row in kept]
        worst = int(np.argmax(harm))
        rest = kept[:worst] + kept[worst + 1 :]
        without = aggregate(rule, rest)
        left = surface.losses(without)
        if not (harm[worst] > 0.0 and lower(losses - left)):
            break
        kept, made, losses = rest, without, left
    still = surface.losses(np.zeros_like(made))
    if lower(losses - still, HARM) and losses.mean() > (1.0 + HARM_SHARE) * still.mean():
        losses = still  # the model does not move
    return float(losses.mean())


def uphill(start: Array, spread: float, surface: Surface) -> Array:
    """Return the direction [d], of length 1, of steps uphill from `start`, never further than a ball around it."""
    place = start
    for _ in range(STEPS):
        moved = place + np.float32(STRIDE * spread) * surface.ascent(place) - start
        length = float(np.linalg.norm(moved))
        place = start + moved * np.float32(min(1.0, RADIUS * spread / max(length, 1e-30)))
    return unit(place - start)


def alone(own: Array, surface: Surface) -> Array:
    """Return D' [d] of an attacker that knows its `own` honest update and no other."""
    length = float(np.linalg.norm(own))
    lie = own + np.float32(ALONE * length) * uphill(own, ALONE * length, surface)
    shortened: Array = lie * np.float32(min(1.0, length / max(float(np.linalg.norm(lie)), 1e-30)))
    return shortened
