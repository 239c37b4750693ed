"""The results of a run in a few labelled lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from barnraise.account.account import Account
from barnraise.account.hindsight import LEARNING
from barnraise.account.market import MarketStatus
from barnraise.account.matched import Matching
from barnraise.account.merging import Merging
from barnraise.account.metrics import fact_lines
from barnraise.core.text import printable
from barnraise.core.units import bytes_text, count_text, duration_text, loss_text
from barnraise.ledger import Simulation
from barnraise.ledger.notes import Matched
from barnraise.trust.roles import WORKER

ANY_CHURN = "usual"
"""The churn of a simulation that was asked for none in particular."""

ALONE = "; nodes of one owner alone measured the last loss, and no other owner confirmed it"


def facts(account: Account) -> Iterator[tuple[str, str]]:
    """Yield the run in a few labelled lines, for the terminal and the report."""
    totals = account.totals
    simulation = account.simulation
    if simulation is not None:
        yield "run", simulation_text(simulation)
    if account.first_loss is None:
        costed = simulation is not None and not simulation.real
        yield "loss", "none: the work was only costed (`simulate --real` trains)" if costed else "never measured"
    else:
        first, last = account.losses[0], account.losses[-1]
        yield (
            "loss",
            f"{loss_text(first.loss)} at version {first.version}, {loss_text(last.loss)} at version {last.version} "
            "(held out, nats a token)" + (ALONE if last.owners == 1 else ""),
        )
    yield from fact_lines(account.measurements)
    speed = f"{account.tokens_per_second:,.0f} a second"
    yield "tokens", f"{totals.tokens:,} in {duration_text(totals.seconds)}, {speed}"
    yield "versions", "; ".join([f"{max(0, totals.version):,}", *_merged(account.merging)])
    looked_at = totals.looked_at
    anew, scored, lapsed, answered = looked_at.anew, looked_at.scored, looked_at.lapsed, looked_at.answered
    measured = totals.found - anew - answered
    yield (
        "work",
        f"{count_text(totals.accepted, 'contribution')} accepted, {totals.refused:,} refused, "
        f"{totals.discarded:,} left over at the end"
        + (f"; {count_text(measured, 'measurement')} of the loss by workers" if measured else "")
        + (f"; {count_text(anew, 'contribution')} repeated by other nodes" if anew else "")
        + (f"; {count_text(lapsed, 'audit')} without a result" if lapsed else "")
        + (f"; {count_text(scored, 'contribution')} scored" if scored else "")
        + (f"; {count_text(answered, 'answer')} of trustees" if answered else ""),
    )
    yield "signed", signed(totals.signed, totals.accepted)
    yield "workers", _workers(account)
    dispatch = account.dispatch
    if dispatch.matching is not None:
        yield "matching", matching_text(dispatch.matching)
    if dispatch.matching is None or not dispatch.market.stands:
        yield "matching", market_text(dispatch.market)
    if (employed := dispatch.employed) is not None:
        yield (
            "nodes",
            f"without a task {employed.idle:.1%} of their time; {employed.conflicts:.1%} of {employed.offers:,} tasks "
            "given back, lost or refused",
        )
    if dispatch.error is not None:
        yield "forecast", forecast_text(dispatch.error, dispatch.within, dispatch.foreseen)
    if dispatch.privacy.budget is not None:
        yield "privacy", str(dispatch.privacy)
    if dispatch.overhead is not None:
        yield (
            "overhead",
            f"alpha {dispatch.overhead:.2f}, workers' time with protections over that without (median of reports)",
        )
    snapshot = f"a snapshot of the model is {bytes_text(account.snapshot_bytes)}"
    yield "traffic", f"up {bytes_text(account.traffic.up)}, down {bytes_text(account.traffic.down)}; {snapshot}"
    if account.lowered is not None:
        yield (
            "standby",
            f"none: contributions are acknowledged on the controller's disk alone since {account.lowered:,.0f} s "
            "(controller.standby_patience)",
        )
    if totals.epochs > 1:
        yield "resumed", f"{count_text(totals.epochs - 1, 'time')}; the time between does not count"


def _workers(account: Account) -> str:
    """Return how many of the workers contributed, and how many nodes have other roles."""
    roles = Counter(node.role or WORKER for node in account.nodes)
    workers = roles.pop(WORKER, 0)
    others = "".join(f"; {count_text(count, role)}" for role, count in sorted(roles.items()))
    return f"{account.totals.contributors:,} of {workers:,} contributed{others}"


def simulation_text(simulation: Simulation) -> str:
    """Describe a simulation's parameters."""
    told = [
        f"simulated with {count_text(simulation.nodes, 'node')}",
        "real tensors" if simulation.real else "work as costs alone",
    ]
    told += [f"churn like {simulation.churn}"] if simulation.churn not in ("", ANY_CHURN) else []
    told += ["with churn"] if simulation.churn == ANY_CHURN else []
    told += [f"for {simulation.hours:,g} virtual hours"] if simulation.hours is not None else []
    return f"{printable(', '.join(told))}, seed {simulation.seed}; all times are virtual"


def market_text(market: MarketStatus) -> str:
    """Return a sentence that says whether a market of nodes and tasks stands, and why not."""
    if market.stands is None:
        return f"not known whether a market stands: {printable(market.why)}"
    return f"{'a market stands' if market.stands else 'no market stands'}: {printable(market.why)}"


def matching_text(matching: Matching) -> str:
    """Describe the stability of the matching, its mean over time, and its moves."""
    now, mean = matching.newest, matching.mean
    return (
        f"{now.nodes:,} nodes and {now.tasks:,} tasks on offer, {now.moves:,} moves in {now.events:,} events, "
        f"{now.rematches:,} from one node to another; stability by time alone {now.stability:.2f} ({now.nearly:.2f} "
        f"but for gains below a tenth){_at_prices(now)}, {now.blocking:.1%} of pairs block, {now.regret:.1%} above the "
        f"least cost; over the time {mean.stability:.2f} ({mean.nearly:.2f}){_at_prices(mean)}, {mean.blocking:.1%}, "
        f"{mean.regret:.1%}"
    )


def _at_prices(matched: Matched) -> str:
    """Describe the stability at prices; empty for ledgers without it."""
    return f", at the prices in use {matched.priced:.2f}" if matched.priced >= 0.0 else ""


def forecast_text(error: float, within: float | None, tasks: int) -> str:
    """Describe the accuracy of `tasks` predicted task times."""
    told = "" if within is None else f"; {within:.0%} of them within the standard deviation that was expected"
    return (
        f"tasks take {error:.1%} more or less than expected in the median (of {count_text(tasks, 'task')}, after "
        f"{LEARNING} a node){told}"
    )


def withstood_text(f: int | None, guaranteed: bool) -> str:
    """Describe the guarantee behind the number of nodes in a version."""
    return "" if f is None else f", f {f:,}{'' if guaranteed else ' UNGUARANTEED'}"


def signed(count: int, accepted: int) -> str:
    """Describe how many of `accepted` contributions are signed."""
    if count < accepted:
        return f"{count:,} of {count_text(accepted, 'contribution')}: nodes without a key sign nothing"
    return f"{count_text(count, 'contribution')}, each with its node's key"


def _merged(merging: Merging) -> Iterator[str]:
    if merging.nodes:
        yield f"the newest of {count_text(merging.nodes, 'node')}{withstood_text(merging.f, merging.guaranteed)}"
    if merging.odds is not None:
        yield f"more liars than that with probability {merging.odds:.2g}"
    if merging.buffer_size:
        yield f"K {merging.buffer_size:,}"
    if merging.excluded:
        yield f"{count_text(merging.excluded, 'update')} left out by the loss gate"
