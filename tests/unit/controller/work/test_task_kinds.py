"""Every kind of task has the controller's part, the worker's function, and a result in a simulation."""

from __future__ import annotations

from barnraise.controller.state.assembly import needs
from barnraise.controller.versions.task_kind import TaskKind
from barnraise.controller.work.task_kinds import TaskKinds
from barnraise.core.types import KINDS, Masked
from barnraise.emulation.work import _COSTED
from barnraise.worker.kinds import RUN


def test_every_kind_of_task_is_offered_carried_out_and_simulated() -> None:
    offered = {part.task for part in needs(TaskKinds).values() if issubclass(part, TaskKind)}
    assert offered | {Masked} == set(RUN) == set(KINDS.values())
    assert set(_COSTED) == {kind for kind in KINDS.values() if kind.replica}, "a simulation has no trustees"
