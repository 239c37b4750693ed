"""Which parameters an inner optimizer treats as matrices; torch-free."""

from __future__ import annotations

import re

from barnraise.models.exchange.layout import Layout, Leaf, Shape

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


def batches(layout: Layout, most: int) -> list[list[Leaf]]:
    """Return the hidden matrices, those of one shape together, up to `most` values or one matrix in a batch.

    >>> layout = Layout.of([("h.0.a", (2, 2)), ("h.0.b", (2, 4)), ("h.1.a", (2, 2)), ("h.2.a", (2, 2))])
    >>> [[leaf.name for leaf in batch] for batch in batches(layout, 8)]
    [['h.0.a', 'h.1.a'], ['h.2.a'], ['h.0.b']]
    """
    alike = dict[Shape, list[Leaf]]()
    for leaf in filter(is_hidden, layout.leaves):
        alike.setdefault(leaf.shape, []).append(leaf)
    found = list[list[Leaf]]()
    for leaves in alike.values():
        count = max(1, most // leaves[0].size)
        found += [leaves[first : first + count] for first in range(0, len(leaves), count)]
    return found


def largest_batch(layout: Layout, most: int) -> int:
    """Return the values of the largest of these batches."""
    return max((sum(leaf.size for leaf in batch) for batch in batches(layout, most)), default=0)
