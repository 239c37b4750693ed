"""The controller's machine of a list: whom it asks, what it believes, and when it gives up."""

from __future__ import annotations

import pytest
from tests.maskings import committee

from barnraise.privacy.masking.release import (
    AskEndorsement,
    AskMasks,
    ListAborted,
    ListMade,
    ListStatus,
    ReleaseMachine,
    TakeOff,
)

GOOD, BAD = "aa" * 32, "bb" * 32


def released(m: int = 4, t: int = 1, reachable: int | None = None) -> tuple[ReleaseMachine, list[AskMasks]]:
    """Return a machine whose list a quorum endorsed, and what it asks for."""
    them = committee(m, t)
    machine = ReleaseMachine(them, range(m if reachable is None else reachable))
    actions = machine.start()
    for one in range(them.quorum):
        assert actions[one] == AskEndorsement(one)
        asks = machine.endorsed(one, "signature")
    return machine, asks  # type: ignore[return-value]


def answer(machine: ReleaseMachine, ask: AskMasks, digest: str = GOOD) -> list[object]:
    return list(machine.answered(ask.trustee, ask.seeds, digest, ask.send))


def test_masks_are_asked_of_a_quorum_only_and_each_sum_of_two() -> None:
    them = committee()
    machine = ReleaseMachine(them, range(4))
    assert machine.start() == [AskEndorsement(one) for one in range(4)]
    assert machine.endorsed(0, "s") == machine.endorsed(3, "s") == machine.endorsed(3, "s") == []
    asks = machine.endorsed(1, "s")
    assert machine.status is ListStatus.RELEASED
    assert sorted(seed for ask in asks if ask.send for seed in ask.seeds) == [0, 1, 2, 3]  # type: ignore[union-attr]
    assert sorted(seed for ask in asks if not ask.send for seed in ask.seeds) == [0, 1, 2, 3]  # type: ignore[union-attr]


@pytest.mark.parametrize(("m", "t"), [(4, 1), (8, 1), (7, 2), (8, 2)])
def test_a_list_is_made_when_each_sum_is_confirmed(m: int, t: int) -> None:
    machine, asks = released(m, t)
    actions = [action for ask in asks for action in answer(machine, ask)]
    *taken, end = actions
    assert end == ListMade(())
    assert all(isinstance(one, TakeOff) and one.digest == GOOD for one in taken)
    assert sorted(seed for one in taken for seed in one.seeds) == list(range(len(machine.committee.subsets)))  # type: ignore[attr-defined]
    assert answer(machine, asks[0]) == machine.vanished(0) == machine.expire("late") == []


def test_a_trustee_that_lies_is_outvoted_named_and_asked_nothing_more() -> None:
    machine, asks = released()
    liar = asks[0].trustee
    waiting, taken, end = list(asks), [], None
    while waiting:
        ask = waiting.pop(0)
        for action in answer(machine, ask, BAD if ask.trustee == liar else GOOD):
            if isinstance(action, AskMasks):
                assert action.trustee not in machine.liars
                waiting.append(action)
            elif isinstance(action, TakeOff):
                taken.append(action)
            else:
                end = action
    assert end == ListMade((liar,))
    assert all(one.digest == GOOD and one.trustee != liar for one in taken)


def test_a_lost_trustee_s_work_is_asked_of_others() -> None:
    machine, asks = released()
    lost = asks[0].trustee
    more = [one for one in machine.vanished(lost) if isinstance(one, AskMasks)]
    assert more
    assert all(one.trustee != lost for one in more)
    waiting = [ask for ask in asks if ask.trustee != lost] + more
    ends = []
    while waiting:
        for action in answer(machine, waiting.pop(0)):
            (waiting if isinstance(action, AskMasks) else ends).append(action)  # type: ignore[arg-type]
    assert ends[-1] == ListMade(())


def test_with_too_few_trustees_it_waits_until_one_returns() -> None:
    machine, asks = released()
    elsewhere = machine.vanished(0) + machine.vanished(1)
    waiting = [one for one in [*asks, *elsewhere] if isinstance(one, AskMasks) and one.trustee in (2, 3)]
    while waiting:
        waiting += [one for one in answer(machine, waiting.pop(0)) if isinstance(one, AskMasks)]
    assert machine.status is ListStatus.RELEASED
    waiting = [one for one in machine.returned(0) if isinstance(one, AskMasks)]
    while waiting and not machine.is_over:
        waiting += [one for one in answer(machine, waiting.pop(0)) if isinstance(one, AskMasks)]
    assert machine.status is ListStatus.MADE


def test_an_endorsement_is_asked_again_of_a_trustee_that_returns() -> None:
    machine = ReleaseMachine(committee(), [0, 1])
    assert machine.start() == [AskEndorsement(0), AskEndorsement(1)]
    assert machine.returned(2) == [AskEndorsement(2)]
    assert machine.returned(2) == machine.vanished(2) == []
    assert machine.returned(2) == [AskEndorsement(2)]


def test_refusals_that_leave_no_quorum_abort_the_list() -> None:
    machine = ReleaseMachine(committee(), range(4))
    machine.start()
    assert machine.refused(1, "no") == []
    (end,) = machine.refused(2, "no")
    assert end == ListAborted("2 trustees are left, 3 must sign", ())
    assert machine.endorsed(0, "s") == machine.endorsed(3, "s") == machine.returned(1) == []


def test_more_liars_than_may_collude_abort_the_list() -> None:
    machine, asks = released()
    waiting, end, serial = list(asks), None, 0
    while waiting:
        serial += 1
        for action in answer(machine, waiting.pop(0), f"{serial:064x}"):
            if isinstance(action, AskMasks):
                waiting.append(action)
            else:
                end = action
    assert isinstance(end, ListAborted)
    assert "too few trustees agree" in end.reason


def test_a_trustee_that_sends_no_sums_is_replaced() -> None:
    machine, asks = released()
    sender = next(ask for ask in asks if ask.send)
    more = machine.answered(sender.trustee, sender.seeds, GOOD, False)
    assert sender.trustee in machine.refusals
    assert any(isinstance(one, AskMasks) and one.send for one in more)


def test_a_list_that_expires_is_aborted_once() -> None:
    machine, asks = released()
    assert machine.expire("its time is over") == [ListAborted("its time is over", ())]
    assert answer(machine, asks[0]) == machine.expire("again") == []
    assert machine.status is ListStatus.ABORTED


def test_answers_that_were_not_asked_for_change_nothing() -> None:
    machine, asks = released()
    spare = next(one for one in range(4) if one not in {ask.trustee for ask in asks if ask.seeds == asks[0].seeds})
    assert machine.answered(spare, asks[0].seeds, BAD, True) == []
    assert machine.answered(asks[0].trustee, (0, 1, 2, 3), BAD, True) == []
