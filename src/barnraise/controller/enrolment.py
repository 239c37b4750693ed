"""Who may become a node: invites are proven, spent and written down before anybody is let in."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from barnraise.core.errors import InviteError
from barnraise.transport import Keys, TokenBook
from barnraise.transport.invite import STANDBY, Token
from barnraise.wire.following import Follow
from barnraise.wire.messages import PROTOCOL_VERSION, Enrol, Stop

ATTEMPTS_A_SECOND = 20


class Attempts:
    """Counts what strangers ask for, second by second."""

    def __init__(self) -> None:
        self._second, self._count = 0, 0

    def too_many(self) -> bool:
        """Count one more; whether it is too many for this second."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._count = second, 0
        self._count += 1
        return self._count > ATTEMPTS_A_SECOND


class Enrolment:
    """The controller's keys and its book of invites. `open_book` lends the book and makes its changes durable."""

    def __init__(self, keys: Keys, open_book: Callable[[], AbstractContextManager[TokenBook]]) -> None:
        self.keys, self._open_book = keys, open_book
        self._attempts = Attempts()

    def refuse(self, message: Enrol, key: str, *, taken: bool) -> Stop | None:
        """Why a machine with `key` may not be a node; None when it may, its invite's use spent."""
        if (refusal := _other_protocol(message)) is not None:
            return refusal
        if self._attempts.too_many():
            return Stop("too many attempts to join at once: try again in a minute")
        try:
            with self._open_book() as book:
                token = self._verify(book, message, key, time.time())
                if token.role == STANDBY:
                    return Stop("this invite is for a standby: use it with `barnraise standby`, not with join")
                if taken:  # only who holds an invite is told of names
                    return Stop(f"the name '{message.name}' is taken in this run: choose another with --name")
                book.spend(token.id)
        except InviteError as error:
            return Stop(str(error))
        return None

    def refuse_new_keys(self, message: Enrol, *, vouched: bool) -> Stop | None:
        """Why a node may not take the keys that it comes with; None when it may. It needs no invite, but its old key
        has to have `vouched` for them."""
        if (refusal := _other_protocol(message)) is not None:
            return refusal
        if self._attempts.too_many():
            return Stop("too many attempts to join at once: try again in a minute")
        if not vouched:
            return Stop(f"the key that '{message.name}' is known by in this run has not vouched for the new ones")
        return None

    def refuse_standby(self, message: Follow, key: str, *, known: bool) -> Stop | None:
        """Why a machine with `key` may not follow; None when it may. Its invite is asked for each time, and no use of
        it is spent: it follows whenever it comes back. One that is `known` to have followed may be late, too."""
        if (refusal := _other_protocol(message)) is not None:
            return refusal
        try:
            with self._open_book() as book:
                if self._verify(book, message, key, 0.0 if known else time.time()).role != STANDBY:
                    return Stop("this invite is for workers: ask the host for `barnraise invite RUN_DIR --standby`")
        except InviteError as error:
            return Stop(str(error))
        return None

    def _verify(self, book: TokenBook, message: Enrol | Follow, key: str, now: float) -> Token:
        return book.verify(
            message.token,
            message.proof,
            server_key=self.keys.public,
            worker_key=key,
            name=message.name,
            nonce=message.nonce,
            now=now,
            signer=message.signer if isinstance(message, Enrol) else "",
        )


def _other_protocol(message: Enrol | Follow) -> Stop | None:
    if message.protocol == PROTOCOL_VERSION:
        return None
    return Stop(f"protocol version {message.protocol} is not spoken here, only {PROTOCOL_VERSION}")
