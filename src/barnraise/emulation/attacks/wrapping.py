"""Attacks that play others occasionally, or together."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from barnraise.wire.messages import Message

from .base import HONEST, Attack, Target
from .catalog import create

if TYPE_CHECKING:  # these import torch
    from torch import Tensor

    from barnraise.compression.base import Encoded
    from barnraise.data.batches import Batch
    from barnraise.data.shards import Dataset

    from .board import Scene


class Wrapping(Attack):
    """Plays the attack `of` in some tasks."""

    def __init__(self, of: Mapping[str, Any]) -> None:
        self.of = create(of)

    @property
    def sees(self) -> bool:
        return self.of.sees

    def meet(self, dataset: Dataset) -> None:
        self.of.meet(dataset)

    def says(self, message: Message) -> Message:
        return self.of.says(message)

    @property
    def floods(self) -> float:
        return self.of.floods

    def residual(self, vector: Tensor) -> None:
        self.of.residual(vector)

    def target(self, module: Any, dataset: Dataset) -> Target | None:
        return self.of.target(module, dataset)


class Intermittent(Wrapping):
    """Plays the attack `of` in a task with probability `share`, and is honest otherwise.

    So its record is good. The on-off attack on trust (Sun et al. 2008, "Defense of Trust Management Vulnerabilities in
    Distributed Networks"). Randomness is drawn from `seed`, the node's name and the task.
    """

    def __init__(self, of: Mapping[str, Any], share: float, seed: int) -> None:
        super().__init__(of)
        self.share, self.seed = share, seed

    def in_task(self, moment: str) -> Attack:
        attacks = random.Random(f"intermittent {self.seed} {moment}").random() < self.share
        return self.of.in_task(f"{moment} within") if attacks else HONEST


class Reputation(Wrapping):
    """Honest in the first `after` tasks of its process, and plays the attack `of` from then on.

    So it has a reputation as it begins. The camouflage of "sleeper" members, as in Sun et al. (2008).
    """

    def __init__(self, of: Mapping[str, Any], after: int) -> None:
        super().__init__(of)
        self.after = after
        self._tasks, self._last = 0, ""

    def in_task(self, moment: str) -> Attack:
        if moment != self._last:  # a task may be asked about more than once
            self._tasks, self._last = self._tasks + 1, moment
        return self.of.in_task(f"{moment} within") if self._tasks > self.after else HONEST


class Colluding(Wrapping):
    """Plays the attack `of` in collusion: all liars send what the first of them makes of a version.

    A rule that looks for neighbours finds them close together (Fang et al. 2020, "Local Model Poisoning Attacks to
    Byzantine-Robust Federated Learning"). A node that shares no board with others, as in a live run, plays `of` alone.
    """

    def __init__(self, of: Mapping[str, Any]) -> None:
        super().__init__(of)
        self._acting = self.of

    def in_task(self, moment: str) -> Attack:
        self._acting = self.of.in_task(f"{moment} within")
        return self

    def takes(self) -> bool:
        return self._acting.takes()

    def pace(self) -> float:
        return self._acting.pace()

    def holds(self, staleness: int, bound: int, seconds: float) -> bool:
        return self._acting.holds(staleness, bound, seconds)

    def num_steps(self, assigned: int) -> int:
        return self._acting.num_steps(assigned)

    def batch(self, batch: Batch, vocab_size: int) -> Batch:
        return self._acting.batch(batch, vocab_size)

    def update(self, vector: Tensor, scene: Scene) -> None:
        def make() -> Tensor:
            self._acting.update(vector, scene)
            return vector.clone()

        vector.copy_(scene.board.agree(("update", scene.base), make))

    def payload(self, encoded: Encoded) -> Encoded:
        return self._acting.payload(encoded)
