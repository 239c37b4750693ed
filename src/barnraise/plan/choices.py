"""The policies that a run file chooses, each with its full, checked options.

Reads catalogs alone: no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from barnraise.aggregation import catalog as aggregation
from barnraise.aggregation.defaults import AUTOMATIC_F
from barnraise.aggregation.odds import BufferOdds, believed, exceeding, least_buffer
from barnraise.aggregation.shares import NODE, needs
from barnraise.compression.catalog import CATALOG as CODECS
from barnraise.config.policy_sections import AggregationSection, ExchangeSection, TrustSection
from barnraise.config.problems import Path, Problem
from barnraise.config.schema import ControllerSection, RunFile, TrainingSection
from barnraise.config.section import Section
from barnraise.core.errors import InputError, OptionError
from barnraise.core.registry import Catalog
from barnraise.matching.catalog import CATALOG as SCHEDULERS
from barnraise.staleness.catalog import ADAPTIVE, FIXED
from barnraise.staleness.catalog import CATALOG as STALENESS
from barnraise.training.catalog import ASYNCHRONOUS, INNER, SYNCHRONOUS
from barnraise.training.catalog import CATALOG as OUTER
from barnraise.training.schedule import Schedule

T = TypeVar("T")

AUTO = "auto"
"""An aggregation rule that the plan chooses, and an f."""


@dataclass(frozen=True)
class Choice:
    """An algorithm by name with all its options: the arguments of its family's `create(name, **options)`."""

    name: str
    options: Mapping[str, Any]


SHOWN = "f", "trim_ratio"
"""Options of rules for the number of liars."""


@dataclass(frozen=True)
class Belief:
    """The assumed `share` of lying nodes.

    With a `target` a version is made of enough nodes that more of them than f lie with at most that probability.
    """

    share: float | None = None
    target: float | None = None


@dataclass(frozen=True)
class Aggregation:
    """The rule, or chain of rules, and its requirements on a buffer.

    `aggregation.create(names, **options)` builds it. `minimum_nodes`: distinct nodes below which a version must not be
    made; `limit`: that minimum as a formula. `sound_nodes`: the least number with a guarantee, so where they live a
    version is made of no fewer. `needs`: each contribution ("rows"), or their weighted sum alone
    ("sum"). `coordinatewise`: trims each coordinate by itself, with nothing in front that mixes the contributions
    first. `keeps`: the vectors that it keeps, as the catalog declares them. `unguaranteed`: it needs no more than it
    can be computed from. `fallback`: the rule for fewer nodes than it needs.
    """

    names: tuple[str, ...]
    options: Mapping[str, Any]
    known_options: frozenset[str]
    minimum_nodes: int
    limit: str
    needs: aggregation.Inputs
    coordinatewise: bool
    keeps: tuple[str, ...]
    sound_nodes: int
    unguaranteed: bool
    belief: Belief = Belief()
    fallback: str | None = None

    def __str__(self) -> str:
        given = [f"{name}={value}" for name in SHOWN if (value := self.options.get(name)) is not None]
        told = f" with {', '.join(given)}" if given else ""
        below = f"; of fewer than {self.sound_nodes} nodes {self.fallback}" if self.fallback else ""
        return f"{'+'.join(self.names)}{told}{below}"

    def num_kept(self, num_nodes: int) -> int:
        """Return how many vectors as large as the parameters it keeps for `num_nodes` nodes."""
        return sum(num_nodes if NODE in name else 1 for name in self.keeps)

    def beside_overview(self, num_updates: int) -> str:
        """Return the original overview's judgement of `num_updates`, where that differs; else empty."""
        return aggregation.beside_overview(self.names, self.options, num_updates, unguaranteed=self.unguaranteed)

    def wanted(self, living: int) -> int:
        """Return the least number of nodes for a version, while `living` nodes live."""
        if self.belief.target is not None and (found := self.safe(living)) is not None:
            return found.nodes
        return self.sound_nodes if living >= self.sound_nodes else 0

    def odds(self, living: int, nodes: int) -> float | None:
        """Return the probability of more liars than it withstands among `nodes` of the living; None where unknown."""
        f = self.withstood(nodes)
        share = self.belief.share
        if share is None or f is None or nodes > living:
            return None
        return exceeding(living, believed(share, living), nodes, f)

    def safe(self, living: int) -> BufferOdds | None:
        """Return the least buffer that reaches the target, or the best; None where it withstands no liar with any."""
        share, target = self.belief.share or 0.0, self.belief.target or 0.0
        return _safe(self.names, tuple(sorted(self.options.items())), living, share, target, self.unguaranteed)

    def least(self, living: int) -> int:
        """Return the same, or the number that it needs in any case."""
        return max(self.minimum_nodes, self.wanted(living))

    def withstood(self, num_updates: int) -> int | None:
        """Return how many attackers among `num_updates` distinct nodes' contributions it is for, if known."""
        if self.fallback is not None and self.minimum_nodes <= num_updates < self.sound_nodes:
            return 0
        return aggregation.withstood(self.names, self.options, num_updates, unguaranteed=self.unguaranteed)

    def guaranteed(self, num_updates: int) -> bool:
        """Return whether it withstands them for certain."""
        return not self.unguaranteed or aggregation.guaranteed(self.names, self.options, num_updates)


@lru_cache(maxsize=1024)
def _safe(
    names: tuple[str, ...], options: tuple[tuple[str, Any], ...], living: int, share: float, target: float, bare: bool
) -> BufferOdds | None:
    given = dict(options)

    def withstood(nodes: int) -> int | None:
        return aggregation.withstood(names, given, nodes, unguaranteed=bare)

    return least_buffer(living, believed(share, living), withstood, target)


@dataclass(frozen=True)
class Choices:
    """Every policy of a run; None for invalid ones (never in a plan)."""

    compression: Choice | None
    downlink: Choice | None
    aggregation: Aggregation | None
    staleness: Choice | None
    outer: Choice | None
    inner: Choice | None
    schedule: Schedule | None
    scheduler: Choice | None


def choose(run_file: RunFile, problems: list[Problem]) -> Choices:
    """Return the policies of `run_file`, and add the defects of any to `problems`."""
    training, controller = run_file.training, run_file.controller
    exchange, section = run_file.exchange, run_file.aggregation
    collect = _Collector(problems)
    return Choices(
        compression=collect(("exchange", "compression"), lambda: _codec(exchange)),
        downlink=collect(
            ("exchange", "downlink_compression"),
            lambda: _checked(CODECS, exchange.downlink_compression, exchange.downlink_options),
        ),
        aggregation=collect(("aggregation", "rule"), lambda: aggregation_of(section, run_file.trust)),
        staleness=collect(("staleness", "weighting"), lambda: _staleness(run_file)),
        outer=collect(("aggregation", "outer_optimizer"), lambda: _outer(section)),
        inner=collect(("training", "inner_optimizer"), lambda: _inner(training)),
        schedule=collect(
            ("training", "schedule"), lambda: Schedule(training.schedule, training.warmup_tokens, training.final_rate)
        ),
        scheduler=collect(
            ("controller", "scheduler"),
            lambda: _checked(SCHEDULERS, controller.scheduler, controller.scheduler_options),
        ),
    )


def mode(controller: ControllerSection) -> str:
    """Return the mode's name, as outer optimizers declare theirs."""
    return ASYNCHRONOUS if controller.use_async_training else SYNCHRONOUS


class _Collector:
    """Calls a resolver, and turns its refusal into a problem at the key that chose the policy."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems

    def __call__(self, path: Path, resolve: Callable[[], T]) -> T | None:
        try:
            return resolve()
        except InputError as error:
            if path not in [problem.path for problem in self.problems]:
                self.problems.append(Problem(path, str(error)))
            return None


def _checked(catalog: Catalog, name: str, options: Mapping[str, Any]) -> Choice:
    return Choice(catalog.entry(name).name, catalog.resolve(name, options))


def _codec(exchange: ExchangeSection) -> Choice:
    known = CODECS.entry(exchange.compression).known_options
    options = _joined(exchange, "exchange", {"ratio": "compression_ratio"}, known, exchange.compression_options)
    return _checked(CODECS, exchange.compression, options)


def aggregation_of(section: AggregationSection, trust: TrustSection) -> Aggregation:
    """Return the rule or chain that these sections choose.

    UnknownNameError, OptionError or another InputError.
    """
    given = section.rule
    names = (given,) if isinstance(given, str) else tuple(given)
    if any(name.lower() == AUTO for name in names):
        raise OptionError(f"`{AUTO}` stands alone and in small letters: aggregation.rule: {AUTO}")
    known = frozenset[str]().union(*(entry.known_options for entry in aggregation.entries_of(names)))
    automatic = section.f == AUTO
    if automatic:
        section = section.model_copy(update={"f": AUTOMATIC_F})
    own = {"f": "f", "trim_ratio": "trim_ratio"}
    options = _joined(section, "aggregation", own, known, section.options)
    members = aggregation.resolve(names, options, unguaranteed=trust.unguaranteed)
    strictest, limit = max(needs(members), key=lambda need: need[0])
    fallback = section.fallback
    if fallback is not None:
        try:
            strictest = aggregation.falls_back(members, fallback)
        except InputError as error:
            raise OptionError(f"aggregation.fallback: {error}") from None
    last = members[-1][0].declares
    return Aggregation(
        names=names,
        options=options,
        known_options=known,
        minimum_nodes=strictest,
        limit=limit,
        needs=aggregation.inputs(members if fallback is None else [*members, *aggregation.resolve(fallback, {})]),
        coordinatewise=last.coordinatewise and not any(entry.declares.mixes for entry, _ in members),
        keeps=tuple(name for entry, _ in members for name in entry.declares.keeps),
        sound_nodes=aggregation.minimum(names, options),
        unguaranteed=trust.unguaranteed,
        belief=Belief(
            trust.believed_liars,
            trust.liar_odds if automatic and trust.believed_liars is not None else None,
        ),
        fallback=fallback,
    )


def _staleness(run_file: RunFile) -> Choice:
    section = run_file.staleness
    weighting = section.weighting
    if not run_file.controller.use_async_training:
        return _checked(STALENESS, FIXED, {"max_staleness": 0, "weighting": weighting})
    options: dict[str, Any] = {"max_staleness": section.max, "weighting": weighting}
    if not section.adaptive:
        return _checked(STALENESS, FIXED, options)
    options["min_staleness"] = section.min
    options["max_staleness_multiplier"] = section.max_multiplier
    return _checked(STALENESS, ADAPTIVE, options)


def _outer(section: AggregationSection) -> Choice:
    known = OUTER.entry(section.outer_optimizer).known_options
    own = {"learning_rate": "outer_learning_rate", "momentum": "outer_momentum"}
    options = _joined(section, "aggregation", own, known, section.outer_options)
    return _checked(OUTER, section.outer_optimizer, options)


def _inner(training: TrainingSection) -> Choice:
    beta1, beta2 = training.betas or (None, None)
    keys = {"beta1": beta1, "beta2": beta2, "momentum": training.momentum, "weight_decay": training.weight_decay}
    given = {key: value for key, value in keys.items() if value is not None}
    known = INNER.entry(training.inner_optimizer).known_options
    return _checked(INNER, training.inner_optimizer, {key: given[key] for key in given if key in known})


def _joined(
    section: Section, heading: str, own_keys: Mapping[str, str], known: AbstractSet[str], further: Mapping[str, Any]
) -> dict[str, Any]:
    """Return options from the algorithm's own keys in the run file, and from its options section.

    A key that is not given leaves the algorithm its own default; one given more than once is refused.
    """
    options = dict(further)
    for option, key in own_keys.items():
        value = getattr(section, key)
        if option not in known or value is None:
            continue
        if option in options:
            raise InputError(f"option '{option}' is given twice, here and as {heading}.{key}; keep one")
        options[option] = value
    return options
