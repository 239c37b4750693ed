"""The compatibility table's rows about tasks that anybody can do again."""

from __future__ import annotations

from barnraise.plan.table import STATELESS, Case, Found, Row, adding_to

ROWS: list[Row] = []
_row = adding_to(ROWS)


@_row(
    "stateless tasks with something of a worker's own",
    "whoever does a task again knows only what is published",
    "leave it out, or set tasks: stateful",
)
def _stateless_own(case: Case) -> Found:
    training = case.training
    if training.tasks != STATELESS:
        return
    if training.error_feedback:
        yield ("training", "error_feedback"), "is true: what a worker has left out before"
    if training.merge_lerp:
        yield ("training", "merge_lerp"), f"is {training.merge_lerp:g}: a share of where a worker was before"


@_row(
    "audits of stateful tasks",
    "each worker has moments and a residual of its own, so honest ones differ as much as liars do: the ledger tells "
    "how far, and nobody is judged",
    "set tasks: stateless, or give scores instead, which judge work of any kind",
    warning=True,
)
def _audits_that_judge_nobody(case: Case) -> Found:
    training = case.training
    if training.audits and training.tasks != STATELESS:
        yield ("training", "audits"), f"is {training.audits:g}, but tasks is {training.tasks}"


@_row(
    "momentum of the fleet where tasks are stateless",
    "each begins with it anyway",
    "leave it out",
    warning=True,
)
def _stateless_momentum(case: Case) -> Found:
    if case.training.tasks == STATELESS and case.training.version_momentum:
        yield ("training", "version_momentum"), f"is {case.training.version_momentum:g}"
