"""Random batches in which each row is, or is not, by a draw of its own: what amplification by sampling rests on.

The batches of `data.batches` are no such sample: they cut a shuffled order into disjoint parts of a fixed size, which
have no such amplification. The draws come from a secret stream, as a batch that others know is no sample to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from barnraise.core.errors import PayloadError
from barnraise.data.batches import Batch, MakeBatch, Rows, batch_of, taken
from barnraise.data.meta import Format
from barnraise.data.shards import row_lengths
from barnraise.privacy.gaussian import SecretStream


def poisson_batches(
    parts: Sequence[Rows],
    form: Format,
    *,
    rate: float,
    steps: int,
    stream: SecretStream,
    make: MakeBatch = lambda rows, form, chance: batch_of(rows, form),
) -> Iterator[Batch]:
    """Yield `steps` batches of the rows of all `parts`, each with every row with probability `rate`; some are empty.

    No row may be in two parts. A task's rows have one length; PayloadError where they do not.
    """
    if len({part.dtype for part in parts}) != 1:
        raise PayloadError("rows of several lengths in one task, of which no random batch can be made")
    lengths = np.concatenate([row_lengths(part, form) for part in parts])
    for _ in range(steps):
        places = stream.chosen(len(lengths), rate)
        longest = int(lengths[places].max()) if places.size else 1
        chance = np.random.default_rng(int(stream.words(1)[0]))
        yield make(taken(parts, places, form, longest), form, chance)
