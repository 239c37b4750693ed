"""Judgement of results where several nodes have done the same stateless task: two owners that agree are right.

Honest nodes compute the same update up to rounding. Local steps amplify rounding, in deep models until two honest
updates have little in common. Two answers that agree to the bit do not show that a third one is a lie: their machines
may be alike, and the third one different. So once a node's result was contradicted, each node that repeats the task
begins at parameters that are perturbed a little more than rounding perturbs them. Where rounding alone leads apart,
perturbed results do not agree with any, and no node is convicted. Where two results agree though one of them began at
perturbed parameters, rounding does not explain a third one that is several times further away from them than they are
from each other.

`benchmarks/repeats.py` prints the distances of honest nodes, `benchmarks/liars.py` how many of them are convicted.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from barnraise.core.sketches import compare

TOLERANCE = {"float32": 0.05, "bfloat16": 0.25, "auto": 0.25}
"""Allowed distance of two honest updates, as a share of their length, by the type that workers compute in."""

PERTURBATION = {"float32": 2.0**-20, "bfloat16": 2.0**-10, "auto": 2.0**-10}
"""Share by which each parameter is perturbed before a contradicted task is repeated, by the type of computation."""

LONGEST = 90
"""Layers of the model times local steps of a task up to which rounding seldom exceeds the tolerance.

Measured by `benchmarks/repeats.py`; above it audits may settle little.
"""

CLEARLY = 4.0
"""Factor by which a wrong result is further from two agreeing results than these are from each other, at least."""

MOST_ANSWERS = 5
"""Different results of one task after which it is not repeated again."""


@dataclass(frozen=True)
class Judgement:
    """The verdict on a result: `sound` is whether other nodes confirm it, None while that is open.

    `wrong` are the indices of the answers that two other owners contradict.
    """

    sound: bool | None = None
    wrong: tuple[int, ...] = ()


def judge(sent: bytes, answers: Sequence[bytes], tolerance: float, owners: Sequence[Hashable] = ()) -> Judgement:
    """Judge sketches: `sent` by a node, and `answers` of others, the newest last, which settled nothing before.

    `owners` are those of the sender and of the answers: the nodes of one owner count once. If all have one owner, or
    owners are unknown, each node counts.

    >>> from array import array
    >>> one, other, third = (array("f", [value] * 1024).tobytes() for value in (1.0, -1.0, 5.0))
    >>> judge(one, [one], 0.1), judge(one, [other], 0.1)
    (Judgement(sound=True, wrong=()), Judgement(sound=None, wrong=()))
    >>> judge(one, [other, one], 0.1), judge(one, [third, other, other], 0.1)
    (Judgement(sound=True, wrong=(0,)), Judgement(sound=False, wrong=(0,)))

    Two nodes of one owner cannot convict another owner's node, nor confirm each other; against its own result, a node
    of that owner counts.

    >>> judge(one, [other, other], 0.1, "abb"), judge(one, [one], 0.1, "aa"), judge(one, [other, one], 0.1, "aba")
    (Judgement(sound=None, wrong=()), Judgement(sound=True, wrong=()), Judgement(sound=None, wrong=()))
    >>> judge(one, [other, other], 0.1, "aba"), judge(one, [other, one, other], 0.1, "abac")
    (Judgement(sound=False, wrong=()), Judgement(sound=False, wrong=(1,)))

    A node is not convicted either when its result is hardly further from the two than they are from each other.

    >>> near, nearer, far = (array("f", [value] * 1024).tobytes() for value in (1.04, 1.01, 1.11))
    >>> judge(far, [one, near], 0.05), judge(far, [one, nearer], 0.05)
    (Judgement(sound=None, wrong=()), Judgement(sound=False, wrong=()))
    """
    sender, *others = owners if len(set(owners)) > 1 else range(len(answers) + 1)
    newest = answers[-1]
    apart = [distance(newest, answer) for answer in answers]

    def wrong(nearest: float) -> tuple[int, ...]:
        """Return the answers that clearly differ from the newest, which is `nearest` to one and agrees with it."""
        return tuple(place for place, far in enumerate(apart) if far > max(tolerance, CLEARLY * nearest))

    if (far := distance(newest, sent)) <= tolerance:
        return Judgement(True, wrong(far)) if others[-1] != sender else Judgement()
    with_it = [place for place, near in enumerate(apart) if near <= tolerance]
    nearest = max(apart[place] for place in with_it)
    if len({others[place] for place in with_it}) < 2 or far <= CLEARLY * nearest:
        return Judgement()
    return Judgement(False, wrong(nearest))


def distance(one: bytes, other: bytes) -> float:
    """Return the distance of the vectors of two sketches, as a share of the shorter one's length."""
    return max(compare(one, other)[1], compare(other, one)[1])
