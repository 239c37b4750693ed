"""The choice of members and trustees: proven entries leave, and what remains has no open refusal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.maskings import committee

from barnraise.privacy.masking.choosing import Chosen, choose


def test_without_refusals_all_are_chosen() -> None:
    assert choose(committee(), [3, 1, 2], dict.fromkeys(range(4), ())) == Chosen((1, 2, 3), (), (0, 1, 2, 3))


def test_an_entry_that_more_than_t_trustees_refuse_is_proven_bad() -> None:
    found = choose(committee(), [1, 2, 3], {0: {2}, 1: {2}, 2: (), 3: ()})
    assert found == Chosen((1, 3), (2,), (0, 1, 2, 3))


def test_a_trustee_that_refuses_all_is_left_out() -> None:
    found = choose(committee(), [1, 2, 3], {0: {1, 2, 3}, 1: (), 2: (), 3: ()})
    assert found == Chosen((1, 2, 3), (), (1, 2, 3))


def test_an_entry_is_left_out_where_no_trustee_can_be_spared() -> None:
    found = choose(committee(), [1, 2, 3], {0: {1}, 1: {2}, 2: (), 3: ()})
    assert len(found.assignments) == 2
    assert 3 in found.assignments
    assert found.proven == ()
    assert len(found.trustees) == 3
    assert choose(committee(), [1, 2], {0: {1}, 1: (), 2: (), 3: ()}, spare=1).assignments == (2,)


def test_a_node_that_more_than_t_trustees_do_not_know_is_left_out_unproven() -> None:
    them, refused = committee(), {0: {2}, 1: {2}, 2: (), 3: ()}
    assert choose(them, [1, 2, 3], refused, {0: {2}, 1: {2}}) == Chosen((1, 3), (), (0, 1, 2, 3), (2,))
    assert choose(them, [1, 2, 3], refused, {0: {2}}).proven == ()
    assert choose(them, [1, 2, 3], refused, {0: {2}}).unlisted == ()
    three = {0: {2}, 1: {2}, 2: {2}, 3: ()}
    assert choose(them, [1, 2, 3], three, {0: {2}}).proven == (2,), "two more than may collude found it faulty"


@given(refused=st.dictionaries(st.integers(0, 7), st.sets(st.integers(0, 9)), min_size=6))
def test_all_chosen_trustees_accept_all_chosen_entries(refused: dict[int, set[int]]) -> None:
    them = committee(8, 2)
    found = choose(them, range(10), refused)
    assert len(found.trustees) >= them.quorum
    assert not any(refused[one] & set(found.assignments) for one in found.trustees)
    for one in found.proven:
        assert sum(one in bad for bad in refused.values()) > 2
