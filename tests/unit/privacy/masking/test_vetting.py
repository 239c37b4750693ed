"""The controller's machine of a draft: whom it asks about entries, when it chooses, and when it gives up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.maskings import committee

from barnraise.privacy.masking.choosing import Chosen
from barnraise.privacy.masking.release import ListAborted
from barnraise.privacy.masking.vetting import AskVerdict, EntriesChosen, VettingMachine


@pytest.fixture
def machine() -> VettingMachine:
    """The machine of a draft of three entries, whose four trustees are connected."""
    machine = VettingMachine(committee(), (3, 1, 2), range(4))
    assert machine.start() == [AskVerdict(one) for one in range(4)]
    return machine


def test_entries_that_a_quorum_accepts_are_chosen_at_once(machine: VettingMachine) -> None:
    assert machine.vetted(0, ()) == machine.vetted(1, ()) == machine.vetted(1, ()) == []
    assert machine.lacking == 1
    assert machine.vetted(3, ()) == [EntriesChosen(Chosen((1, 2, 3), (), (0, 1, 3)))]
    assert machine.vetted(2, (1,)) == machine.hurry() == machine.vanished(0) == []


def test_an_entry_that_two_of_four_refuse_is_left_out_as_proven(machine: VettingMachine) -> None:
    machine.vetted(0, (2,))
    machine.vetted(1, (2, 77))
    machine.vetted(2, ())
    (found,) = machine.vetted(3, ())
    assert isinstance(found, EntriesChosen)
    assert found.chosen == Chosen((1, 3), (2,), (0, 1, 2, 3))


def test_an_entry_of_a_node_that_two_of_four_do_not_know_is_left_out_unproven(machine: VettingMachine) -> None:
    machine.vetted(0, (), (2,))
    machine.vetted(1, (), (2, 77))
    machine.vetted(2, ())
    (found,) = machine.vetted(3, ())
    assert found == EntriesChosen(Chosen((1, 3), (), (0, 1, 2, 3), (2,)))


def test_a_trustee_that_is_silent_delays_the_choice_until_it_leaves_or_time_is_up(machine: VettingMachine) -> None:
    for one, entries in enumerate(((2,), (), ())):
        assert machine.vetted(one, entries) == []
    (found,) = machine.hurry()
    assert found == EntriesChosen(Chosen((1, 3), (), (0, 1, 2)))
    other = VettingMachine(committee(), (3, 1, 2), range(4))
    for one, entries in enumerate(((2,), (), ())):
        other.vetted(one, entries)
    assert other.vanished(3) == [found]


def test_without_a_quorum_of_answers_nothing_is_chosen(machine: VettingMachine) -> None:
    machine.vetted(0, ())
    machine.vetted(1, ())
    assert machine.hurry() == machine.vanished(2) == machine.vanished(3) == []
    assert machine.returned(3) == [AskVerdict(3)]
    assert machine.returned(0) == []
    assert len(machine.vetted(3, ())) == 1


def test_trustees_that_refuse_the_list_as_a_whole_abort_it_where_no_quorum_is_left(machine: VettingMachine) -> None:
    assert machine.refused(0, "a list of another run") == []
    assert machine.vetted(0, ()) == [], "its first answer counts"
    assert machine.refused(1, "a list of another run") == [ListAborted("2 trustees are left, 3 must sign", ())]
    assert machine.refused(2, "a list of another run") == []


@given(answers=st.lists(st.tuples(st.integers(0, 7), st.sets(st.integers(0, 9))), max_size=20))
def test_a_quorum_accepts_all_that_is_chosen(answers: list[tuple[int, set[int]]]) -> None:
    them = committee(8, 2)
    machine = VettingMachine(them, range(10), range(8))
    found = [action for one, entries in answers for action in machine.vetted(one, entries)] + machine.hurry()
    assert len(found) <= 1
    first: dict[int, set[int]] = {}
    for one, entries in answers:
        first.setdefault(one, entries)
    for action in found:
        assert isinstance(action, EntriesChosen)
        chosen = action.chosen
        accepting = [one for one, entries in first.items() if not entries & set(chosen.assignments)]
        assert len(accepting) >= them.quorum
        for bad in chosen.proven:
            assert sum(bad in entries for entries in first.values()) > them.collude
