"""Plays a schedule of faults on the targets of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from barnraise.config.faults import KINDS, Join, Planned
from barnraise.core.errors import InputError
from barnraise.faults.schedule import NEVER, FaultSchedule
from barnraise.faults.target import FaultTarget


class FaultInjector:
    """Plays each fault of `schedule`, once it is due, on the target that can play its kind, and has `note` say so.

    InputError for a kind that none of `targets` can play.
    """

    def __init__(
        self, schedule: FaultSchedule, targets: Sequence[FaultTarget], note: Callable[[str], None] = lambda text: None
    ) -> None:
        self.schedule, self.note = schedule, note
        self._target_of = {kind: target for kind in KINDS for target in targets if target.plays(kind)}
        if missing := {plan.name for plan in schedule.plans} - self._target_of.keys():
            raise InputError(
                f"{', '.join(sorted(missing))} cannot be played here: leave it out of the run file's faults, or run a "
                "command that the list of kinds of faults names for it (docs/reference/run-file.md)"
            )

    def play(self, *, seconds: float = NEVER, share: float = NEVER) -> None:
        """Play what is due so many seconds into the run, or at a share of its token budget."""
        for plan in self.schedule.due(seconds=seconds, share=share):
            for text in _told(plan):
                self.note(text)
            self._target_of[plan.name].play(plan)


def _told(plan: Planned) -> Iterator[str]:
    if isinstance(plan.fault, Join):
        yield f"fault: worker '{plan.fault.join.name}' joins"
    elif not plan.nodes:
        yield f"fault: {plan.name} at {plan.when}"
    for name in plan.nodes:
        yield f"fault: {plan.name} worker '{name}' at {plan.when}"
