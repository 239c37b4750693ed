"""A command whose run file plans the controller's death runs under a supervisor."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from barnraise.faults.supervisor import keep, wanted

if TYPE_CHECKING:
    from barnraise.plan.resolve import Plan


def keep_if_needed(plan: Plan, form: str, *, json: bool) -> None:
    """Run this process's command line under a supervisor if the plan needs one, and raise Exit with its code."""
    if plan.purpose.local and wanted(plan.faults):
        raise typer.Exit(keep(sys.argv[1:], ["--log", form, *(["--json"] if json else [])]))
