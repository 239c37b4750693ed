"""Handlers of machines by their roles, as the table in `trust.roles` names them, and the messages that they decode."""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from barnraise.controller.machine import Controller
from barnraise.controller.shell.enrolment import Enrolment
from barnraise.controller.shell.inbox import Waiting
from barnraise.controller.shell.originals import Replication
from barnraise.ledger import Ledger
from barnraise.transport.base import Peer
from barnraise.trust import roles
from barnraise.trust.roles import ROLES
from barnraise.wire.frames import Buffer, decoder, decoder_for_strangers
from barnraise.wire.messages import WORKER_HEADER_LIMIT, Message


def _union(messages: Iterable[type[Message]]) -> Any:
    return functools.reduce(operator.or_, messages)


_from_node = decoder(_union(roles.said_by(roles.of_nodes())), WORKER_HEADER_LIMIT)
_from_stranger = decoder_for_strangers(_union(dict.fromkeys(role.greeting for role in ROLES.values())))


def decode_incoming(frames: Sequence[Buffer], *, enrolled: bool) -> tuple[Message, memoryview | None]:
    """Decode a message of an enrolled key, any that a node of some role may send; or of another key, a greeting.

    The raw bytes behind its header are a view. Raises WireError.
    """
    return _from_node(frames) if enrolled else _from_stranger(frames)


@dataclass(frozen=True)
class HandlerContext:
    """The parts of the shell that handlers use.

    `peers` are nodes' connections. `transmit` sends to a peer and `tell` to a node, `post` gives the machine an event,
    and `address` returns where a peer comes from. `read_status` reads the status from the ledger, on a thread (None: no
    machine may ask for it).
    """

    machine: Controller
    ledger: Ledger
    enrolment: Enrolment
    replication: Replication
    peers: MutableMapping[str, Peer]
    transmit: Callable[[Peer, Message, Buffer | None], bool]
    tell: Callable[[str, Message], None]
    post: Callable[[Waiting], None]
    address: Callable[[Peer], str]
    warn: Callable[[str], None]
    read_status: Callable[[], bytes] | None = None


class RoleHandler:
    """The controller's side of the machines of a role.

    `keys` are those of machines that are no nodes, and of which it receives all messages, not greetings alone.
    """

    def __init__(self, context: HandlerContext) -> None:
        self.context = context
        self.keys: dict[str, str] = {}  # key -> name

    def greet(self, peer: Peer, message: Any) -> None:
        """Handle the greeting of its role."""
        raise NotImplementedError

    def receive(self, peer: Peer, frames: Sequence[Buffer]) -> None:
        """Handle the frames of a key in `keys`.

        Raises WireError.
        """
        raise NotImplementedError


Handler = TypeVar("Handler", bound=RoleHandler)


class RoleHandlers:
    """A handler for each class that the table of roles names."""

    def __init__(self, context: HandlerContext) -> None:
        places = dict.fromkeys(role.handler for role in ROLES.values())
        self._by_place = {place: load(place)(context) for place in places}
        self._by_greeting: dict[type[Message], RoleHandler] = {
            role.greeting: self._by_place[role.handler] for role in ROLES.values()
        }

    @property
    def keys(self) -> list[dict[str, str]]:
        """Return the keys of machines that are no nodes, handler by handler."""
        return [handler.keys for handler in self._by_place.values()]

    def of(self, kind: type[Handler]) -> Handler:
        """Return the handler of a class."""
        (found,) = (handler for handler in self._by_place.values() if isinstance(handler, kind))
        return found

    def greet(self, peer: Peer, message: Message) -> bool:
        """Handle a greeting, and return whether the message is one."""
        handler = self._by_greeting.get(type(message))
        if handler is not None:
            handler.greet(peer, message)
        return handler is not None

    def receive(self, peer: Peer, frames: Sequence[Buffer]) -> bool:
        """Handle frames of a machine that is no node, and return whether its key is that of one."""
        for handler in self._by_place.values():
            if peer.key in handler.keys:
                handler.receive(peer, frames)
                return True
        return False


def load(place: str) -> type[RoleHandler]:
    """Import the class at "module:Class"."""
    module, _, name = place.partition(":")
    found: type[RoleHandler] = getattr(importlib.import_module(module), name)
    return found
