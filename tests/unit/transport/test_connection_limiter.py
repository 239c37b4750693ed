"""The admission and the closing of connections, and the account of waiting bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from hypothesis import given
from hypothesis import strategies as st

from barnraise.transport.base import Peer
from barnraise.transport.budget import Budget
from barnraise.transport.connection_limiter import ConnectionLimiter, place_of
from barnraise.transport.http.inbox import Inbox


class Entrance:
    """A door, and who was sent away through it."""

    def __init__(self, limit: int = 40, a_key: int = 2) -> None:
        self.members: set[str] = set()
        self.gone: list[Hashable] = []
        self.door = ConnectionLimiter(self.gone.append, lambda key: key in self.members, limit=limit, a_key=a_key)


def test_thousands_of_connections_of_one_address_displace_each_other() -> None:
    entrance = Entrance()
    entrance.members.add("key of a member")
    entrance.door.enter("member", "10.0.0.1")
    entrance.door.prove("member", "key of a member")
    entrance.door.enter("newcomer", "10.0.0.2")
    for index in range(5000):
        entrance.door.enter(index, "10.0.0.3")
    assert entrance.gone == list(range(4995)), "the oldest first, and five of them are a half of a quarter of 40"
    entrance.door.prove("newcomer", "another key")
    assert "member" in entrance.door
    assert "newcomer" in entrance.door


def test_the_address_with_the_most_connections_loses_one() -> None:
    entrance = Entrance()
    for index in range(4):
        entrance.door.enter(f"crowd {index}", "10.0.0.1")
    for index in range(7):
        entrance.door.enter(f"single {index}", f"10.0.1.{index}")
    assert entrance.gone == ["crowd 0"]


def test_strangers_displace_strangers_and_no_members() -> None:
    entrance = Entrance()
    for index in range(25):
        entrance.door.enter(index, f"10.0.0.{index}")
        entrance.door.prove(index, f"key {index}")
        if index < 5:
            entrance.members.add(f"key {index}")
    assert entrance.gone == list(range(5, 15)), "ten strangers have a place"


def test_a_new_connection_of_a_key_displaces_its_oldest() -> None:
    entrance = Entrance()
    entrance.members.add("key")
    for index in range(4):
        entrance.door.enter(index, "10.0.0.1")
        entrance.door.prove(index, "key")
    assert entrance.gone == [0, 1]


def test_an_ipv6_network_is_one_address() -> None:
    assert place_of("fe80::1%eth0") == place_of("fe80::2%eth1")
    assert place_of("2001:db8:0:1::1") != place_of("2001:db8:0:2::1")
    assert place_of("nowhere") == "nowhere"


KEYS = st.sampled_from(["", "a", "b", "c", "d", "e"])


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3), KEYS, st.booleans()), max_size=300))
def test_the_limits_hold_whatever_happens(events: list[tuple[int, int, str, bool]]) -> None:
    entrance = Entrance(limit=20)
    entrance.members |= {"a", "b"}
    door, inside = entrance.door, dict[Hashable, str]()
    for who, address, key, leaves in events:
        if leaves:
            door.leave(who)
            inside.pop(who, None)
        elif key:
            if who in inside:
                inside[who] = key
            door.prove(who, key)
        else:
            inside[who] = ""
            door.enter(who, f"10.0.0.{address}")
        for other in entrance.gone:
            inside.pop(other, None)
        entrance.gone.clear()
        assert len(door) == len(inside) <= 20
        assert all(other in door for other in inside)
        keys = Counter(inside.values())
        assert keys.pop("", 0) <= 5
        assert all(number <= 2 for number in keys.values())
        assert sum(number for key, number in keys.items() if key not in entrance.members) <= 5


def test_a_budget_gives_shares_and_keeps_half_of_it_from_answers() -> None:
    budget = Budget(total=100, share=60)
    assert budget.take("a", 60)
    assert not budget.take("a", 1), "its share is spent"
    assert budget.take("b", 40)
    assert budget.spent
    assert not budget.take("c", 1)
    budget.charge("a payload that waits for the disk", 500)
    budget.give("a payload that waits for the disk", 500)
    budget.give("a", 60)
    assert (budget["a"], budget["b"], budget.waiting) == (0, 40, 40)
    assert budget.take("a", 50, answer=True)
    assert not budget.take("c", 5, answer=True), "half of it is for what comes in"
    assert budget.take("c", 5)


def test_peers_take_turns_in_an_inbox() -> None:
    budget = Budget()
    inbox = Inbox(budget)
    loud, quiet = Peer(b"1", "loud"), Peer(b"2", "quiet")
    inbox.put(loud, [[b"%d" % index] for index in range(300)])
    assert not inbox.has_room(loud)
    assert inbox.has_room(quiet)
    inbox.put(quiet, [[b"word"]])
    assert [one.frames[0] for one in inbox.take(4)] == [b"0", b"word", b"1", b"2"]
    assert len(inbox.take(1000)) == 297
    assert (inbox.num_messages, inbox.num_bytes, budget.waiting, budget["loud"]) == (0, 0, 0, 0)
    assert inbox.has_room(loud)
