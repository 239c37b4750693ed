"""Statistics of attacks: exact intervals of a share, tests against a control, and the size of an effect."""

from __future__ import annotations

import math
from dataclasses import dataclass

from barnraise.core.errors import InputError

CONFIDENCE = 0.95
FEWEST_EXPECTED = 5.0
"""Below this expected count in a cell the chi-square approximation is poor, and Fisher's exact test is taken."""


@dataclass(frozen=True)
class Share:
    """A count of successes in trials, with its exact interval."""

    successes: int
    trials: int
    low: float
    high: float

    @classmethod
    def of(cls, successes: int, trials: int, confidence: float = CONFIDENCE) -> Share:
        """Return the share with its interval of Clopper and Pearson (1934)."""
        return cls(successes, trials, *clopper_pearson(successes, trials, confidence))

    @property
    def value(self) -> float:
        """Return successes over trials."""
        return self.successes / self.trials


@dataclass(frozen=True)
class ShareComparison:
    """A comparison of two shares: the `test`, its two-sided p-value, and Cohen's h, positive if the first is larger."""

    test: str
    p_value: float
    effect: float


def clopper_pearson(successes: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the exact interval of a share, from quantiles of the beta distribution.

    Clopper and Pearson 1934: at least `confidence` of such intervals hold the true share, whatever it is.
    """
    _check(successes, trials)
    if not 0.0 < confidence < 1.0:
        raise InputError(f"the confidence is {confidence}, but must be above 0 and below 1; 0.95 is usual")
    from scipy.stats import beta

    tail, failures = (1.0 - confidence) / 2.0, trials - successes
    low = 0.0 if successes == 0 else float(beta.ppf(tail, successes, failures + 1))
    high = 1.0 if failures == 0 else float(beta.ppf(1.0 - tail, successes + 1, failures))
    return low, high


def compare(successes: int, trials: int, control_successes: int, control_trials: int) -> ShareComparison:
    """Compare an attack's share of successes with its control's.

    The chi-square test with Yates' correction, or Fisher's exact test where an expected count is below 5.
    """
    _check(successes, trials)
    _check(control_successes, control_trials)
    from scipy.stats import chi2_contingency, fisher_exact

    table = [
        [successes, trials - successes],
        [control_successes, control_trials - control_successes],
    ]
    effect = cohens_h(successes / trials, control_successes / control_trials)
    if least_expected(table) < FEWEST_EXPECTED:
        return ShareComparison("fisher", float(fisher_exact(table)[1]), effect)
    return ShareComparison("chi-square", float(chi2_contingency(table)[1]), effect)


def least_expected(table: list[list[int]]) -> float:
    """Return the least count that a cell would have if both rows had one share.

    >>> least_expected([[10, 90], [0, 100]])
    5.0
    """
    rows, columns = [sum(row) for row in table], [sum(column) for column in zip(*table, strict=True)]
    return float(min(rows) * min(columns) / sum(rows))


def cohens_h(share: float, control: float) -> float:
    """Return the difference of two shares on the arcsine scale (Cohen 1988, chapter 6): 0.2 is small, 0.8 is large.

    >>> round(cohens_h(1.0, 0.0), 4)
    3.1416
    """
    return 2.0 * math.asin(math.sqrt(share)) - 2.0 * math.asin(math.sqrt(control))


def _check(successes: int, trials: int) -> None:
    if trials < 1:
        raise InputError(f"a share of {trials} trials is undefined; play at least 1")
    if not 0 <= successes <= trials:
        raise InputError(f"{successes} successes of {trials} trials are impossible; give 0 to {trials}")
