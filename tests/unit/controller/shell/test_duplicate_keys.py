"""Which process keeps a node's place when two processes have its keys."""

from __future__ import annotations

from barnraise.controller.shell.duplicate_keys import FORGOTTEN, PATIENCE, DuplicateKeys, KeyUse


def test_a_process_that_is_silent_has_lost_its_place_after_a_while() -> None:
    twins = DuplicateKeys()
    heard = [twins.asked("ann", now, PATIENCE) for now in (0.0, 1.0, 2.9, 3.0)]
    assert heard == [KeyUse.WAIT, KeyUse.WAIT, KeyUse.WAIT, KeyUse.FREE]


def test_one_that_answers_keeps_it_however_often_others_ask() -> None:
    twins = DuplicateKeys()
    heard = []
    for second in range(100):
        heard.append(twins.asked("ann", float(second), PATIENCE))
        if second % 2 == 0:
            twins.heard("ann")
    assert set(heard) == {KeyUse.WAIT, KeyUse.TAKEN}
    assert heard[:2] == [KeyUse.WAIT, KeyUse.TAKEN]


def test_an_answer_of_long_ago_says_nothing() -> None:
    twins = DuplicateKeys()
    twins.asked("ann", 0.0, PATIENCE)
    twins.heard("ann")
    late = FORGOTTEN + 1.0
    assert [twins.asked("ann", late + second, PATIENCE) for second in (0.0, 3.0)] == [KeyUse.WAIT, KeyUse.FREE]


def test_nodes_are_told_apart_and_a_free_place_is_forgotten() -> None:
    twins = DuplicateKeys()
    twins.heard("ann")
    assert twins.asked("ann", 0.0, PATIENCE) is KeyUse.WAIT, "it spoke before anybody asked"
    assert twins.asked("bob", 3.0, PATIENCE) is KeyUse.WAIT
    twins.forget("ann")
    assert twins.asked("ann", 3.0, PATIENCE) is KeyUse.WAIT
