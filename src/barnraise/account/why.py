"""The reason why a worker gets no task now, in a sentence from what the controller knows, or from the ledger."""

from __future__ import annotations

import math

from barnraise.account.moment import RunMoment
from barnraise.account.nodes import GONE, IDLE, STARTING
from barnraise.account.present import FINISHED, INTERRUPTED
from barnraise.core.text import LONGEST_NAME, printable
from barnraise.core.units import count_text, duration_text
from barnraise.ledger import Change


def why_resting(seen: RunMoment, node: str) -> str:
    """Return why `node` has no task, or which one it has; empty for a node that is not known."""
    row = next((one for one in seen.rows if one.name == node), None)
    if row is None:
        return ""
    name, details = printable(node, LONGEST_NAME), seen.over_time.details
    totals = next(one for one in seen.account.nodes if one.node == node)
    if totals.change == Change.ENROLLED and not totals.outcomes.assigned:
        return f"{name} proved its key and never joined"
    if seen.state in (FINISHED, INTERRUPTED):
        return f"the run is {seen.state}: no node has a task"
    if row.state in GONE:
        return (
            f"{name} is away since {duration_text(seen.clock - totals.time)}: {printable(totals.reason) or row.state}"
        )
    tasks = details.busy().get(node, 0)
    held = seen.present.holds.get(node, "") if seen.present is not None else ""
    doubt = seen.account.dispatch.doubts.get(node)
    if held or doubt is not None:
        reason = printable(held or (doubt.reason if doubt is not None else ""))
        until = doubt.until if doubt is not None else math.inf
        more = f", {duration_text(until - seen.clock)} more" if seen.clock < until < math.inf else ""
        return f"{name} gets no task: {reason}{more}" + (f"; it still has {_tasks(seen, node)}" if tasks else "")
    if tasks:
        return f"{name} has {_tasks(seen, node)}"
    if row.state == STARTING:
        return f"{name} has joined and measures itself, or fetches the model"
    if seen.waits_for:
        return f"{name} waits: {seen.waits_for}"
    told = "between two tasks" if row.state == IDLE else row.state
    return f"{name} is {told}: nothing holds it off, and it gets a task when it asks for one"


def _tasks(seen: RunMoment, node: str) -> str:
    """Return the number of a node's tasks, and for how long it has had the newest."""
    details = seen.over_time.details
    took = duration_text(max(0.0, seen.clock - details.nodes[node].since))
    return f"{count_text(details.busy()[node], 'task')}; the newest ({details.nodes[node].kind}) for {took}"
