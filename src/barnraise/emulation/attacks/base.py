"""What an attack is: where an honest worker would do something else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnraise.wire.messages import Message

if TYPE_CHECKING:  # these import torch
    from torch import Tensor

    from barnraise.compression.base import Encoded
    from barnraise.data.batches import Batch
    from barnraise.data.shards import Dataset

    from .board import Scene


@dataclass(frozen=True)
class Target:
    """How near a model is to what an attacker wants: the `share` of prompts that it answers so, and the `loss` of those
    answers in nats a token."""

    share: float
    loss: float


class Attack:
    """One attack of one worker's process; this one does nothing. A subclass overrides what concerns it.

    A `moment` names the node and the task: with a seed of the attack's own it is all that chance is drawn from, so that
    a task that is played again comes to the same.
    """

    @property
    def sees(self) -> bool:
        """Whether it looks at others' updates."""
        return False

    def meet(self, dataset: Dataset) -> None:
        """What its worker trains on. Raises OptionError where the attack is none there."""

    def in_task(self, moment: str) -> Attack:
        """What acts in this task."""
        return self

    # What it says, and when

    def says(self, message: Message) -> Message:
        """What is said instead of `message`."""
        return message

    @property
    def floods(self) -> float:
        """Messages a second that it sends for no reason."""
        return 0.0

    def takes(self) -> bool:
        """Whether the task is not refused."""
        return True

    def pace(self) -> float:
        """How many times as long as it need it takes for the task; below 1 in a simulation alone."""
        return 1.0

    def holds(self, staleness: int, bound: int, seconds: float) -> bool:
        """Whether what came of the task is held back, by now for so long, and so many versions of those allowed."""
        return False

    # What it does

    def num_steps(self, assigned: int) -> int:
        """How many of the assigned steps are taken; all of them are claimed."""
        return assigned

    def batch(self, batch: Batch, vocab_size: int) -> Batch:
        """What is trained on instead of `batch`."""
        return batch

    def update(self, vector: Tensor, scene: Scene) -> None:
        """Overwrite the pseudo-gradient (float32 [d]) before error feedback, codec and clipping see it."""

    def residual(self, vector: Tensor) -> None:
        """Overwrite what error feedback holds (float32 [d]), which is handed in as the run ends."""

    def payload(self, encoded: Encoded) -> Encoded:
        """What is sent instead of `encoded`, which no codec would write."""
        return encoded

    def target(self, module: Any, dataset: Dataset) -> Target | None:
        """How near `module` (in evaluation mode) is to what it wants, if that is anything but harm."""
        return None


HONEST = Attack()
