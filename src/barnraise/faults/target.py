"""The targets of fault injection: worker processes, a host, links, or a simulated run."""

from __future__ import annotations

import random
from collections.abc import Callable

from barnraise.config.faults import Planned


class FaultTarget:
    """Base class of all targets.

    A target has one method for each kind of fault that it can play, named as the kind in `config.faults.KINDS`:
    `method(fault, rng)` begins the fault, and uses `after` to end a lasting one.
    """

    @classmethod
    def plays(cls, kind: str) -> bool:
        """Return whether faults of that kind can be injected here."""
        return hasattr(cls, kind)

    def play(self, plan: Planned) -> None:
        """Begin a fault of a kind that this target plays, with randomness from the plan's seed."""
        getattr(self, plan.name)(plan.fault, random.Random(f"fault {plan.seed}"))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Call `call` after `seconds`: real ones, in the running event loop."""
        from asyncio import get_running_loop  # 2 MB, which a simulation, with time of its own, does not need

        get_running_loop().call_later(seconds, call)
