"""The interface of attacks: the points where an honest worker would act otherwise."""

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
    """The success of an attacker: the `share` of prompts with its answer, and the `loss` of those answers.

    The loss is in nats a token.
    """

    share: float
    loss: float


class Attack:
    """Base class of attacks in one worker's process; this one is honest.

    A subclass overrides the methods that it needs. A `moment` names the node and the task: with a seed of the attack's
    own it determines all randomness, so that a repeated task gives the same result.
    """

    @property
    def sees(self) -> bool:
        """Return whether it looks at others' updates."""
        return False

    def meet(self, dataset: Dataset) -> None:
        """Receive the worker's dataset.

        Raises OptionError where the attack is impossible there.
        """

    def in_task(self, moment: str) -> Attack:
        """Return the attack that acts in this task."""
        return self

    # Messages and timing

    def says(self, message: Message) -> Message:
        """Return the message to send instead of `message`."""
        return message

    @property
    def floods(self) -> float:
        """Return the messages a second that it sends for no reason."""
        return 0.0

    def takes(self) -> bool:
        """Return whether the task is accepted."""
        return True

    def pace(self) -> float:
        """Return the factor by which the task takes longer; below 1 in a simulation alone."""
        return 1.0

    def holds(self, staleness: int, bound: int, seconds: float) -> bool:
        """Return whether a result is held back.

        `staleness` of `bound` versions have passed, and `seconds`.
        """
        return False

    # Training and contributions

    def num_steps(self, assigned: int) -> int:
        """Return how many of the assigned steps are taken; all of them are claimed."""
        return assigned

    def batch(self, batch: Batch, vocab_size: int) -> Batch:
        """Return the batch to train on instead of `batch`."""
        return batch

    def update(self, vector: Tensor, scene: Scene) -> None:
        """Overwrite the pseudo-gradient (float32 [d]) before error feedback, codec and clipping see it."""

    def residual(self, vector: Tensor) -> None:
        """Overwrite the residual of error feedback (float32 [d]), which is submitted as the run ends."""

    def payload(self, encoded: Encoded) -> Encoded:
        """Return the payload to send instead of `encoded`; no codec would write it."""
        return encoded

    def target(self, module: Any, dataset: Dataset) -> Target | None:
        """Return how near `module` (in evaluation mode) is to the attacker's target, if it has one."""
        return None


HONEST = Attack()
