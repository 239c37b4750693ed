"""Counts of malformed frames, by sender."""

from __future__ import annotations

from barnraise.core.malformed_frames import INTERVAL, MOST_SENDERS, MalformedFrames


def test_senders_are_forgotten_after_their_interval() -> None:
    drops = MalformedFrames()
    for number in range(4 * MOST_SENDERS):
        assert drops.count(f"sender-{number}", number * INTERVAL) == 1
    assert len(drops._told_at) <= MOST_SENDERS + 1
