"""Upper bounds of an update's length, from the optimizer, the learning rate and the number of steps alone.

An inner optimizer bounds its own steps: AdamW moves a parameter by about the learning rate at most, and SGD moves the
model by the learning rate times the gradient's norm, which is clipped. So the longest update of a task follows from the
run file and the task. It does not depend on any node's messages. Torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

HELD_BACK = 10.0
"""Tasks' worth of work that one update may hold where error feedback keeps what a codec leaves out.

With a share r sent, parameters that move steadily are sent about every 1/r tasks, which makes an update up to sqrt(1/r)
times as long: 10 for 1%.
"""


@dataclass(frozen=True)
class Reach:
    """The longest update (L2 norm) by its travel: tasks * travel * per_travel + besides.

    Travel is the learning rate times the steps. `tasks` is the number of tasks whose work one update may hold.
    `besides` is for vectors published beside the parameters. Infinite where nothing bounds a step.
    """

    per_travel: float = math.inf
    besides: float = 0.0
    tasks: float = 1.0

    def longest(self, travel: float) -> float:
        """Return the largest L2 norm of an update with this `travel`.

        >>> Reach(10.0, 0.5).longest(0.01), Reach(10.0, tasks=4.0).longest(0.01), Reach().longest(0.0)
        (0.6, 0.4, inf)
        """
        if math.isinf(self.per_travel):
            return math.inf
        return self.tasks * travel * self.per_travel + self.besides


def adamw(options: Mapping[str, float], gradient_clip: float | None, trained: int) -> float:
    """Return the L2 norm of one step at a learning rate of 1: each parameter moves by 1, and by weight decay.

    A single step of one parameter can be longer (Kingma and Ba 2015, section 2.1). A whole task's steps are not, since
    the first moment divided by the root of the second is 1 at most for gradients that do not change.
    """
    return math.sqrt(trained) * (1.0 + options["weight_decay"])


def sgd(options: Mapping[str, float], gradient_clip: float | None, trained: int) -> float:
    """Return the L2 norm of one step at a learning rate of 1: clipped gradient and weight decay, with momentum.

    Infinite without `gradient_clip`. Parameters are taken to have a root mean square of 1 at most.
    """
    momentum = options["momentum"]
    if gradient_clip is None or momentum >= 1.0:
        return math.inf
    return (gradient_clip + options["weight_decay"] * math.sqrt(trained)) / (1.0 - momentum)
