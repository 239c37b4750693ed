"""The notes of a run's differential privacy: the budget that it keeps, and how much of it is spent."""

from __future__ import annotations

from typing import ClassVar

from barnraise.ledger.note import Note


class PrivacyBudget(Note, frozen=True, gc=False):
    """The run keeps a budget of differential privacy from here on, for each `unit`: row or site.

    A step adds noise of `noise` times the clip, and takes each row with probability `rate` (1: all of them). `most` is
    the number of steps of one unit at which `epsilon` at `delta` is spent.
    """

    unit: str
    noise: float
    rate: float
    epsilon: float
    delta: float
    most: int


class PrivacySpent(Note, frozen=True, gc=False):
    """Some unit was assigned `steps` steps, the most of all, which spends `epsilon`."""

    figures: ClassVar[bool] = True

    steps: int
    epsilon: float
