"""Who may come in: invites are proven, spent and written down before anybody is let in."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from barnraise.controller import permits
from barnraise.core.errors import InviteError
from barnraise.transport import Keys, TokenBook
from barnraise.transport.invite import Token
from barnraise.trust.roles import wrong_invite
from barnraise.wire.following import Follow
from barnraise.wire.messages import PROTOCOL_VERSION, Enrol, Stop
from barnraise.wire.observing import Observe

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

    def let_in(self, message: Enrol, key: str, *, taken: bool) -> Token:
        """The invite by which a machine with `key` becomes a node, its use spent. Raises InviteError when it may
        not."""
        _require_protocol(message)
        self._require_time()
        with self._open_book() as book:
            token = self._verify(book, message, key, time.time())
            if taken:  # only who holds an invite is told of names
                raise InviteError(f"the name '{message.name}' is taken in this run: choose another with --name")
            book.spend(token.id, key)
            return token

    def take_new_keys(self, message: Enrol, *, vouched: bool) -> None:
        """A node may take the keys that it comes with: it needs no invite, but its old key has to have `vouched` for
        them. Raises InviteError when it may not."""
        _require_protocol(message)
        self._require_time()
        if not vouched:
            raise InviteError(f"the key that '{message.name}' is known by in this run has not vouched for the new ones")

    def refuse_standby(self, message: Follow, key: str, *, known: bool) -> Stop | None:
        """Why a machine with `key` may not follow; None when it may. Its invite is asked for each time, and no use of
        it is spent: it follows whenever it comes back. One that is `known` to have followed may be late, too."""
        try:
            _require_protocol(message)
            with self._open_book() as book:
                self._verify(book, message, key, 0.0 if known else time.time())
        except InviteError as error:
            return Stop(str(error))
        return None

    def let_look(self, message: Observe, key: str) -> None:
        """A machine with `key` may know how the run stands; each takes one use of the invite, however often it asks.
        Raises InviteError when it may not."""
        _require_protocol(message)
        with self._open_book() as book:
            book.spend(self._verify(book, message, key, time.time()).id, key)

    def _require_time(self) -> None:
        if self._attempts.too_many():
            raise InviteError("too many attempts to join at once: try again in a minute")

    def _verify(self, book: TokenBook, message: Enrol | Follow | Observe, key: str, now: float) -> Token:
        """The invite that was proven, which is one for such a message."""
        token = book.verify(
            message.token,
            message.proof,
            server_key=self.keys.public,
            worker_key=key,
            name=message.name,
            nonce=message.nonce,
            now=now,
            signer=message.signer if isinstance(message, Enrol) else "",
        )
        if permits.refusal(token.role, message):
            raise InviteError(wrong_invite(token.role))
        return token


def _require_protocol(message: Enrol | Follow | Observe) -> None:
    if message.protocol != PROTOCOL_VERSION:
        raise InviteError(f"protocol version {message.protocol} is not spoken here, only {PROTOCOL_VERSION}")
