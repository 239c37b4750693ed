"""Compatibility rows about stateless tasks, which any node can repeat."""

from __future__ import annotations

from barnraise.plan.table import STATELESS, Case, Found, Row, adding_to

ROWS: list[Row] = []
_row = adding_to(ROWS)


@_row(
    "stateless tasks with state of the worker's own",
    "a node that repeats a task knows only published state",
    "leave it out, or set training.tasks: stateful",
)
def _stateless_own(case: Case) -> Found:
    exchange = case.exchange
    if case.training.tasks != STATELESS:
        return
    if exchange.error_feedback:
        yield ("exchange", "error_feedback"), "is true: it adds the residual of the worker's earlier tasks"
    if exchange.merge_lerp:
        yield ("exchange", "merge_lerp"), f"is {exchange.merge_lerp:g}: it keeps a share of the worker's own parameters"


@_row(
    "audits of stateful tasks",
    "each worker has moments and a residual of its own, so honest ones differ as much as liars do: the ledger "
    "records the distance, and the controller judges no node",
    "set training.tasks: stateless, or give trust.scores instead, which judge work of any kind",
    warning=True,
)
def _audits_that_judge_nobody(case: Case) -> Found:
    audits, tasks = case.trust.audits, case.training.tasks
    if audits and tasks != STATELESS:
        yield ("trust", "audits"), f"is {audits:g}, but training.tasks is {tasks}"


@_row(
    "momentum of the fleet where tasks are stateless",
    "each begins with it anyway",
    "leave it out",
    warning=True,
)
def _stateless_momentum(case: Case) -> Found:
    if case.training.tasks == STATELESS and case.training.version_momentum:
        yield ("training", "version_momentum"), f"is {case.training.version_momentum:g}"
