"""Batches of text in tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from barnraise.data.batches import Batch


def labelled(rows: np.ndarray[Any, Any], labels: np.ndarray[Any, Any] | None = None) -> Batch:
    """Return the batch of these rows, whose every token is a label unless `labels` are given."""
    return {"input_ids": rows, "labels": rows if labels is None else labels}
