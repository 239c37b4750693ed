"""All checks of a run before it starts: the file, its combinations, this machine, the cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from barnraise.config.document import Document
from barnraise.config.load import build, located
from barnraise.config.problems import refusal
from barnraise.plan import preflight
from barnraise.plan.estimate import Estimate
from barnraise.plan.purpose import SERVE, TRAIN, Purpose
from barnraise.plan.resolve import Plan, examine


def verify(
    document: Document,
    *,
    purpose: Purpose | None = None,
    overrides: Mapping[str, Any] | None = None,
    nodes: int | None = None,
) -> tuple[Plan, Estimate]:
    """Return the plan of a run that can start here, with all warnings, and its estimated cost.

    RunFileError lists every problem. `purpose`, `nodes` as for `resolve`; `overrides` as for `load`.
    """
    run_file = build(document, overrides)
    purpose = purpose or (TRAIN if run_file.workers else SERVE)
    plan, problems = examine(run_file, purpose=purpose, nodes=nodes)
    errors, warnings = preflight.inspect(run_file, purpose)
    problems += errors
    estimate = None
    if plan is not None and not problems:
        estimate, problems = preflight.measure(plan, nodes)
    if plan is None or estimate is None or problems:
        raise refusal(document.name, located(problems, document))
    warnings += preflight.doubts(plan, estimate)
    return replace(plan, warnings=tuple(located([*plan.warnings, *warnings], document))), estimate
