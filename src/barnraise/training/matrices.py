"""Which parameters an inner optimizer treats as matrices; torch-free."""

from __future__ import annotations

import re

from barnraise.models.exchange.layout import Layout, Leaf

_NUMBERED = re.compile(r"(?:^|\.)\d+\.")


def is_hidden(leaf: Leaf) -> bool:
    """Return whether a parameter is a hidden matrix: one of two axes in a numbered layer.

    Embeddings and the output layer are in none.

    >>> layout = Layout.of([("h.0.attn.weight", (2, 2)), ("h.0.bias", (2,)), ("wte", (9, 2))])
    >>> [is_hidden(leaf) for leaf in layout.leaves]
    [True, False, False]
    """
    return len(leaf.shape) == 2 and min(leaf.shape) > 1 and _NUMBERED.search(leaf.name) is not None


def hidden_share(layout: Layout) -> float:
    """Return the share of the parameters that are in hidden matrices."""
    return sum(leaf.size for leaf in layout.leaves if is_hidden(leaf)) / layout.size
