"""A moment of a run as values for its page, in views: overview, workers, matching, checks, time.

Each view is a flat table of small values, so that two pictures of it differ in few places (`account.page.patches`).
Numbers are rounded to what is shown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from barnraise.account.activity import ACCEPTED, ACTIVITIES, AWAY, BINS, DOWN, LOSS, REFUSED, TOKENS, TRAIN, UP
from barnraise.account.chronicle import Happening, of_note
from barnraise.account.details import NodeDetail
from barnraise.account.merging import Merging
from barnraise.account.moment import RunMoment
from barnraise.account.nodes import GONE, NodeRow
from barnraise.account.page.veil import Veil
from barnraise.core.text import LONGEST_NAME, printable, visible
from barnraise.ledger import Change

Picture = dict[str, Any]

MOST_POINTS, MOST_NEWS, MOST_EVENTS, MOST_SITES = 500, 12, 300, 12
"""Points of a curve, events of the overview, events of the time line, and workers with a curve of their own."""

LONGEST_SAMPLE = 4000
"""Characters of a sample of the model's text."""

COUNTED = ("convicted", "discredited", "offended", "held_off", "disputed", "voided", "unaudited", "copied", "released")
SECURITY = ("joined", "restarted", "back", "left", "killed", "revoked", "rekeyed")


def overview(seen: RunMoment, veil: Veil) -> Picture:
    """Return the state of the run, its losses, its people, its troubles, its newest samples and events."""
    account = seen.account
    news = of_note(account.happenings)[-MOST_NEWS:]
    return {
        "run": _run(seen, veil),
        "loss": _losses(seen),
        "metrics": _metrics(seen),
        "counts": dict(Counter(row.state for row in seen.rows)),
        "troubles": [
            [one.severity, veil.text(one.summary, one.name.replace("_", " ")), sharp(one.since)]
            for one in seen.alerts
            if one.severity != "info"
        ],
        "forecast": None if veil.hides and seen.forecast and "at" not in seen.forecast else seen.forecast,
        "cost": _cost(seen),
        "samples": [] if veil.hides else _samples(seen),
        "news": [_event(one, veil) for one in news],
        "best": [[veil.name(row.name), row.state, row.tokens, sharp(row.rate)] for row in _best(seen.rows, 8)],
    }


def workers(seen: RunMoment, veil: Veil) -> Picture:
    """Return a row for each worker: COLUMNS, by the name that is shown."""
    details, busy = seen.over_time.details.nodes, seen.over_time.details.busy()
    whole = max(1, seen.account.snapshot_bytes)
    return {
        "columns": list(COLUMNS),
        "rows": {
            veil.name(row.name): _worker(row, veil, details.get(row.name) or NodeDetail(), busy.get(row.name, 0), whole)
            for row in seen.rows
        },
    }


COLUMNS = (
    "state", "device", "rate", "speed", "tokens", "share", "accepted", "refused", "staleness", "bound", "local_steps",
    "payload", "density", "up", "down", "availability", "suspicion", "repeated", "sound", "seen", "tasks",
)  # fmt: skip
"""The figures of a worker's row."""


def _worker(row: NodeRow, veil: Veil, detail: NodeDetail, tasks: int, whole: int) -> list[Any]:
    seen = None if row.seen is None else 5 * round(row.seen / 5)  # in steps, or each second would be news
    return [
        row.state, veil.text(row.device), sharp(row.rate), sharp(row.speed, 3), row.tokens, sharp(row.share),
        row.accepted, row.refused, row.staleness, detail.bound, detail.local_steps, detail.payload,
        sharp(detail.payload / whole, 3), sharp(detail.up, 3), sharp(detail.down, 3), sharp(detail.availability, 3),
        sharp(detail.suspicion, 3), detail.repeated, detail.sound, seen, tasks,
    ]  # fmt: skip


def matching(seen: RunMoment, veil: Veil) -> Picture:
    """Return the market's figures over the time, and the tasks that workers have now."""
    dispatch, details = seen.account.dispatch, seen.over_time.details
    employed = dispatch.employed
    doing = [[veil.name(node), details.nodes[node].kind, sharp(details.nodes[node].since)] for node in details.busy()]
    holds = seen.present.holds if seen.present is not None else {n: d.reason for n, d in dispatch.doubts.items()}
    return {
        "market": [[sharp(value) for value in point] for point in seen.over_time.market.points],
        "stands": [dispatch.market.stands, veil.text(dispatch.market.why)],
        "idle": sharp(employed.idle) if employed else None,
        "conflicts": sharp(employed.conflicts) if employed else None,
        "error": [sharp(dispatch.error), sharp(dispatch.within), dispatch.foreseen],
        "doing": doing[:MOST_EVENTS],
        "held": [[veil.name(node), veil.text(reason)] for node, reason in holds.items()][:MOST_EVENTS],
    }


def checks(seen: RunMoment, veil: Veil) -> Picture:
    """Return staleness, traffic, refusals, faults, audits, sanctions and the standby."""
    account, activity, counts = seen.account, seen.over_time.activity, seen.over_time.counts
    looked, standby = account.totals.looked_at, seen.standby
    return {
        "staleness": [[late, number] for late, number in sorted(activity.staleness.items())],
        "sent": dict(activity.sent),
        "refusals": [[veil.text(why, "refused"), number] for why, number in list(account.refusals.items())[:50]],
        "changes": {str(one): counts.changes.get(one, 0) for one in Change if one.gone},
        "events": {name: counts.events.get(name, 0) for name in (*COUNTED, "checkpoint_failed", "resumed")},
        "frames": counts.frames,
        "audits": [looked.anew, looked.scored, looked.lapsed, account.totals.signed, account.totals.accepted],
        "standby": [veil.name(standby.name) if standby.name else "", veil.text(standby.text), sharp(standby.seconds)],
        "doubts": [
            [veil.name(node), doubt.state, _finite(doubt.until), veil.text(doubt.reason)]
            for node, doubt in list(account.dispatch.doubts.items())[:MOST_EVENTS]
        ],
        "lowered": sharp(account.lowered),
        "made_of": merged(account.merging),
    }


def over_time(seen: RunMoment, veil: Veil) -> Picture:
    """Return what can be played back: figures by bin of the run's time, and events of note."""
    activity = seen.over_time.activity
    tokens, loss = seen.sums[TOKENS], seen.sums[LOSS]
    simulation = seen.account.simulation
    learns = simulation is None or simulation.real  # else losses mean nothing
    number = _reached(seen)
    told: Mapping[str, list[float]] = {
        "tokens": tokens,
        "training": [sharp(all_of / n, 5) if n and learns else 0.0 for all_of, n in zip(loss, tokens, strict=True)],
        "accepted": seen.sums[ACCEPTED],
        "refused": seen.sums[REFUSED],
        "work": seen.sums[TRAIN],
        "up": activity.up,
        "down": activity.down,
    }
    picture: Picture = {name: [sharp(value, 5) for value in values[:number]] for name, values in told.items()}
    picture["run"] = _run(seen, veil)
    picture["width"] = activity.width
    picture["end"] = sharp(seen.clock if seen.works else seen.account.end, 6)
    noted = of_note(seen.account.happenings)
    picture["events"] = [_event(one, veil) for one in noted[-MOST_EVENTS:]]
    picture["presence"] = _presence(noted, veil)
    picture["sites"] = _sites(seen, number) if learns and not veil.hides else {}
    return picture


def _reached(seen: RunMoment) -> int:
    end = seen.clock if seen.works else seen.account.end
    return min(BINS, 1 + int(max(0.0, end) / seen.over_time.activity.width))


def lanes(seen: RunMoment, nodes: Iterable[str], veil: Veil) -> dict[str, list[Any]]:
    """Return the lanes of some nodes: the first bin, and a text with seven letters for each bin from there on.

    They are the shares of activities in the node's time, in the order of ACTIVITIES, then waiting and away: digits and
    small letters, 0 for nothing and z for all. A node that has a task now trains since it got it.
    """
    activity, details = seen.over_time.activity, seen.over_time.details
    busy = details.busy()
    end = seen.clock if seen.works else seen.account.end
    found: dict[str, list[Any]] = {}
    for node in nodes:
        first, letters = -1, []
        for place, seconds in activity.spans(node, end):
            first = place if first < 0 else first
            if node in busy:
                since = max(0.0, (place + 1) * activity.width - max(details.nodes[node].since, place * activity.width))
                shifted = min(seconds[_WAITING], since)
                seconds[0], seconds[_WAITING] = seconds[0] + shifted, seconds[_WAITING] - shifted
            letters += [_LETTERS[min(35, max(0, round(35 * part / (sum(seconds) or 1.0))))] for part in seconds]
        found[veil.name(node)] = [max(0, first), "".join(letters)]
    return found


_WAITING = len(ACTIVITIES)
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


def own(seen: RunMoment, node: str, veil: Veil) -> Picture:
    """Return what one node did in the run, for the person who lends it."""
    totals = next((one for one in seen.account.nodes if one.node == node), None)
    row = next((one for one in seen.rows if one.name == node), None)
    detail = seen.over_time.details.nodes.get(node) or NodeDetail()
    if totals is None or row is None:
        return {"known": False}
    outcomes = totals.outcomes
    return {
        "known": True,
        "name": veil.name(node),
        "state": row.state,
        "device": printable(row.device, LONGEST_NAME),
        "steps": detail.steps,
        "tokens": totals.tokens,
        "share": sharp(row.share),
        "rank": 1 + sum(one.tokens > totals.tokens for one in seen.account.nodes),
        "of": len(seen.account.nodes),
        "bytes": totals.num_bytes,
        "seconds": sharp(totals.seconds),
        "outcomes": [outcomes.accepted, outcomes.found, outcomes.refused, outcomes.discarded, outcomes.lost],
        "availability": sharp(detail.availability),
        "lane": lanes(seen, [node], veil),
        "width": seen.over_time.activity.width,
        "run": {
            name: value for name, value in _run(seen, veil).items() if name in ("name", "state", "tokens", "budget")
        },
    }


VIEWS: Mapping[str, Callable[[RunMoment, Veil], Picture]] = {
    "overview": overview,
    "workers": workers,
    "matching": matching,
    "checks": checks,
    "time": over_time,
}
"""The views of a page by name."""


def _run(seen: RunMoment, veil: Veil) -> dict[str, Any]:
    account, present = seen.account, seen.present
    traffic = (present.bytes_up, present.bytes_down) if present else (account.traffic.up, account.traffic.down)
    return {
        "name": printable(account.run.path.name, LONGEST_NAME),
        "state": seen.state,
        "works": seen.works,
        "simulated": account.simulation is not None,
        "waits": veil.text(seen.waits_for, "it waits" if seen.waits_for else ""),
        "finished": veil.text(account.finished, "over" if account.finished else ""),
        "tokens": account.totals.tokens,
        "budget": seen.budget,
        "version": max(0, account.totals.version),
        "rate": sharp(_rate(seen), 3),
        "up": traffic[0],
        "down": traffic[1],
        "present": sum(row.state not in GONE for row in seen.rows),
        "nodes": len(seen.rows),
        "k": [account.merging.gathered, account.merging.buffer_size],
        "model": account.snapshot_bytes,
    }


def _rate(seen: RunMoment) -> float:
    """Return tokens a second in the newest two bins; over the whole run where no controller works."""
    if not seen.works:
        return seen.account.tokens_per_second
    activity = seen.over_time.activity
    number = _reached(seen)
    first = max(0, number - 2)
    seconds = seen.clock - first * activity.width
    return sum(seen.sums[TOKENS][first:number]) / seconds if seconds > 0 else 0.0


def _losses(seen: RunMoment) -> list[list[Any]]:
    """Return points of held-out loss: tokens, seconds, loss, version, owners that measured it."""
    points = _thinned(seen.account.losses)
    return [[p.tokens, sharp(p.seconds), sharp(p.loss, 5), p.version, p.owners] for p in points]


def _metrics(seen: RunMoment) -> dict[str, list[list[float]]]:
    found = seen.account.measurements
    return {
        visible(name)[:60]: _thinned([[v, sharp(values[name])] for v, values in found.values.items() if name in values])
        for name in found.names
    }


def _samples(seen: RunMoment) -> list[Any]:
    newest = seen.account.measurements.newest
    if newest is None:
        return []
    cut = [[visible(one.prompt)[-LONGEST_SAMPLE:], visible(one.text)[:LONGEST_SAMPLE]] for one in newest.samples[:4]]
    return [newest.version, cut]


def _cost(seen: RunMoment) -> dict[str, Any]:
    """Return what the run took so far: hours of machines that were present, of their work, and bytes."""
    activity = seen.over_time.activity
    end, there = seen.clock if seen.works else seen.account.end, 0.0
    for node, since in activity.came.items():
        until = activity.gone.get(node, end)
        there += max(0.0, until - since)
    away = sum(seen.sums[AWAY])
    return {
        "machine_hours": sharp(max(0.0, there - away) / 3600, 3),
        "work_hours": sharp(sum(seen.sums[TRAIN]) / 3600, 3),
        "transfer_hours": sharp((sum(seen.sums[UP]) + sum(seen.sums[DOWN])) / 3600, 3),
    }


def _sites(seen: RunMoment, number: int) -> dict[str, list[Any]]:
    """Return the training loss that each of the busiest workers tells, by bin; None where it told none."""
    found = {}
    for row in _best(seen.rows, MOST_SITES):
        lane = seen.over_time.activity.lanes.get(row.name)
        if lane is not None and row.tokens:
            figures = memoryview(lane).cast("f")
            width = len(figures) // BINS
            tokens, loss = figures[TOKENS::width], figures[LOSS::width]
            found[row.name] = [sharp(loss[at] / tokens[at], 4) if tokens[at] else None for at in range(number)]
    return found


def _presence(noted: Sequence[Happening], veil: Veil) -> list[list[Any]]:
    """Return when the number of workers changed: time, and how many take part from then on."""
    found: list[list[Any]] = []
    live: set[str] = set()
    for one in noted:
        if one.kind in ("joined", "restarted", "back"):
            live.add(one.node)
        elif one.kind in ("left", "killed", "revoked"):
            live.discard(one.node)
        else:
            continue
        if found and found[-1][1] == len(live):
            continue
        found.append([sharp(one.time), len(live)])
    return _thinned(found)


def _event(one: Happening, veil: Veil) -> list[Any]:
    who = veil.name(one.node) if one.node else ""
    told = veil.text(one.text, f"{who or 'the run'}: {one.kind.replace('_', ' ')}")
    return [sharp(one.time, 6), one.kind, who, told]


def _best(rows: Sequence[NodeRow], number: int) -> list[NodeRow]:
    return sorted(rows, key=lambda row: -row.tokens)[:number]


def merged(merging: Merging) -> dict[str, Any]:
    """Return the nodes of the newest version, and the liars that its rule withstands."""
    return {"nodes": merging.nodes, "f": merging.f, "guaranteed": merging.guaranteed, "excluded": merging.excluded}


def _thinned(points: Sequence[Any]) -> list[Any]:
    """Return at most MOST_POINTS points and the last: each, each second, each fourth ..., so that few move."""
    stride = 1
    while len(points) > MOST_POINTS * stride:
        stride *= 2
    found = list(points[::stride])
    return found if not points or (len(points) - 1) % stride == 0 else [*found, points[-1]]


def sharp(value: float | None, digits: int = 4) -> Any:
    """Return a number with so few digits; None for what is no number.

    >>> sharp(0.123456), sharp(1234567.0), sharp(float("nan")), sharp(None)
    (0.1235, 1235000, None, None)
    """
    if value is None or not math.isfinite(value):
        return None
    if value == 0:
        return 0
    rounded = round(value, digits - 1 - math.floor(math.log10(abs(value))))
    return int(rounded) if rounded == int(rounded) else rounded


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def joining(seen: RunMoment) -> Picture:
    """Return what a machine that joins has to do, as far as the run knows it."""
    details = [one for one in seen.over_time.details.nodes.values() if one.payload]
    middle = sorted(details, key=lambda one: one.payload)[len(details) // 2] if details else NodeDetail()
    return {
        "name": Veil().text(seen.account.run.path.name),
        "state": seen.state,
        "model": seen.account.snapshot_bytes,
        "payload": middle.payload,
        "local_steps": middle.local_steps,
        "nodes": sum(row.state not in GONE for row in seen.rows),
        "share": sharp(seen.account.totals.tokens / max(1, seen.budget), 3),
    }
