"""What each role may say, and which tasks it may be given. All that is not named here is refused."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping

from barnraise.core.types import KINDS
from barnraise.trust.roles import HELPER, OBSERVER, STANDBY, WORKER
from barnraise.wire.following import FromStandby
from barnraise.wire.messages import FromWorker, Message, PayloadChunk, Subscribe
from barnraise.wire.observing import Observe

_WORKERS: frozenset[type[Message]] = frozenset(typing.get_args(FromWorker))

MESSAGES: Mapping[str, frozenset[type[Message]]] = {
    WORKER: _WORKERS,
    HELPER: _WORKERS - {Subscribe, PayloadChunk},  # it trains nothing: it has no version to wait for, and no update
    STANDBY: frozenset(typing.get_args(FromStandby)),
    OBSERVER: frozenset({Observe}),
}
TASKS: Mapping[str, frozenset[str]] = {
    WORKER: frozenset(KINDS),
    HELPER: frozenset(name for name, kind in KINDS.items() if not kind.contributes),
}


def refusal(role: str, message: Message) -> str:
    """Why somebody with this role may not say that; empty when it may.

    >>> from barnraise.wire.messages import Leave
    >>> refusal("helper", Leave()), refusal("helper", Subscribe(0))
    ('', 'a helper may not say Subscribe')
    """
    if type(message) in MESSAGES.get(role, frozenset()):
        return ""
    return f"a {role} may not say {type(message).__name__}"


def tasks(role: str, wanted: Iterable[str]) -> frozenset[str]:
    """Those of the kinds of tasks that a node would do which it may be given."""
    return frozenset(wanted) & TASKS.get(role, frozenset())
