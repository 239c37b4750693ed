"""The state of a run that alerts are about, taken from one moment of it."""

from __future__ import annotations

import shutil

from barnraise.account.alerts import Vitals
from barnraise.account.moment import RunMoment
from barnraise.account.nodes import BANNED, QUARANTINED
from barnraise.account.present import FINISHING, PAUSED, TRAINING, WAITING
from barnraise.core.text import printable
from barnraise.ledger import Change, notes

LOST = (Change.SILENT, Change.KILLED, Change.BROKE)


def vitals_of(seen: RunMoment, now: float) -> Vitals:
    """Return what alerts are about, at the time `now`."""
    account, counts, standby = seen.account, seen.over_time.counts, seen.standby
    try:
        free = float(shutil.disk_usage(account.run.path).free)
    except OSError:
        free = float("inf")
    followed = bool(counts.events.get(notes.kind_of(notes.StandbyLost)))
    return Vitals(
        time=now,
        working=seen.state in (TRAINING, WAITING, PAUSED, FINISHING) and not account.merging.pauses.host,
        over=printable(account.finished),
        waits_for=seen.waits_for,
        tokens=account.totals.tokens,
        accepted=account.totals.accepted,
        refused=account.totals.refused,
        quarantined=sum(row.state in (QUARANTINED, BANNED) for row in seen.rows),
        lost=sum(counts.changes.get(change, 0) for change in LOST),
        disk_free=free,
        checkpoint_failures=counts.events.get(notes.kind_of(notes.CheckpointFailed), 0),
        standby=(followed and not standby.name, standby.seconds, standby.unprotected),
    )
