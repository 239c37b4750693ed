"""The kinds of tasks that the controller assigns, in the order in which they are offered.

A new kind of task is one more parameter here.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnraise.controller.state.part import Context, Part
from barnraise.controller.versions.endorsing import Confirming, Endorsing, SendingMasks, Vetting
from barnraise.controller.versions.evaluation import Evaluation
from barnraise.controller.versions.task_kind import TaskKind
from barnraise.controller.work.auditing import Auditing
from barnraise.controller.work.flushing import Flushing
from barnraise.controller.work.training import Training


class TaskKinds(Part):
    """The kinds of tasks `by_name`, the name on the ledger and on the wire."""

    def __init__(
        self,
        context: Context,
        flushing: Flushing,
        vetting: Vetting,
        endorsing: Endorsing,
        confirming: Confirming,
        sending: SendingMasks,
        auditing: Auditing,
        evaluation: Evaluation,
        training: Training,
    ) -> None:
        super().__init__(context)
        kinds: tuple[TaskKind, ...] = (
            flushing, vetting, endorsing, confirming, sending, auditing, evaluation, training,
        )  # fmt: skip
        self.by_name: Mapping[str, TaskKind] = {kind.name: kind for kind in kinds}
