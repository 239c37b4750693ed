"""The parameters of a simulation: a plan, a fleet and a duration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from barnraise.core.errors import OptionError

if TYPE_CHECKING:
    from barnraise.config.document import Document
    from barnraise.emulation.fleet import Machine
    from barnraise.plan.resolve import Plan

DEFAULT_NODES = 100
"""Nodes where neither the run file nor the caller gives a number."""

VECTORS_A_NODE = 7
"""Replica, start, two moments, residual, and the payloads of unanswered and unmerged contributions."""


@dataclass(frozen=True)
class Trial:
    """A simulation of `nodes` machines around `tokens_per_second` (None: by `NOMINAL_FLOPS` and the model).

    `hours` of virtual time instead of the token budget; with `churn` machines leave and return, as preemptible ones do
    (True), or like the fit or the trace file of that name; `real` tensors. A `fleet` counts instead of one that is
    drawn. With `skipped` the run begins after that share of the rows, which come last: another order of the same ones.
    With `skew` nodes have rows of different kinds: Dirichlet's concentration, the smaller the less alike they are.
    Real tensors are trained and evaluated on `device`, which all nodes share; the machine of the controller evaluates
    with `flops` operations a second (None: a core's, on each of its threads).
    """

    nodes: int
    hours: float | None = None
    seed: int = 0
    real: bool = False
    churn: bool | str = False
    tokens_per_second: float | None = None
    fleet: Sequence[Machine] | None = None
    skipped: float = 0.0
    skew: float | None = None
    device: str = "cpu"
    flops: float | None = None


def planned(
    document: Document,
    *,
    nodes: int | None = None,
    hours: float | None = None,
    seed: int | None = None,
    real: bool = False,
    churn: bool | str = False,
    tokens_per_second: float | None = None,
) -> tuple[Plan, Trial]:
    """Return the plan of a run to simulate, and its parameters.

    `nodes` are the run file's workers unless given, `seed` is the run file's. Raises RunFileError, OptionError, and
    ModelError when this machine cannot hold the replicas of real tensors.
    """
    for name, value in (("nodes", nodes), ("hours", hours), ("tokens per second", tokens_per_second)):
        if value is not None and not 0 < value < math.inf:
            raise OptionError(f"{name}: {value} was given, but must be above 0 and finite")
    from barnraise.config.load import build
    from barnraise.plan.attacks import costed_warnings
    from barnraise.plan.purpose import SIMULATE
    from barnraise.plan.resolve import resolve
    from barnraise.plan.verify import verify

    overrides = {} if seed is None else {"run.seed": seed}
    run_file = build(document, overrides)
    count = nodes or len(run_file.workers) or DEFAULT_NODES
    if real:
        plan, _ = verify(document, purpose=SIMULATE, overrides=overrides, nodes=count)
        _require_memory(plan, count)
    else:
        plan = resolve(run_file, purpose=SIMULATE, nodes=count, document=document)
        plan = replace(plan, warnings=(*plan.warnings, *costed_warnings(run_file)))
    return plan, Trial(count, hours, plan.run_file.run.seed, real, churn, tokens_per_second)


def _require_memory(plan: Plan, nodes: int) -> None:
    from barnraise.models import memory
    from barnraise.plan.estimate import estimate

    cost = estimate(plan)
    needed = (
        cost.controller_memory_bytes + cost.worker_memory_bytes + nodes * VECTORS_A_NODE * cost.sizes.snapshot_bytes
    )
    memory.require(needed, memory.available_bytes(), f"the controller and {nodes} simulated nodes with real tensors")
