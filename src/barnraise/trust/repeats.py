"""Whose word counts, where several nodes have done the same stateless task: that of the two owners that agree.

Honest nodes come to the same update but for rounding. Local steps amplify rounding, in deep models until two honest
updates have little in common. Two answers that agree to the bit do not show that a third one is a lie: their machines
may be alike, and the third one another. So once a node's result was contradicted, each node that does the task again
begins at parameters that are perturbed a little more than rounding perturbs them. Where rounding alone leads apart,
perturbed results do not agree with any, and nobody is convicted. Where two results agree though one of them began at
perturbed parameters, rounding does not explain a third one that is several times further away from them than they are
from each other.

`benchmarks/repeats.py` prints how far honest nodes are apart, `benchmarks/liars.py` how many of them are convicted.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from barnraise.core.sketches import compare

TOLERANCE = {"float32": 0.05, "bfloat16": 0.25}
"""How far apart two honest updates may be, as a share of their length, by the type that workers compute in."""

PERTURBATION = {"float32": 2.0**-20, "bfloat16": 2.0**-10}
"""By which share each parameter is changed before a task is done again whose result was contradicted, by the type that
workers compute in."""

LONGEST = 90
"""Layers of the model times local steps of a task up to which rounding seldom leads further apart than the tolerance,
in `benchmarks/repeats.py`: above that audits may settle little."""

CLEARLY = 4.0
"""By how many times further from two results that agree a wrong one is than these are from each other, at least."""

MOST_ANSWERS = 5
"""Different results of one task after which nobody does it again."""


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

    Nor is anybody convicted who is hardly further from the two than they are from each other.

    >>> near, nearer, far = (array("f", [value] * 1024).tobytes() for value in (1.04, 1.01, 1.11))
    >>> judge(far, [one, near], 0.05), judge(far, [one, nearer], 0.05)
    (Judgement(sound=None, wrong=()), Judgement(sound=False, wrong=()))
    """
    sender, *others = owners if len(set(owners)) > 1 else range(len(answers) + 1)
    newest = answers[-1]
    apart = [distance(newest, answer) for answer in answers]

    def wrong(nearest: float) -> tuple[int, ...]:
        """The answers that are clearly others than the newest, which is so near to one that it agrees with."""
        return tuple(place for place, far in enumerate(apart) if far > max(tolerance, CLEARLY * nearest))

    if (far := distance(newest, sent)) <= tolerance:
        return Judgement(True, wrong(far)) if others[-1] != sender else Judgement()
    with_it = [place for place, near in enumerate(apart) if near <= tolerance]
    nearest = max(apart[place] for place in with_it)
    if len({others[place] for place in with_it}) < 2 or far <= CLEARLY * nearest:
        return Judgement()
    return Judgement(False, wrong(nearest))


def distance(one: bytes, other: bytes) -> float:
    """How far apart the vectors of two sketches are, as a share of the shorter one's length."""
    return max(compare(one, other)[1], compare(other, one)[1])
