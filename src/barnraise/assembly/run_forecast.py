"""When a run ends, and what changes if nodes join or leave, or tasks and payloads are of another size.

The run's own throughput tells how much of its nodes' speed it reaches (`assembly.outlook`). The simulator plays the
rest of the run with the observed speeds, links and presence; it tells how that share differs in another fleet or with
other settings, and how long the end takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from barnraise.account.calibration import Calibration, LinkRates
from barnraise.assembly.forecasting import (
    DRAWS,
    Forecast,
    draws_of,
    fleet_of,
    known,
    outcome,
    require_begun,
    tail_of,
    usual_seconds,
)
from barnraise.assembly.outlook import FutureFleet, past_of
from barnraise.assembly.simulated_work import costed
from barnraise.assembly.simulation import CONTROLLER_LINK, nominal_rate
from barnraise.assembly.what_if import UNCHANGED, Joining, WhatIf, density_change, steps_change
from barnraise.config.document import Document, read
from barnraise.config.load import build
from barnraise.controller.machine import Controller
from barnraise.core.errors import BarnraiseError, OptionError, UnknownNameError
from barnraise.emulation.fleet import KINDS, USUAL_MEMORY, Machine
from barnraise.emulation.rest import Played, Rest
from barnraise.emulation.simulator import Observer
from barnraise.ledger import Decision, Judged, RunDirectory
from barnraise.plan import Purpose, resolve
from barnraise.plan.estimate import estimate
from barnraise.plan.links import controller_link
from barnraise.plan.resolve import Plan
from barnraise.transport.links.link import Link, LinkDirection
from barnraise.transport.links.presets import parse

SEEDS = 2
"""Plays of the simulator for each fleet and setting."""

MOST_PLAYED = 300
"""Tasks that the simulator plays of a rest, at most; a longer rest continues alike."""

MOST_NODES = 100
"""Nodes that the simulator plays, at most; of a larger fleet every n-th by speed."""

SLOWER = 30.0
"""Factor of the expected seconds after which a simulated rest is given up."""

WARM_UP = 600.0
"""Seconds that a fleet may take to get its model and rows, besides."""

MOST_JOINING = 1000


@dataclass(frozen=True)
class Compared:
    """The forecast of a changed run; `seconds` is by how much it ends later than the unchanged one."""

    change: WhatIf
    forecast: Forecast
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return the values for programs."""
        seconds = round(self.seconds, 3) if math.isfinite(self.seconds) else None
        return {"change": self.change.label, "change_seconds": seconds, **self.forecast.as_json()}


class Simulated(NamedTuple):
    """The simulator's figures of a fleet and settings: the share of the nodes' work, and the seconds of the end."""

    share: float
    tail: float


class RunForecast:
    """The forecast of a run, and of the same run with changes; `now` is on its clock, as of then it is known."""

    def __init__(
        self, document: Document, found: Calibration, now: float, *, draws: int = DRAWS, seeds: int = SEEDS
    ) -> None:
        """`document` is the run's file. Raises InputError where there is nothing to forecast from."""
        require_begun(found)
        self.found, self.draws, self.seeds = found, draws, seeds
        self.past = past_of(found, now)
        self._document = _honest(document)
        self.budget = build(self._document).training.tokens
        self.links = {name: _link(found.nodes[name].link) for name in self.past.names}
        self.problem = ""

    @property
    def tokens(self) -> int:
        """Return the tokens that remain."""
        return max(0, self.budget - self.found.counted)

    @cached_property
    def unchanged(self) -> Forecast:
        """Return the forecast of the run as it is."""
        return self._forecast(UNCHANGED, self._simulated)

    def compare(self, change: WhatIf) -> Compared:
        """Return the forecast of the changed run. Raises BarnraiseError where its settings cannot work."""
        played = self._play(change) if self._simulated is not None or change.keys else None
        found = self._forecast(change, played)
        return Compared(change, found, found.at - self.unchanged.at)

    def standard(self) -> list[WhatIf]:
        """Return the changes that are compared unless others are asked for."""
        changes = [WhatIf("three phones join", (self.joining("phone:3"),))]
        there = [(rate, name) for rate, name, up in zip(*self._columns, strict=True) if up]
        if len(there) > 1:
            changes.append(WhatIf(f"{max(there)[1]}, the fastest node, leaves", leaving=(max(there)[1],)))
        run_file = build(self._document)
        steps, most = run_file.training.local_steps, run_file.training.max_local_steps
        if most is None or 2 * steps <= most:
            changes.append(steps_change(2 * steps))
        if steps > 1:
            changes.append(steps_change(steps // 2))
        ratio = self._plan({}).compression.options.get("ratio") if not self.problem else None
        if ratio is not None:
            changes.append(density_change(ratio / 2))
        return changes

    def joining(self, text: str) -> Joining:
        """Return the machines that `text` describes: a kind, a node of the run, or RATE@LINK, and `:COUNT`.

        Raises OptionError, UnknownNameError.
        """
        what, _, number = text.rpartition(":") if text not in self.past.names else (text, "", "1")
        if not what:
            what, number = text, "1"
        if not number.isdecimal() or not 0 < int(number[:9]) <= MOST_JOINING:
            raise OptionError(
                f"--join {text[:80]!r}: {number[:20]!r} is no number of machines from 1 to {MOST_JOINING}"
            )
        count, (rate, at, link) = int(number), what.partition("@")
        if at:
            try:
                speed = float(rate)
            except ValueError:
                speed = math.nan
            if not 0.0 < speed < 1e12:
                raise OptionError(f"--join {text[:80]!r}: {rate[:20]!r} is no number of tokens a second above 0")
            return Joining(what, count, speed, parse(link))
        if what in self.past.names:
            place = self.past.names.index(what)
            return Joining(f"like {what}", count, float(self.past.rates[place]), self.links[what])
        if what not in KINDS:
            raise UnknownNameError("kind of machine or node", what, [*KINDS, *self.past.names[:50]])
        kind, size = KINDS[what], estimate(self._plan({})).sizes.parameters
        return Joining(what, count, kind.speed * nominal_rate(size), parse(kind.link))

    def leaving(self, name: str) -> str:
        """Return the name of a node of the run that is present. Raises UnknownNameError, OptionError."""
        there = {name: up for _, name, up in zip(*self._columns, strict=True)}
        if name not in there:
            raise UnknownNameError("node", name, there)
        if not there[name]:
            raise OptionError(f"--leave {name}: the node is away already; give one that is present")
        return name

    @property
    def _columns(self) -> tuple[list[float], tuple[str, ...], list[bool]]:
        return self.past.rates.tolist(), self.past.names, self.past.present.tolist()

    def _forecast(self, change: WhatIf, simulated: Simulated | None) -> Forecast:
        usual = self._simulated
        if simulated is None or usual is None:
            factor, prior, tail, over = 1.0, 0.0, tail_of(self.found), None
        else:
            factor, prior = simulated.share / usual.share, usual.share
            tail = max(simulated.tail, tail_of(self.found))
            over = usual.share / self.past.share if self.past.share > 0.0 else None
        factor *= math.sqrt(self._trend)  # the run's own throughput tells of no trend: the mean of both
        doubt = 0.5 * abs(math.log(self._trend))
        seconds = draws_of(
            self.past, self.tokens, self.draws, 0, change=change, factor=factor, prior=prior, doubt=doubt
        )
        return outcome(self.found, self.past, self.budget, seconds, tail, over)

    @cached_property
    def _simulated(self) -> Simulated | None:
        """Return the simulator's figures of the run as it is; None where its file cannot be simulated (`problem`)."""
        try:
            return self._play(UNCHANGED)
        except BarnraiseError as error:
            self.problem = str(error)
            return None

    def _plan(self, keys: Mapping[str, Any]) -> Plan:
        run_file = build(self._document, keys)
        return resolve(run_file, purpose=Purpose.SIMULATE, nodes=max(1, len(self.past.names)), document=self._document)

    def _play(self, change: WhatIf) -> Simulated | None:
        """Play the rest of the run with the change, several times; None where no play meets its budget."""
        plan = self._plan(change.keys)
        plays = [play for seed in range(self.seeds) if (play := self._played(plan, change, seed)) is not None]
        if not plays or not sum(play.work for play in plays):
            return None
        share = sum(play.tokens for play in plays) / sum(play.work for play in plays)
        return Simulated(share, sum(play.tail for play in plays) / len(plays))

    @cached_property
    def _trend(self) -> float:
        """Return the share of the nodes' work in the rest of the run over that in its past, by the simulator.

        A young run changes its pace, as where tasks are adapted to links. It is 1 where nodes have come or gone, or the
        run is long.
        """
        coming, tasks = self.past.coming, self.budget / self._plan({}).task_tokens if not self.problem else math.inf
        moved = coming.departures.events or coming.arrivals.events or not self.past.present.all()
        if moved or tasks > MOST_PLAYED or not self.tokens:
            return 1.0
        logs = [math.log(trend) for seed in range(self.seeds) if (trend := self._played_trend(seed)) is not None]
        return math.exp(sum(logs) / len(logs)) if logs else 1.0

    def _played_trend(self, seed: int) -> float | None:
        rows: list[Judged] = []

        def observe(now: float, decision: Decision) -> None:
            if isinstance(decision, Judged) and decision.contributes:
                rows.append(decision)

        places = range(len(self.past.names))
        fleet = FutureFleet(self.past.names, self.past.rates, self.past.present, {})
        simulator = self._rest(
            self._plan({}), fleet, places, UNCHANGED, seed, tokens=(1, self.budget), observers=[observe]
        )
        if simulator.played() is None:
            return None
        counted, middle = 0, len(rows)
        for place, row in enumerate(rows):
            counted += row.tokens
            if counted >= self.found.counted:
                middle = place
                break
        shares = [
            _share(rows, self.past.names, self.past.rates.tolist(), *ends) for ends in ((0, middle), (middle, -1))
        ]
        return shares[1] / shares[0] if min(shares) > 0.0 else None

    def _played(self, plan: Plan, change: WhatIf, seed: int) -> Played | None:
        usual = usual_seconds(self.past, self.tokens, 1.0)
        fleet, _ = fleet_of(self.past, seed, usual, change)
        places = _chosen(fleet, change)
        if not places or usual == math.inf:
            return None
        rates = [float(fleet.rates[place]) for place in places]
        there = [rate for rate, place in zip(rates, places, strict=True) if fleet.present[place]] or rates
        task, speed, most = plan.task_tokens, sum(there), max(MOST_PLAYED, 4 * len(places))
        warm = round(min(max(3.0 * task * speed / min(there), 3.0 * len(places) * task), most * task))
        part = min(1.0, speed / max(1e-9, float(fleet.rates[fleet.present].sum()))) if fleet.present.any() else 1.0
        rest = max(task, round(min(self.tokens * part, most * task)))
        return self._rest(plan, fleet, places, change, seed, tokens=(warm, rest)).played()

    def _rest(
        self,
        plan: Plan,
        fleet: FutureFleet,
        places: Sequence[int],
        change: WhatIf,
        seed: int,
        *,
        tokens: tuple[int, int],
        observers: Sequence[Observer] = (),
    ) -> Rest:
        """Play the nodes at some places of a fleet, for the tokens of the warm-up and of the rest."""
        machines = [self._machine(fleet, place, change) for place in places]
        present = [one.name for one, place in zip(machines, places, strict=True) if fleet.present[place]]
        speed = sum(one.rate for one in machines if not present or one.name in present)
        settings, work, node_work, digest = costed(plan, estimate(plan))
        line = controller_link(plan.run_file) or parse(CONTROLLER_LINK)
        simulator = Rest(
            Controller(replace(settings, tokens=sum(tokens))),
            machines,
            work,
            node_work,
            present=present,
            changes={fleet.names[place]: fleet.changes[place] for place in places if place in fleet.changes},
            warm_tokens=tokens[0],
            warm_seconds=SLOWER * tokens[0] / speed + WARM_UP,
            seed=seed,
            access=(line.throughput(line.up), line.throughput(line.down)),
            observers=observers,
        )
        simulator.run(digest, SLOWER * (2.0 * tokens[0] + tokens[1]) / speed + WARM_UP)
        return simulator

    def _machine(self, fleet: FutureFleet, place: int, change: WhatIf) -> Machine:
        name = fleet.names[place]
        joining = {name: one.link for one in change.joining for name in one.names}
        link = self.links.get(name) or joining.get(name) or self.links[self.past.names[place % len(self.past.names)]]
        return Machine(name, float(fleet.rates[place]), link, 64 * USUAL_MEMORY)


def of_run(run: RunDirectory) -> RunForecast:
    """Return the forecast of a run that works, or that was interrupted and continues now.

    Raises InputError where there is nothing to forecast, RunDirectoryError, StorageError.
    """
    return RunForecast(read(run.run_file), *known(run))


def _share(rows: Sequence[Judged], names: Sequence[str], rates: Sequence[float], first: int, last: int) -> float:
    """Return the share of the nodes' work that was counted between two contributions, from each node's first on."""
    begin, end = rows[first].time, rows[last].time
    counted = sum(row.tokens for row in (rows[first + 1 : last] if last >= 0 else rows[first + 1 :]))
    earliest = {row.node: row for row in reversed(rows)}
    work = 0.0
    for name, rate in zip(names, rates, strict=True):
        if (one := earliest.get(name)) is not None:
            work += rate * max(0.0, end - max(begin, one.time - one.tokens / rate))
    return counted / work if work > 0.0 else 0.0


def _honest(document: Document) -> Document:
    """Return the run file without planned faults and attacks, which the ledger shows."""
    content = {key: value for key, value in document.content.items() if key != "faults"}
    if isinstance(workers := content.get("workers"), list):
        content["workers"] = [
            {key: value for key, value in worker.items() if key != "attack"} if isinstance(worker, dict) else worker
            for worker in workers
        ]
    return Document(document.name, content, document.lines)


def _link(rates: LinkRates) -> Link:
    return Link(LinkDirection(max(1.0, rates.up), rates.delay), LinkDirection(max(1.0, rates.down), rates.delay))


def _chosen(fleet: FutureFleet, change: WhatIf) -> list[int]:
    """Return the places of the nodes to play: all, or every n-th by speed and those that join by the change."""
    there = [place for place in range(len(fleet.names)) if fleet.present[place] or fleet.changes.get(place)]
    if len(there) <= MOST_NODES:
        return there
    joining = {name for one in change.joining for name in one.names}
    asked = [place for place in there if fleet.names[place] in joining][:MOST_NODES]
    others = sorted(set(there) - set(asked), key=lambda place: float(fleet.rates[place]))
    step = len(others) / MOST_NODES
    return sorted([*asked, *(others[int(number * step)] for number in range(MOST_NODES))])
