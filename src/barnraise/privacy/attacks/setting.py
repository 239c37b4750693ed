"""The setting of an attack: a model, rows, local training, and the protection that an update passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from barnraise.core.errors import InputError
from barnraise.data.batches import Rows
from barnraise.models.build import build
from barnraise.models.exchange.layout import Layout
from barnraise.privacy.attacks.protections import Protection
from barnraise.training.local import LocalTrainer

MOST_PARAMETERS = 20_000_000
"""Largest model of an attack: each trial trains on it and keeps several vectors of its size."""

CALIBRATIONS = 9
"""Updates on public rows whose median norm becomes the bound of clipping."""


@dataclass(frozen=True)
class LocalTraining:
    """The local training that makes an update: `steps` steps of the inner optimizer, each on `batch_size` rows."""

    optimizer: str = "sgd"
    options: Mapping[str, float] = field(default_factory=lambda: {"weight_decay": 0.0})
    learning_rate: float = 0.1
    steps: int = 1
    batch_size: int = 1
    gradient_clip: float | None = None

    @property
    def rows(self) -> int:
        """Return the rows of one update."""
        return self.steps * self.batch_size


class AttackSetting:
    """The subject of an attack; not thread-safe.

    `config` is a model's resolved config, and `rows` are token rows [n, length] without padding. The first half of
    them, in a shuffled order, is private: victims' rows are drawn from it. The other half is public: the adversary
    knows it. `start` are the parameters before the update, float32 [d]; None: those of the seed.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        rows: Rows,
        training: LocalTraining,
        protection: Protection,
        *,
        start: Tensor | None = None,
        seed: int = 0,
    ) -> None:
        """Raise InputError when there are too few rows for the local training, or the model is too large."""
        self.config, self.training, self.protection = config, training, protection
        if len(rows) < 4 * training.rows:
            raise InputError(
                f"{len(rows)} rows are too few: an update takes {training.rows}, and private and public halves need "
                f"two updates each; give at least {4 * training.rows} rows, or lower the batch size or local steps"
            )
        order = np.random.default_rng(seed).permutation(len(rows))
        shuffled = np.asarray(rows, dtype=np.int64)[order]
        self.private, self.public = shuffled[: len(rows) // 2], shuffled[len(rows) // 2 :]
        self.trainer = LocalTrainer(
            build(config, seed),
            optimizer=training.optimizer,
            options=training.options,
            gradient_clip=training.gradient_clip,
        )
        if self.layout.size > MOST_PARAMETERS:
            raise InputError(
                f"the model has {self.layout.size:,} parameters, but attacks take {MOST_PARAMETERS:,} at most; "
                "attack a smaller model of the same architecture (model.config)"
            )
        self.start = self.trainer.flat.vector.clone() if start is None else start.clone()
        protection.bound = self._usual_norm(np.random.default_rng([seed, 1]))

    @property
    def layout(self) -> Layout:
        """Return the place of each named tensor in a vector."""
        return self.trainer.flat.layout

    @property
    def vocab_size(self) -> int:
        """Return the number of token ids."""
        return int(self.config["vocab_size"])

    @property
    def length(self) -> int:
        """Return the tokens of a row."""
        return int(self.private.shape[1])

    def module(self, parameters: Tensor | None = None) -> nn.Module:
        """Return the module with `parameters` (float32 [d]; None: the start's), until the next call of a method."""
        self.trainer.load(self.start if parameters is None else parameters)
        return self.trainer.module

    def draw(self, rng: np.random.Generator, members: int = 1) -> list[Rows]:
        """Draw the private rows of `members` workers, int64 [rows, length] each; no row is drawn twice.

        Rows are drawn again where there are too few for the group.
        """
        return _draw(self.private, self.training.rows, members, rng)

    def draw_public(self, rng: np.random.Generator) -> Rows:
        """Draw public rows as many as an update has, for a control."""
        return _draw(self.public, self.training.rows, 1, rng)[0]

    def update(self, rows: Rows, start: Tensor | None = None) -> Tensor:
        """Return the update of a worker's local training on `rows`, before minus after: float32 [d]."""
        before = self.start if start is None else start
        self.trainer.load(before)
        self.trainer.forget()
        size = self.training.batch_size
        for first in range(0, len(rows), size):
            batch = rows[first : first + size]
            self.trainer.step({"input_ids": batch, "labels": batch}, self.training.learning_rate)
        return before - self.trainer.flat.vector

    def group(self, rng: np.random.Generator) -> tuple[list[Rows], Tensor]:
        """Return the rows of each member of a drawn group, the victim first, and the vector that the adversary sees."""
        members = self.draw(rng, self.protection.members)
        return members, self.protection.seen([self.update(rows) for rows in members], rng)

    def parts(self, vector: Tensor) -> dict[str, Tensor]:
        """Return the views of a vector [d] by the names of their tensors."""
        return {leaf.name: vector[leaf.place].view(leaf.shape) for leaf in self.layout.leaves}

    def _usual_norm(self, rng: np.random.Generator) -> float:
        updates = [self.update(self.draw_public(rng)) for _ in range(CALIBRATIONS)]
        return float(np.median([float(torch.linalg.vector_norm(update)) for update in updates]))


def _draw(rows: Rows, each: int, members: int, rng: np.random.Generator) -> list[Rows]:
    wanted = each * members
    places = rng.choice(len(rows), wanted, replace=wanted > len(rows))
    return [rows[places[member * each : (member + 1) * each]] for member in range(members)]
