"""Committees from the seats that tasks name, and from a run file's numbers."""

from __future__ import annotations

from barnraise.core.types import Seats

from .committee import Committee, TrusteeKeys


def committee_of(seats: Seats, colluding: int) -> Committee:
    """Return the committee of these seats, `colluding` of which may collude; InputError for one that cannot hold."""
    return Committee(tuple(TrusteeKeys(seat.node, seat.signer, seat.sealing) for seat in seats), colluding)


def blank_committee(trustees: int, colluding: int) -> Committee:
    """Return a committee of `trustees` without keys, for its sizes; InputError for one that cannot hold."""
    names = map(str, range(trustees))
    return Committee(tuple(TrusteeKeys(name, name, name) for name in names), colluding)
