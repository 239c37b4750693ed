"""The controller's side of an attempt: the messages that it accepted, and its ledger.

The attacker's word counts for less.

A mark is what one attempt must not have left there: given what was seen, it says what is wrong ("": nothing).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from barnraise.ledger import LedgerView, notes
from barnraise.ledger.decisions import Assigned, Change, Judged, NodeChanged
from barnraise.transport.base import BATCH_MESSAGES, Delivery, Listener
from barnraise.transport.several import Several


class Witness(Several):
    """The controller's listeners, with a count of the messages that they admit, by the key that sent them."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        super().__init__(listeners)
        self.let_in: Counter[str] = Counter()

    async def receive_many(self, limit: int = BATCH_MESSAGES) -> list[Delivery]:
        batch = await super().receive_many(limit)
        self.let_in.update(delivery.peer.key for delivery in batch)
        return batch


class Seen:
    """All of it at one moment. `let_in` are a `Witness`'s counts."""

    def __init__(self, ledger: Path, let_in: Mapping[str, int]) -> None:
        self.let_in = let_in
        with LedgerView(ledger) as view:
            changes = [row for _, row in view.find(NodeChanged, "1")]
            assigned = [row for _, row in view.find(Assigned, "1")]
            judged = [row for _, row in view.find(Judged, "1")]
            self.followers = {note.name for _, note in view.events(notes.StandbyFollows)}
        self.keys = {change.key: change.node for change in changes if change.key}
        self.given = {row.assignment: row.node for row in assigned}
        self.names = {change.node for change in changes}
        self.sessions = {change.session for change in changes}
        self.verdicts = Counter(one.assignment for one in judged)
        self.credited = {(one.assignment, one.node) for one in judged if one.verdict == "accepted"}
        revoked = {change.node: change.time for change in changes if change.change == Change.REVOKED}
        later = [(row.node, row.time) for row in assigned]
        later += [(change.node, change.time) for change in changes if change.change == Change.JOINED]
        self.served_though_revoked = {node for node, time in later if time > revoked.get(node, time)}


Mark = Callable[[Seen], str]


def no_node(key: str, name: str = "") -> Mark:
    """Nobody was enrolled with this key, or by this name."""

    def mark(seen: Seen) -> str:
        return f"it is node {seen.keys.get(key, name)!r}" if key in seen.keys or name in seen.names else ""

    return mark


def no_session(session: int) -> Mark:
    """Nobody came in with this session."""
    return lambda seen: "its greeting was believed" if session in seen.sessions else ""


def no_message(key: str, sent: Callable[[], int] = lambda: 0) -> Mark:
    """Return a mark: no message was admitted under this key, or at most as many as its owner has `sent` by then."""

    def mark(seen: Seen) -> str:
        count, most = seen.let_in.get(key, 0), sent()
        return f"{count} messages came in under a key whose owner sent {most}" if count > most else ""

    return mark


def no_credit(assignment: int, node: str) -> Mark:
    """The node was not credited with this assignment."""
    return lambda seen: "work of another is its own" if (assignment, node) in seen.credited else ""


def no_foreign_credit(assignment: int, node: str) -> Mark:
    """The same, unless the assignment was given to it."""

    def mark(seen: Seen) -> str:
        return "" if seen.given.get(assignment) == node else no_credit(assignment, node)(seen)

    return mark


def one_verdict(assignment: int) -> Mark:
    """The assignment was judged once at the most."""
    return lambda seen: "a contribution was judged twice" if seen.verdicts[assignment] > 1 else ""


def no_follower(name: str) -> Mark:
    """Nobody follows the run by this name."""
    return lambda seen: "it follows the run" if name in seen.followers else ""


def stays_out(node: str) -> Mark:
    """A revoked node was neither welcomed nor given a task."""
    return lambda seen: "a revoked node takes part" if node in seen.served_though_revoked else ""
