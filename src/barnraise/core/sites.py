"""Records about rows that stay with their node, a *site*: its description of them, and what it releases per task.

The controller knows rounded counts and a salted hash of the rows, and no row.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from barnraise.core.types import Digest, Share

MOST_OWN_ROWS = 2**40
"""Rows of a site at most, held-out ones alike."""

DELTA, MOST_DELTA, MOST_EPSILON = 1e-5, 0.01, 100.0
"""The usual delta of an owner's limit, and the largest values of a limit."""

Release: TypeAlias = Literal["exact", "noised", "off"]
OnOff: TypeAlias = Literal["exact", "off"]
Losses: TypeAlias = Literal["each", "mean", "off"]

_ORDER = ("exact", "each", "noised", "mean", "off")
"""The settings of a release, the most open one first."""


class Releases(msgspec.Struct, frozen=True, gc=False):
    """The settings of what a site sends besides its updates and their steps.

    `loss` and `seconds` are those of each training task, `telemetry` the load of the machine and its link, `machine`
    the profile of its hardware, `held_out` the loss of a version on the site's own held-out rows: `each` with the
    site's name on the ledger, `mean` only in the mean over the sites, or off.
    """

    loss: Release = "exact"
    seconds: Release = "exact"
    telemetry: OnOff = "exact"
    machine: OnOff = "exact"
    held_out: Losses = "mean"

    def within(self, other: Releases) -> Releases:
        """Return the more reserved setting of both for each release.

        >>> Releases(loss="noised").within(Releases(loss="off", held_out="each"))
        Releases(loss='off', seconds='exact', telemetry='exact', machine='exact', held_out='mean')
        """
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in self.__struct_fields__)
        return Releases(**{name: max(both, key=_ORDER.index) for name, *both in pairs})


class PrivacyLimit(msgspec.Struct, frozen=True, gc=False):
    """The epsilon at `delta` that an owner lets a run spend of the rows at home."""

    epsilon: float
    delta: float = DELTA


class OwnFiles(msgspec.Struct, frozen=True):
    """The owner's files for a worker whose rows stay with it, and what it sends besides updates, at most.

    `folder` is that of the rows made of them; "": beside the worker's other files. With a `limit` updates have noise of
    differential privacy, and spend no more than that.
    """

    files: tuple[str, ...]
    releases: Releases = Releases()
    folder: str = ""
    limit: PrivacyLimit | None = None


class SiteTerms(msgspec.Struct, frozen=True, gc=False):
    """The run's terms for rows that stay with their node: the share that each site holds out, and the releases."""

    held_out: Share
    releases: Releases = Releases()


class OwnRows(msgspec.Struct, frozen=True, gc=False):
    """A site's description of its rows: a claim, which moves only its own work.

    `rows` are rounded up and `held_out` rounded down to two digits. `digest` is a hash of the rows with a salt that
    only the site knows, `form` that of the tokenizer and the form of the rows. `losses` says how its held-out loss may
    be used.
    """

    rows: Annotated[int, msgspec.Meta(ge=1, le=MOST_OWN_ROWS)]
    held_out: Annotated[int, msgspec.Meta(ge=0, le=MOST_OWN_ROWS)]
    digest: Digest
    form: Digest
    losses: Losses = "off"


def rounded(count: int, *, up: bool) -> int:
    """Round a count to two digits.

    >>> rounded(1234, up=True), rounded(1234, up=False), rounded(99, up=True)
    (1300, 1200, 99)
    """
    unit: int = 10 ** max(0, len(str(count)) - 2)
    return -(-count // unit) * unit if up else count // unit * unit
