"""Random histories of masked lists: the exact sums or a clean abort, and never the masks of two lists."""

from __future__ import annotations

from collections import Counter

import pytest

from barnraise.privacy.masking.release import ListMade

from ..campaigns import campaign
from .masking import History, HostileHost

PIECES, SHORT, EACH = 10, 2, 50
"""`make histories` plays 10,000 of them: half have an honest controller, the other half a hostile one."""

SOME = [*range(SHORT), *map(campaign, range(SHORT, PIECES))]


@pytest.mark.parametrize("piece", SOME)
def test_every_history_ends_in_the_exact_sums_or_a_clean_abort(piece: int) -> None:
    ends: Counter[str] = Counter()
    for seed in range(piece * EACH, (piece + 1) * EACH):
        history = History(seed)
        history.play()
        history.check()
        ends[type(history.end).__name__] += 1
    assert ends["ListMade"] > EACH // 4
    assert ends["ListAborted"] > 0


@pytest.mark.parametrize("piece", SOME)
def test_a_hostile_host_never_gets_the_masks_of_two_lists(piece: int) -> None:
    given: Counter[int] = Counter()
    for seed in range(piece * EACH, (piece + 1) * EACH):
        host = HostileHost(seed)
        host.play()
        host.check()
        given[len(host.given)] += 1
    assert given[1] > 0, "some list is given in some histories, else the check is empty"


def test_a_list_without_faults_is_always_made() -> None:
    for seed in range(20):
        history = History(seed, faults=False)
        history.play()
        history.check()
        assert isinstance(history.end, ListMade)
