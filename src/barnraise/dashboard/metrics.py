"""The figures of a run for Prometheus, through its official client.

Names and units follow Prometheus' conventions: base units, `_total` for counters. Labels are bounded: states, outcomes,
kinds of events, and names of at most MOST_WORKERS workers. A counter is the ledger's, so it continues after a restart
of the controller.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from barnraise import __version__
from barnraise.account.counts import COUNTED
from barnraise.account.moment import RunMoment
from barnraise.account.nodes import PRESENT, NodeRow, in_order_of_interest
from barnraise.account.present import STATES
from barnraise.core.text import LONGEST_NAME, printable
from barnraise.core.types import KINDS
from barnraise.ledger import Change
from barnraise.ledger.note import kind_of

MOST_WORKERS = 1000
"""Workers with figures of their own: those present first, then those with the most tokens."""

OTHER = "other"
OUTCOMES = ("accepted", "refused", "discarded")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(seen: RunMoment) -> bytes:
    """Return the metrics of a run in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(seen))
    return generate_latest(registry)


class _Once(Collector):
    """Hands over the metrics of one moment."""

    def __init__(self, seen: RunMoment) -> None:
        self._seen = seen

    def collect(self) -> Iterable[Metric]:
        return families(self._seen)

    def describe(self) -> Iterable[Metric]:
        return ()


def families(seen: RunMoment) -> Iterator[Metric]:
    """Yield all metrics of a run."""
    account, present = seen.account, seen.present
    totals, merging = account.totals, account.merging
    yield InfoMetricFamily("barnraise_build", "The version of barnraise.", {"version": __version__})
    yield InfoMetricFamily("barnraise_run", "The run.", {"run": printable(account.run.path.name, LONGEST_NAME)})
    yield _by("gauge", "run_state", "The state of the run: 1 for the one that it is in.", "state", {
        name: float(name == seen.state) for name in STATES
    })  # fmt: skip
    yield _counter("tokens", "Tokens of accepted contributions.", totals.tokens)
    yield _gauge("budget_tokens", "Tokens after which the run ends.", seen.budget)
    yield _gauge("version", "The newest version.", max(0, totals.version))
    yield _gauge("version_age_seconds", "Time since the newest version was made.", max(0.0, seen.clock - merging.made))
    yield _gauge("buffer_workers", "Workers whose contributions make a version (K).", merging.buffer_size)
    yield _gauge("buffer_filled_workers", "Workers with a contribution to the next version.", merging.gathered)
    if account.final_loss is not None:
        yield _gauge("held_out_loss_nats", "Newest held-out loss, in nats a token.", account.final_loss)
    yield _by("counter", "contributions", "Contributions by what became of them.", "outcome", {
        name: getattr(totals, name) for name in OUTCOMES
    })  # fmt: skip
    traffic = (present.bytes_up, present.bytes_down) if present else (account.traffic.up, account.traffic.down)
    yield _by("counter", "transferred_bytes", "Bytes from workers (up) and to them (down).", "direction", {
        "up": traffic[0], "down": traffic[1]
    })  # fmt: skip
    yield _by("counter", "audits", "Checks of contributions by other nodes or the controller.", "result", {
        "repeated": totals.looked_at.anew, "scored": totals.looked_at.scored, "lapsed": totals.looked_at.lapsed
    })  # fmt: skip
    if (budget := account.dispatch.privacy.budget) is not None:
        yield _gauge("privacy_epsilon_spent", "Epsilon spent for one unit.", account.dispatch.privacy.epsilon)
        yield _gauge("privacy_epsilon_budget", "Epsilon at which the run ends.", budget.epsilon)
    if account.dispatch.overhead is not None:
        text = "Median of the workers' time with protections over that without, by their own reports."
        yield _gauge("protection_overhead_ratio", text, account.dispatch.overhead)
    yield from _counted(seen)
    yield _gauge("controller_epoch", "Controller processes of the run so far.", totals.epochs)
    yield _counter("run_seconds", "Time for which controllers have worked.", totals.seconds)
    yield _gauge("clock_seconds", "The run's clock.", seen.clock)
    yield from _disk(seen)
    if present is not None:
        standby = present.standby
        yield _gauge("standby_following", "Whether a standby follows.", float(bool(standby.name)))
        yield _gauge("standby_lag_seconds", "Time that the standby is behind.", standby.seconds)
        yield _gauge("standby_lag_rows", "Rows of the ledger that the standby lacks.", standby.rows)
        yield _gauge("acknowledgements_waiting", "Acknowledgements that wait for a standby.", standby.waiting)
        yield _gauge("unprotected_contributions", "Contributions acknowledged without a standby.", standby.unprotected)
    yield from _workers(seen.rows)


def _counted(seen: RunMoment) -> Iterator[Metric]:
    counts = seen.over_time.counts
    gone = {str(change): counts.changes.get(change, 0) for change in Change if change.gone}
    yield _by("counter", "departures", "Workers that left, by how.", "change", gone)
    events = {kind_of(note): 0 for note in COUNTED} | counts.events  # from 0 on, so that the first one is an increase
    yield _by("counter", "events", "Events by kind.", "kind", events)
    yield _counter("malformed_frames", "Frames that could not be read.", counts.frames)
    sent = Counter[str]()
    for kind, size in seen.over_time.activity.sent.items():
        sent[kind if kind in KINDS else OTHER] += size  # a ledger of another version may have kinds of its own
    yield _by("counter", "result_bytes", "Bytes of results by kind of task.", "kind", sent)


def _disk(seen: RunMoment) -> Iterator[Metric]:
    run = seen.account.run
    try:
        yield _gauge("disk_free_bytes", "Free space where the run directory is.", shutil.disk_usage(run.path).free)
        yield _gauge("ledger_bytes", "Size of the ledger.", run.ledger.stat().st_size)
    except OSError:
        return


def _workers(rows: Sequence[NodeRow]) -> Iterator[Metric]:
    states = Counter(row.state for row in rows)
    yield _by("gauge", "workers", "Workers by state.", "state", dict.fromkeys(PRESENT, 0) | states)
    shown = in_order_of_interest(rows, MOST_WORKERS)
    names = list(_distinct(printable(row.name, LONGEST_NAME) for row in shown))
    tokens = CounterMetricFamily("barnraise_worker_tokens", "Tokens of a worker.", labels=["worker"])
    judged = CounterMetricFamily("barnraise_worker_contributions", "A worker's.", labels=["worker", "outcome"])
    rate = GaugeMetricFamily(
        "barnraise_worker_tokens_per_second", "Speed of a worker while it computes.", labels=["worker"]
    )
    silent = GaugeMetricFamily("barnraise_worker_silent_seconds", "Time since a worker was heard.", labels=["worker"])
    for name, row in zip(names, shown, strict=True):
        tokens.add_metric([name], row.tokens)
        judged.add_metric([name, "accepted"], row.accepted)
        judged.add_metric([name, "refused"], row.refused)
        rate.add_metric([name], row.rate)
        if row.seen is not None:
            silent.add_metric([name], row.seen)
    yield from (tokens, judged, rate, silent)


def _distinct(names: Iterable[str]) -> Iterator[str]:
    """Yield the names with a number behind those that look like an earlier one: a label's value is there once."""
    seen = set[str]()
    for name in names:
        number, told = 1, name
        while told in seen:
            number += 1
            told = f"{name[: LONGEST_NAME - 10]} ({number})"
        seen.add(told)
        yield told


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"barnraise_{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"barnraise_{name}", text, value=value)


def _by(kind: str, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return a metric with one label."""
    family = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}[kind]
    made: Metric = family(f"barnraise_{name}", text, labels=[label])
    for key, value in values.items():
        made.add_sample(made.name + ("_total" if kind == "counter" else ""), {label: key}, value)
    return made
