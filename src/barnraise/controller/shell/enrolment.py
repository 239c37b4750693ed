"""Enrolment of nodes: an invite is proven, spent and written down before a node is admitted.

The proof is checked first, against the book of invites as it was last read: that takes a few microseconds, however many
wrong proofs come. Everything after it (the lock, the book from disk, the host's list) is for holders of an invite, a
limited number of times a second for each address. Wrong proofs of one address never affect another one.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import time
from collections.abc import Callable, Container
from contextlib import AbstractContextManager
from typing import NamedTuple

from barnraise.core.errors import InputError, InviteError, NotNowError, StorageError, TakenError
from barnraise.transport import Keys, TokenBook
from barnraise.transport.allow_list import line_of
from barnraise.transport.connection_limiter import network_of, place_of
from barnraise.transport.invite import Token
from barnraise.trust import roles
from barnraise.wire.following import Follow
from barnraise.wire.messages import FOR_GOOD, LATER, PROTOCOL_VERSION, TAKEN, Enrol, Greeting, Stop

ATTEMPTS_A_SECOND = 20
"""Wrong proofs of one address that are answered; and its greetings with right proofs that are examined."""

WARN_SECONDS = 60.0
"""Seconds between two warnings of wrong proofs."""


class UnansweredError(InviteError):
    """Too many wrong proofs came from an address, which gets no answer."""


class Entry(NamedTuple):
    """The admission of a machine: its invite, its role, and its owner."""

    invite: str
    role: str
    owner: str


class Attempts:
    """Counts attempts by address, second by second."""

    def __init__(self) -> None:
        self._second, self._counts = 0, dict[str, int]()

    def too_many(self, address: str) -> bool:
        """Count one more of `address`; return whether it is too many for this second."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._counts = second, {}
        place = place_of(address)
        self._counts[place] = self._counts.get(place, 0) + 1
        return self._counts[place] > ATTEMPTS_A_SECOND


class Enrolment:
    """The controller's keys and its book of invites.

    `open_book` lends the book and makes its changes durable; `allowed` reads the host's list of keys (None: there is
    none, and every holder of an invite may join). At most `per_network` nodes join from one network, but for listed
    ones. `read_book` returns the book for reading alone, at little cost; without it the book is lent for that, too.
    """

    def __init__(
        self,
        keys: Keys,
        open_book: Callable[[], AbstractContextManager[TokenBook]],
        allowed: Callable[[], Container[str] | None] = lambda: None,
        warn: Callable[[str], None] = lambda text: None,
        per_network: int | None = None,
        read_book: Callable[[], TokenBook] | None = None,
    ) -> None:
        self.keys, self._open_book, self._allowed, self.warn = keys, open_book, allowed, warn
        self._per_network = per_network
        self._read_book = read_book or self._lent_book
        self._wrong, self._right = Attempts(), Attempts()
        self._warned, self._told_at = "", -math.inf

    def prove(self, message: Greeting, key: str, address: str) -> None:
        """Check a greeting's protocol, proof and role, before costlier checks.

        Raises InviteError where one of them is wrong, and UnansweredError where too many from `address` were.
        """
        require_protocol(message)
        try:
            token = self._read_book().proven(message.token, message.proof, **self._fields(message, key))
        except InviteError:
            if self._wrong.too_many(address):
                self._tell_of(address)
                raise UnansweredError(f"too many wrong proofs from {address}") from None
            raise
        if roles.refusal(token.role, message):
            raise InviteError(roles.wrong_invite(token.role))
        self.require_patience(address)

    def require_patience(self, address: str) -> None:
        """Count a greeting that costs more than a proof.

        Raises NotNowError where too many are from `address`.
        """
        if self._right.too_many(address):
            raise NotNowError(
                f"more than {ATTEMPTS_A_SECOND} machines of this address ask to join at the same time: try again in "
                "a minute"
            )

    def _tell_of(self, address: str) -> None:
        """Warn the host of wrong proofs, from time to time."""
        now = time.monotonic()
        if now - self._told_at >= WARN_SECONDS:
            self._told_at = now
            self.warn(
                f"more than {ATTEMPTS_A_SECOND} greetings a second from {address or 'an unknown address'} have wrong "
                "proofs of an invite: the controller does not answer them, and other machines can join as before"
            )

    def _lent_book(self) -> TokenBook:
        with self._open_book() as book:
            return book

    def _fields(self, message: Greeting, key: str) -> dict[str, str]:
        """Return the fields that a proof covers."""
        signer = message.signer if isinstance(message, Enrol) else ""
        return {
            "server_key": self.keys.public, "worker_key": key, "name": message.name, "nonce": message.nonce,
            "signer": signer,
        }  # fmt: skip

    def let_in(self, message: Enrol, key: str, *, taken: bool, address: str = "") -> Entry:
        """Admit a machine with `key` from `address` as a node, and spend its use of an invite.

        Raises InviteError when it may not join.
        """
        self.prove(message, key, address)
        with self._open_book() as book:
            token, listed = self._proven(book, message, key, time.time())
            if taken:  # only holders of an invite learn which names are taken
                raise TakenError(f"the name '{message.name}' is taken in this run: choose another with --name")
            network = "" if listed else self._network(book, address)
            book.spend(token.id, key, network if self._per_network else "", listed=listed)
            return Entry(token.id, token.role, self._owner(network))

    def _owner(self, network: str) -> str:
        """Return the owner, the same for all machines of a network; "" for a listed one, which the host knows.

        It does not reveal the network: the ledger is shown to others.
        """
        told = f"barnraise owner 1 {network}".encode()
        return hmac.digest(self.keys.secret.encode(), told, hashlib.sha256).hex()[:16] if network else ""

    def _network(self, book: TokenBook, address: str) -> str:
        """Return the network of `address`.

        Raises InviteError where the limit of nodes from there is reached.
        """
        network = network_of(address)
        if not network:  # it has left: else a machine that leaves at once would be of no network
            raise NotNowError("the controller no longer knows the address of this machine: try again")
        if self._per_network and book.num_of(network) >= self._per_network:
            raise InviteError(
                f"{self._per_network} machines of the network {network} joined, and the host admits no more of one "
                "network (trust.per_network): ask the host to list this machine's key"
            )
        return network

    def take_new_keys(self, message: Enrol, key: str, *, vouched: Callable[[], bool], address: str = "") -> None:
        """Admit new keys of a node, which its old key has to have `vouched` for; it needs no invite.

        `key` and the other that it comes with. Raises InviteError when it may not take them.
        """
        require_protocol(message)
        self.require_patience(address)
        if not vouched():
            raise InviteError(f"the key that '{message.name}' is known by in this run has not vouched for the new ones")
        keys = self._list()
        if keys is not None and key not in keys:
            raise _unlisted(key, message.name)

    def refuse_standby(self, message: Follow, key: str, *, known: bool) -> Stop | None:
        """Return why a machine with a proven greeting may not follow; None when it may.

        Its invite is checked each time, and no use of it is spent: it follows again after each return. For one that is
        `known` to have followed, the invite may have expired.
        """
        try:
            with self._open_book() as book:
                self._proven(book, message, key, 0.0 if known else time.time())
        except InviteError as error:
            return refusal_of(error)
        return None

    def let_look(self, message: Greeting, key: str, address: str = "") -> None:
        """Allow a machine with `key` to ask; each takes one use of the invite, however often it asks.

        Raises InviteError when it may not.
        """
        self.prove(message, key, address)
        with self._open_book() as book:
            token, listed = self._proven(book, message, key, time.time())
            book.spend(token.id, key, listed=listed)

    def _proven(self, book: TokenBook, message: Greeting, key: str, now: float) -> tuple[Token, bool]:
        """Return the proven invite of the right role; and whether the host lists the key.

        Raises InviteError where it lists only others.
        """
        require_protocol(message)
        keys = self._list()
        listed = keys is not None and key in keys
        token = book.verify(message.token, message.proof, now=now, listed=listed, **self._fields(message, key))
        if roles.refusal(token.role, message):
            raise InviteError(roles.wrong_invite(token.role))
        if keys is not None and not listed:
            raise _unlisted(key, message.name)
        return token, listed

    def _list(self) -> Container[str] | None:
        """Return the host's list of keys.

        Raises InviteError where it cannot be read: no machine is admitted by half of it.
        """
        try:
            return self._allowed()
        except InputError as error:
            if str(error) != self._warned:
                self._warned = str(error)
                self.warn(f"no machine is admitted: {error}")
            raise NotNowError(
                "no machine can join now: the host's list of keys is broken, and the host has been warned"
            ) from None


def _unlisted(key: str, name: str) -> InviteError:
    return InviteError(
        "the host admits listed keys alone, and this machine's key is not listed; ask the host to add this line to "
        f"the run's file keys/allow: {line_of(key, name)}"
    )


def refusal_of(error: InviteError | StorageError) -> Stop:
    """Return the message for a machine that is not admitted."""
    if isinstance(error, StorageError):  # no machine is admitted whose invite cannot be spent
        return Stop(f"no machine can join now, try again later: {error}", refusal=LATER)
    if isinstance(error, NotNowError):
        return Stop(str(error), refusal=LATER)
    return Stop(str(error), refusal=TAKEN if isinstance(error, TakenError) else FOR_GOOD)


def require_protocol(message: Greeting) -> None:
    """Raise InviteError unless it is of this protocol."""
    if message.protocol != PROTOCOL_VERSION:
        raise InviteError(f"protocol version {message.protocol} is not spoken here, only {PROTOCOL_VERSION}")
