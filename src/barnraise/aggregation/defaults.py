"""Which rule is taken where a run file leaves it to barnraise. Imports no torch."""

from __future__ import annotations

AUTOMATIC_F = 0.3
"""As a share: two of nine, six of twenty. More honest nodes than liars are left behind it in any case."""

GATE_ROWS = 64
"""Training rows by which the loss gate compares a version with one that is made without a node."""

GATE_PASSES = 10 / 3
"""What the gate costs where it leaves out one node, over training on as many rows: it takes the gradient with all
nodes, without the first and without the second, and the loss of the version before."""

TRUSTING = "mean"
"""Where all nodes are the host's own."""

DEFENDED = ("clip_median", "nnm", "trimmed_mean")
"""Where somebody may lie: what is not finite is refused before it, and so is what is many times too long."""
