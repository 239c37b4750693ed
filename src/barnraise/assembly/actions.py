"""The actions of a host on a run, for a page: each returns a sentence, prints nothing, and waits a second at most.

They do the same as the commands of these names, and may be called from any thread, also in the controller's process.
All raise BarnraiseError with a message for the host: InputError for bad values, RunDirectoryError, StorageError.
"""

from __future__ import annotations

from barnraise.assembly import finishing, pausing, revoking
from barnraise.assembly.invites import another_invite
from barnraise.core.errors import InputError
from barnraise.ledger import RunDirectory
from barnraise.trust.roles import WORKER, require_role

PATIENCE = 1.0
"""Seconds that an action waits for the run's controller, which looks for requests twice a second."""

LEAST_HOURS = 0.01


def pause(run: RunDirectory, reason: str = "") -> str:
    """Have no tasks assigned until `carry_on`."""
    return pausing.pause(run, reason, PATIENCE)


def carry_on(run: RunDirectory) -> str:
    """Have tasks assigned again after `pause`."""
    return pausing.carry_on(run, PATIENCE)


def finish(run: RunDirectory) -> str:
    """Ask the run's controller to end the run with the model trained so far; its end is not awaited."""
    return finishing.ask_to_finish(run, PATIENCE)


def revoke(run: RunDirectory, node: str, reason: str = "no reason given") -> str:
    """Revoke a node: it is excluded from the run permanently."""
    return revoking.revoke_node(run, node, reason, PATIENCE)


def invite(run: RunDirectory, *, role: str = WORKER, uses: int = 1, hours: float = 24.0, host: str = "") -> str:
    """Return the text of another invite to the run, for `uses` machines, which is valid for `hours`.

    It holds a secret. `host` is the address that workers dial; "" the one on which the controller listens.
    """
    if uses < 1:
        raise InputError(f"an invite admits {uses} machines, but must admit at least 1")
    if not LEAST_HOURS <= hours < float("inf"):
        raise InputError(f"an invite is valid for {hours:g} hours, but must be for at least {LEAST_HOURS}")
    return str(another_invite(run, uses=uses, hours=hours, host=host, role=require_role(role)))
