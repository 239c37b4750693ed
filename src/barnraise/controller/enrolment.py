"""Who may become a node: invites are proven, spent and written down before anybody is let in."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from barnraise.core.errors import InviteError
from barnraise.transport import Keys, TokenBook
from barnraise.wire.messages import PROTOCOL_VERSION, Enrol, Stop

ATTEMPTS_A_SECOND = 20


class Enrolment:
    """The controller's keys and its book of invites. `open_book` lends the book and makes its changes durable."""

    def __init__(self, keys: Keys, open_book: Callable[[], AbstractContextManager[TokenBook]]) -> None:
        self.keys, self._open_book = keys, open_book
        self._second, self._attempts = 0, 0

    def refuse(self, message: Enrol, key: str, *, taken: bool) -> Stop | None:
        """Why a machine with `key` may not be a node; None when it may, its invite's use spent."""
        if message.protocol != PROTOCOL_VERSION:
            return Stop(f"protocol version {message.protocol} is not spoken here, only {PROTOCOL_VERSION}")
        if self._too_many():
            return Stop("too many attempts to join at once: try again in a minute")
        try:
            with self._open_book() as book:
                token = book.verify(
                    message.token,
                    message.proof,
                    server_key=self.keys.public,
                    worker_key=key,
                    name=message.name,
                    nonce=message.nonce,
                    now=time.time(),
                )
                if taken:  # only who holds an invite is told of names
                    return Stop(f"the name '{message.name}' is taken in this run: choose another with --name")
                book.spend(token.id)
        except InviteError as error:
            return Stop(str(error))
        return None

    def _too_many(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._attempts = second, 0
        self._attempts += 1
        return self._attempts > ATTEMPTS_A_SECOND
