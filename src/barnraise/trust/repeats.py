"""Whose word counts, where several nodes have done the same stateless task: that of the two owners that agree.

Honest nodes come to the same update but for rounding, which steps amplify: the tolerance is for the numbers that they
compute in. benchmarks/liars.py prints how far honest nodes are apart at most, and how many of them are convicted.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from barnraise.core.sketches import compare

TOLERANCE = {"float32": 0.05, "bfloat16": 0.25}
"""How far apart two honest updates may be, as a share of their length, by the type that workers compute in."""


@dataclass(frozen=True)
class Judgement:
    """`sound` is whether what was sent is what others make of the task, None while nobody knows; `wrong` are the places
    of the answers that two others contradict."""

    sound: bool | None = None
    wrong: tuple[int, ...] = ()


def judge(sent: bytes, answers: Sequence[bytes], tolerance: float, owners: Sequence[Hashable] = ()) -> Judgement:
    """Of the sketches of what was sent and of what others found, the newest last, which settled nothing before.

    `owners` are whose they are, the sender's first: what one owner's nodes say counts once, whatever their number.
    Where all are of one (or nobody knows), nobody else was there, and each node counts.

    >>> from array import array
    >>> one, other, third = (array("f", [value] * 1024).tobytes() for value in (1.0, -1.0, 5.0))
    >>> judge(one, [one], 0.1), judge(one, [other], 0.1)
    (Judgement(sound=True, wrong=()), Judgement(sound=None, wrong=()))
    >>> judge(one, [other, one], 0.1), judge(one, [third, other, other], 0.1)
    (Judgement(sound=True, wrong=(0,)), Judgement(sound=False, wrong=(0,)))

    Two of one owner convict nobody else, nor does one speak for the other; against it, it counts.

    >>> judge(one, [other, other], 0.1, "abb"), judge(one, [one], 0.1, "aa"), judge(one, [other, one], 0.1, "aba")
    (Judgement(sound=None, wrong=()), Judgement(sound=True, wrong=()), Judgement(sound=None, wrong=()))
    >>> judge(one, [other, other], 0.1, "aba"), judge(one, [other, one, other], 0.1, "abac")
    (Judgement(sound=False, wrong=()), Judgement(sound=False, wrong=(1,)))
    """
    sender, *others = owners if len(set(owners)) > 1 else range(len(answers) + 1)
    newest = answers[-1]
    if agree(sent, newest, tolerance):
        if others[-1] == sender:
            return Judgement()
        return Judgement(True, tuple(place for place, one in enumerate(answers) if not agree(sent, one, tolerance)))
    with_it = [place for place, answer in enumerate(answers) if agree(answer, newest, tolerance)]
    if len({others[place] for place in with_it}) < 2:
        return Judgement()
    return Judgement(False, tuple(place for place in range(len(answers)) if place not in with_it))


def agree(one: bytes, other: bytes, tolerance: float) -> bool:
    """Whether two sketches are of one update but for rounding, whichever of them is taken as the measure."""
    return compare(one, other)[1] <= tolerance and compare(other, one)[1] <= tolerance
