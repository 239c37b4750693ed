"""The committee: any t miss a seed, any quorums meet in an honest trustee, and portions hold each seed once."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from tests.maskings import committee

from barnraise.core.errors import InputError
from barnraise.privacy.masking.committee import Committee

SHAPES = [(4, 1), (5, 1), (8, 1), (7, 2), (8, 2), (10, 3), (13, 2)]


@pytest.mark.parametrize(("m", "t"), SHAPES)
def test_colluding_trustees_miss_a_seed_and_any_more_know_all(m: int, t: int) -> None:
    them = committee(m, t)
    everything = set(range(len(them.subsets)))
    for group in combinations(range(m), t):
        missing = everything - {seed for one in group for seed in them.known[one]}
        assert missing == {them.subsets.index(group)}
    for group in combinations(range(m), t + 1):
        assert {seed for one in group for seed in them.known[one]} == everything
    assert {len(known) for known in them.known} == {them.num_known}


@pytest.mark.parametrize(("m", "t"), SHAPES)
def test_two_quorums_share_an_honest_trustee_while_t_may_be_silent(m: int, t: int) -> None:
    them = committee(m, t)
    assert 2 * them.quorum - m >= t + 1
    assert them.least_answering <= them.quorum <= m - t


@pytest.mark.parametrize(("m", "t"), SHAPES)
def test_portions_hold_each_seed_once_and_t_more_can_confirm_them(m: int, t: int) -> None:
    them = committee(m, t)
    for missing in [(), *combinations(range(m), t)]:
        answering = [one for one in range(m) if one not in missing]
        portions = them.portions(answering)
        assert sorted(seed for portion in portions for seed in portion.seeds) == list(range(len(them.subsets)))
        for portion in portions:
            assert len(portion.knowers) >= t + 1
            assert len(set(portion.knowers)) == len(portion.knowers)
            assert all(set(portion.seeds) <= set(them.known[one]) for one in portion.knowers)
            assert set(portion.knowers) <= set(answering)


def test_portions_share_the_work_evenly() -> None:
    for m, t in [(4, 1), (8, 1), (8, 2), (9, 2), (10, 3)]:
        them, work = committee(m, t), [0] * m
        for portion in them.portions(range(m)):
            for one in portion.knowers[: t + 1]:
                work[one] += len(portion.seeds)
        assert max(work) <= 1.5 * sum(work) / m


@pytest.mark.parametrize(("m", "t", "few"), [(4, 1, 2), (8, 2, 4), (9, 2, 3), (10, 3, 10)])
def test_portions_are_few(m: int, t: int, few: int) -> None:
    assert len(committee(m, t).portions(range(m))) == few


def test_too_few_trustees_for_portions_are_refused() -> None:
    with pytest.raises(InputError, match="2 trustees answer, at least 3 must"):
        committee().portions([0, 3])


@pytest.mark.parametrize(
    ("m", "t", "told"),
    [
        (4, 0, "at least 1"),
        (3, 1, "3 trustees of whom 1 may collude, must be at least 4 .*name 1 more$"),
        (6, 2, "name 1 more, or let at most 1 collude"),
        (16, 3, "560 seeds an update, at most 128"),
    ],
)
def test_committees_that_cannot_hold_are_refused(m: int, t: int, told: str) -> None:
    with pytest.raises(InputError, match=told):
        committee(m, t)


@pytest.mark.parametrize("field", ["name", "signer", "sealing"])
def test_a_key_or_a_name_that_two_trustees_have_is_refused(field: str) -> None:
    first, second, *others = committee().trustees
    with pytest.raises(InputError, match=f"two trustees have the {field}"):
        Committee((first, replace(second, **{field: getattr(first, field)}), *others), 1)


def test_the_digest_and_the_numbers_follow_the_names() -> None:
    them = committee()
    assert them.digest == committee().digest
    assert them.digest != Committee(them.trustees[::-1], 1).digest
    assert (them.number("t2"), them.number("n2")) == (2, None)
