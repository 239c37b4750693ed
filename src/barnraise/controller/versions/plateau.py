"""The rule that ends a run early: its held-out loss no longer falls."""

from __future__ import annotations

import math
from collections.abc import Sequence

from barnraise.controller.state.settings import PatienceSettings


def plateau(losses: Sequence[float], settings: PatienceSettings) -> str:
    """Return why a run with these held-out losses, the oldest first, is to end; empty: it is not.

    A loss that is no number is no gain. The first measurement, before any training, is none of the best.

    >>> plateau([5.0, 3.0, 3.1, 2.99], PatienceSettings(patience=2, least_gain=0.05))
    'the held-out loss has not fallen by 0.05 in 2 evaluations; the lowest was 3'
    >>> plateau([5.0, 3.0, 3.1, 2.9], PatienceSettings(patience=2, least_gain=0.05))
    ''
    """
    best, waited = math.inf, 0
    for loss in losses[1:]:
        gained = loss < best - settings.least_gain if math.isfinite(best) else math.isfinite(loss)
        best, waited = (loss, 0) if gained else (best, waited + 1)
    if not settings.patience or waited < settings.patience:
        return ""
    gain = f" by {settings.least_gain:g}" if settings.least_gain else ""
    return f"the held-out loss has not fallen{gain} in {waited} evaluations; the lowest was {best:.4g}"
