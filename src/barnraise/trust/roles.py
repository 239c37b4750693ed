"""Roles that an invite can have, one row each: the messages, the kinds of tasks, and the handler of the role."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from barnraise.core.errors import InputError, UnknownNameError
from barnraise.core.types import KINDS, Task
from barnraise.wire.following import FromStandby, ToStandby
from barnraise.wire.messages import Fetch, FromController, FromWorker, Greeting, Message, PayloadChunk, Subscribe
from barnraise.wire.observing import FromObserver, ToObserver

WORKER, HELPER, TRUSTEE, STANDBY, OBSERVER = "worker", "helper", "trustee", "standby", "observer"
OPERATOR = "operator"

Messages = tuple[type[Message], ...]


def members(union: Any) -> Messages:
    """Return the classes of a union of messages, or the one class."""
    return typing.get_args(union) or (union,)


def contributes_nothing(kind: type[Task]) -> bool:
    """Return whether the results of a kind of task never enter the model."""
    return kind.replica and not kind.contributes


def is_for_trustees(kind: type[Task]) -> bool:
    """Return whether a kind of task is one of trustees: it reads neither model nor rows."""
    return not kind.replica


@dataclass(frozen=True)
class Role:
    """One role: everything that it does not list is refused.

    `command` accepts its invite. The machine `says` these messages, of which one is a greeting, and `hears` those. A
    role with `tasks` is a node's: it is given the kinds of tasks for which that is true. `handler` is the
    "module:Class" of its greetings (`controller.shell.roles.RoleHandler`).
    """

    name: str
    summary: str
    command: str
    says: Messages
    hears: Messages
    handler: str
    tasks: Callable[[type[Task]], bool] | None = None

    @property
    def is_node(self) -> bool:
        """Return whether machines of this role are nodes: they enrol, and are given tasks."""
        return self.tasks is not None

    @property
    def greeting(self) -> type[Greeting]:
        """Return the message by which a machine of this role comes in."""
        (found,) = (kind for kind in self.says if issubclass(kind, Greeting))
        return found


_ROWS = (
    Role(
        WORKER,
        "trains, measures losses, and repeats tasks of other nodes",
        "barnraise join INVITE",
        says=members(FromWorker),
        hears=members(FromController),
        handler="barnraise.controller.shell.reception:Reception",
        tasks=lambda kind: kind.replica,
    ),
    Role(
        HELPER,
        "measures losses and repeats tasks of other nodes, but trains nothing",
        "barnraise join INVITE",
        # it has no version to wait for, and no update
        says=tuple(kind for kind in members(FromWorker) if kind not in (Subscribe, PayloadChunk)),
        hears=members(FromController),
        handler="barnraise.controller.shell.reception:Reception",
        tasks=contributes_nothing,
    ),
    Role(
        TRUSTEE,
        "holds the seeds of masks, and releases the sums of those of a whole list",
        "barnraise join INVITE",
        says=tuple(kind for kind in members(FromWorker) if kind not in (Subscribe, Fetch)),
        hears=members(FromController),
        handler="barnraise.controller.shell.reception:Reception",
        tasks=is_for_trustees,
    ),
    Role(
        STANDBY,
        "copies the run with its secret keys, to take over",
        "barnraise standby INVITE",
        says=members(FromStandby),
        hears=members(ToStandby),
        handler="barnraise.controller.shell.standbys:Standbys",
    ),
    Role(
        OBSERVER,
        "reads the status of the run",
        "barnraise status INVITE",
        says=members(FromObserver),
        hears=members(ToObserver),
        handler="barnraise.controller.shell.observers:Observers",
    ),
)

ROLES: Mapping[str, Role] = {role.name: role for role in _ROWS}
"""All roles by name."""

NO_OPERATORS = (
    "no invite makes an operator: write access to the run's folder decides. Give that person an account on the "
    "controller's machine (ssh), for barnraise finish, revoke and invite RUN_DIR"
)


def of_nodes() -> list[Role]:
    """Return the roles of nodes."""
    return [role for role in ROLES.values() if role.is_node]


def said_by(roles: Iterable[Role]) -> Messages:
    """Return the messages that machines of `roles` may send, each once."""
    return tuple(dict.fromkeys(kind for role in roles for kind in role.says))


def joins(role: str) -> bool:
    """Return whether a machine with an invite for this role joins as a node."""
    return role in ROLES and ROLES[role].is_node


def refusal(role: str, message: Message) -> str:
    """Return why a machine with this role may not send a message; empty when it may.

    >>> from barnraise.wire.messages import Leave
    >>> refusal("helper", Leave()), refusal("helper", Subscribe(0))
    ('', 'a helper may not say Subscribe')
    """
    known = ROLES.get(role)
    if known is not None and type(message) in known.says:
        return ""
    return f"a {role} may not say {type(message).__name__}"


def tasks_of(role: str, wanted: Iterable[str]) -> frozenset[str]:
    """Return those of the `wanted` kinds of tasks that a node with this role may be given."""
    known = ROLES.get(role)
    if known is None or known.tasks is None:
        return frozenset()
    return frozenset(name for name in wanted if name in KINDS and known.tasks(KINDS[name]))


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
    told = f"this invite is for {with_article(role)}: use it with `{ROLES[role].command}`"
    if not wanted:
        return told
    make = f"which the host makes with `barnraise invite RUN_DIR --role {wanted}`"
    return f"{told}. {with_article(wanted).capitalize()} needs an invite of its own, {make}"


def with_article(role: str) -> str:
    """Return the name of a role after its article."""
    return f"{'an' if role[0] in 'aeiou' else 'a'} {role}"
