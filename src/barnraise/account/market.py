"""Whether a market of nodes and tasks stands in a run, and why not, also before the controller has noted it.

The controller notes it once a minute. Until then the run file tells the scheduler, and the dataset's description
whether there is one lane of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from barnraise.account.matched import Matchings
from barnraise.config.aliases import canonical
from barnraise.controller.work.shard_cursors import in_lanes
from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import InputError
from barnraise.ledger import RunDirectory
from barnraise.matching.base import NO_STANDING_MARKET, ONE_LANE
from barnraise.matching.catalog import keeps_market

MOST_BYTES = 16 << 20
"""Size of a dataset's description, at most."""

NOT_YET = "its figures come after a minute"


@dataclass(frozen=True)
class MarketStatus:
    """Whether a market `stands` (None: the ledger does not tell), and why not, or why there are no figures yet."""

    stands: bool | None = None
    why: str = ""


UNTOLD = MarketStatus(None, "the ledger does not tell which scheduler the run has")


class ShardRows(msgspec.Struct):
    """The number of rows in one shard."""

    rows: int


class Shards(msgspec.Struct):
    """The part of a dataset's meta.json that says how many rows are in each shard, and whether the order counts."""

    shards: list[ShardRows]
    ordered: bool = False


def market_of(run: RunDirectory, matchings: Matchings, run_file: Mapping[str, Any]) -> MarketStatus:
    """Return whether a market stands in `run`; `run_file` is what the ledger has of its run file."""
    if matchings.absent:
        return MarketStatus(False, matchings.absent)
    if matchings.newest is not None:
        return MarketStatus(True)
    if run.simulation is not None:
        return MarketStatus(None, NOT_YET)
    content = canonical(run_file).content
    try:
        name = str(content["controller"]["scheduler"])
        training = content["training"]
        task_rows = int(training["local_steps"]) * int(training["batch_size"])
        if not keeps_market(name):
            return expected(name, (), task_rows)
    except (KeyError, TypeError, ValueError, InputError):
        return UNTOLD
    try:
        with (run.data / "meta.json").open("rb") as file:
            found = msgspec.json.decode(file.read(MOST_BYTES), type=Shards)
    except (OSError, *MALFORMED):
        return MarketStatus(None, "the dataset's description cannot be read")
    return expected(name, [shard.rows for shard in found.shards], task_rows, ordered=found.ordered)


def expected(scheduler: str, sizes: Sequence[int], task_rows: int, *, ordered: bool = False) -> MarketStatus:
    """Return whether a market is to stand with a scheduler, shards of these `sizes` and tasks of `task_rows` rows."""
    if not keeps_market(scheduler):
        return MarketStatus(False, f"{scheduler}: {NO_STANDING_MARKET}")
    if len(sizes) < 2 or not in_lanes(sizes, task_rows, ordered=ordered):
        return MarketStatus(False, ONE_LANE)
    return MarketStatus(True, NOT_YET)
