"""The problem of a run, from its model's config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnraise.models.problems import made
from barnraise.training.problem import Problem


def problem_of(config: Mapping[str, Any]) -> Problem:
    """Return the problem of a model's resolved config; ModelError when it is not known on this machine."""
    problem: Problem = made(config)
    return problem
