"""Rows of several lengths: the valid lengths, their mean, and the order of their shards.

Each length has an equal share of the tokens, so there are more of the short rows. No numpy, no torch: plans and
simulations count with these before there is any data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnraise.core.errors import DataError

MOST_LENGTHS = 8

TURNS = 16
"""Cycles through the lengths in the order of shards, where there are rows enough for them."""

ROWS_A_TURN = 128
"""Rows of the longest length in a shard, at least: smaller shards would cut tasks short."""

SHARD_BYTES = 32 << 20
"""Most bytes of a shard by default."""


def in_order(lengths: int | Sequence[int]) -> tuple[int, ...]:
    """Return a dataset's row lengths, the shortest first; DataError unless there are some, not too many, ascending.

    >>> in_order(64), in_order([64, 128])
    ((64,), (64, 128))
    """
    found = (lengths,) if isinstance(lengths, int) else tuple(lengths)
    if not found:
        raise DataError("context is an empty list; give at least one row length")
    if len(found) > MOST_LENGTHS:
        raise DataError(f"context has {len(found)} row lengths, but may have {MOST_LENGTHS}; leave some out")
    if len(set(found)) < len(found):
        raise DataError(f"context {list(found)} has a row length twice; give each once")
    if list(found) != sorted(found):
        raise DataError(f"context {list(found)} does not ascend; write {sorted(found)}")
    return found


def mean_length(lengths: Sequence[int]) -> int:
    """Return the mean tokens of a row: the harmonic mean, since each length has an equal share of the tokens.

    >>> mean_length([128]), mean_length([64, 128, 256])
    (128, 110)
    """
    return round(len(lengths) / sum(1.0 / length for length in lengths))


def rows_of(rows: int, lengths: Sequence[int]) -> dict[int, int]:
    """Return the number of rows of each length, at least one, that about `rows` rows have.

    >>> rows_of(700, [64, 128, 256])
    {64: 401, 128: 201, 256: 100}
    """
    tokens = rows * mean_length(lengths) / len(lengths)
    return {length: max(1, round(tokens / length)) for length in lengths}


def shards_of(rows: Mapping[int, int], shard_tokens: int) -> list[tuple[int, int]]:
    """Return the (length, rows) of shards of at most `shard_tokens` tokens that hold `rows` of each length.

    Lengths alternate, so that a worker that reads the shards in order meets all of them early.

    >>> shards_of({4: 10}, 16)
    [(4, 4), (4, 4), (4, 2)]
    >>> shards_of({4: 1000, 8: 500}, 1 << 20)
    [(4, 334), (8, 167), (4, 334), (8, 167), (4, 332), (8, 166)]
    """
    turns = max(2, min(TURNS, min(rows.values()) // ROWS_A_TURN)) if len(rows) > 1 else 1
    found = []
    for length, count in rows.items():
        step = min(max(1, shard_tokens // length), -(-count // turns))
        starts = range(0, count, step)
        found += [(turn / len(starts), length, min(step, count - start)) for turn, start in enumerate(starts)]
    return [(length, number) for _, length, number in sorted(found)]


def named(lengths: Sequence[int]) -> str:
    """Return the lengths as text.

    >>> named([64]), named([64, 128, 256])
    ('64', '64, 128 and 256')
    """
    *first, last = map(str, lengths)
    return f"{', '.join(first)} and {last}" if first else last
