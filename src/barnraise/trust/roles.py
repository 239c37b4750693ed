"""Roles that an invite can have.

`controller.state.role_permissions` has the messages and tasks of each.
"""

from __future__ import annotations

from barnraise.core.errors import InputError, UnknownNameError

WORKER, HELPER, STANDBY, OBSERVER = "worker", "helper", "standby", "observer"
OPERATOR = "operator"


ROLES = {
    WORKER: "barnraise join INVITE",  # trains, and does all other work
    HELPER: "barnraise join INVITE",  # evaluates and repeats tasks of other nodes
    STANDBY: "barnraise standby INVITE",  # copies the run with its secret keys, to take over
    OBSERVER: "barnraise status INVITE",  # reads how the run stands
}
"""The command that accepts an invite, by role."""

NO_OPERATORS = (
    "no invite makes an operator: who may write to the run's folder decides. Give that person an account on the "
    "controller's machine (ssh), for barnraise finish, revoke and invite RUN_DIR"
)


def require_role(name: str) -> str:
    """Return `name` if it is a role.

    Raises InputError.
    """
    if name == OPERATOR:
        raise InputError(NO_OPERATORS)
    if name not in ROLES:
        raise UnknownNameError("role", name, ROLES)
    return name


def wrong_invite(role: str, wanted: str = "") -> str:
    """Return the message for an invite of this role where one of the role `wanted` is needed, if that is known.

    >>> wrong_invite("helper")
    'this invite is for a helper: use it with `barnraise join INVITE`'
    """
    if role not in ROLES:
        return (
            f"this invite is for the role {role[:24]!a}, which this barnraise does not know; install the host's version"
        )
    told = f"this invite is for {_a(role)}: use it with `{ROLES[role]}`"
    if not wanted:
        return told
    make = f"which the host makes with `barnraise invite RUN_DIR --role {wanted}`"
    return f"{told}. {_a(wanted).capitalize()} needs an invite of its own, {make}"


def _a(role: str) -> str:
    return f"{'an' if role[0] in 'aeiou' else 'a'} {role}"
