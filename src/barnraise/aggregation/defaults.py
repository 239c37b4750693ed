"""The default aggregation rule of a run file.

Imports no torch.
"""

from __future__ import annotations

AUTOMATIC_F = 0.3
"""Default f as a share: two of nine, six of twenty. In any case more honest nodes than attackers remain behind it."""

GATE_ROWS = 64
"""Training rows by which the loss gate compares a version with one that is made without a node."""

GATE_PASSES = 10 / 3
"""Cost of the gate if it leaves out one node, over training on as many rows.

It takes the gradient with all nodes, without the first and without the second, and the loss of the version before.
"""

TRUSTING = "mean"
"""The rule if all nodes are the host's own."""

DEFENDED = ("clip_median", "nnm", "trimmed_mean")
"""The rule if nodes may lie: non-finite and far too long updates are refused before it."""
