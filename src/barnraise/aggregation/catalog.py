"""The aggregation rules by name, with their requirements and traits; imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from barnraise.core.errors import OptionError, nearest
from barnraise.core.registry import Catalog, Entry, Option

from .limits import trim_limit, trim_minimum, trimmed_per_side
from .order import in_order
from .shares import Member, counted, fewest, given, needs, shares_of

Inputs: TypeAlias = Literal["rows", "sum"]
"""The form in which a rule needs updates: each as a row of its own, or their weighted sum."""


def _given_f(options: Mapping[str, Any], num_updates: int) -> int | None:
    f: int | None = options.get("f")
    return f


@dataclass(frozen=True)
class Need:
    """The number of updates that a rule needs: `fewest(options)`, and that as a formula in words."""

    fewest: Callable[[Mapping[str, Any]], int]
    formula: str


@dataclass(frozen=True)
class Minima:
    """Other minima of a rule.

    `computable`: from how many updates it can be computed without its guarantee, where that is less than its minimum;
    `overview`: the minimum in the system's original overview, where that differs.
    """

    computable: Need | None = None
    overview: Need | None = None


@dataclass(frozen=True)
class Traits:
    """The traits that a rule declares.

    `minimum(options)`: the fewest updates with which its guarantee holds; OptionError for options that never work.
    `limit(options)`: that minimum as a formula in words. `withstands(options, n)`: how many attackers among n updates
    its guarantee holds with, if it has such a number. `others`: other minima, the one that it can be computed from and
    the original overview's. These five get whole numbers for options that were given as a share (`Option.share`).
    `needs`: "sum" where the weighted sum of the updates and the sum of their weights are enough, "rows" where the rule
    reads each update; a "sum" rule is `weighted`. `linear`: the aggregate is a fixed weighted sum, whatever the
    updates. `weighted`: uses the weights it is given; other rules count each update alike.
    `coordinatewise`: trims or selects each coordinate by itself; on top-k updates, whose supports are disjoint, that
    trims to zero unless a pre-aggregation `mixes` them first. `prepares`: gives updates for updates, so it only goes in
    front of a rule: n for n, or as many as `merges(options, n)` says, where it has that. Merged ones are no single
    node's. `mixes`: each of those is made of most others, so that even sparse updates become dense. `keeps`: the
    vectors that it keeps from version to version, by name, each as large as the parameters; one with `{node}` in its
    name for each node, of that node's updates, so that such a rule goes first.
    """

    minimum: Callable[[Mapping[str, Any]], int]
    limit: Callable[[Mapping[str, Any]], str]
    needs: Inputs = "rows"
    linear: bool = False
    weighted: bool = False
    coordinatewise: bool = False
    prepares: bool = False
    mixes: bool = False
    keeps: tuple[str, ...] = ()
    merges: Callable[[Mapping[str, Any], int], int] | None = None
    withstands: Callable[[Mapping[str, Any], int], int | None] = _given_f
    others: Minima = Minima()


def entries_of(names: Sequence[str]) -> list[Entry]:
    """Return the rules of a chain; UnknownNameError, or OptionError where several are written as one."""
    for name in names:
        parts = name.replace("+", " ").replace(",", " ").split()
        if len(parts) > 1 and set(parts) <= set(CATALOG.entries):
            raise OptionError(f"'{name}' is no aggregation rule; a chain is a list: [{', '.join(parts)}]")
    return [CATALOG.entry(name) for name in names]


def resolve(names: str | Sequence[str], options: Mapping[str, Any], *, unguaranteed: bool = False) -> list[Member]:
    """Resolve a rule, or a chain of pre-aggregations and a rule, with the checked options of each.

    An option goes to every member of the chain that knows it. `unguaranteed` members need no more than they can be
    computed from. UnknownNameError, OptionError.
    """
    names = [names] if isinstance(names, str) else list(names)
    entries = entries_of(names)
    if not entries:
        raise OptionError("an aggregation chain is empty, but needs at least one rule, for example [nnm, trimmed_mean]")
    in_order(entries)
    known = {option.name for entry in entries for option in entry.options}
    for key in options:
        if key not in known:
            close = nearest(key, known)
            hint = f"; did you mean '{close}'?" if close else f" (known: {', '.join(sorted(known)) or 'none'})"
            raise OptionError(f"aggregation rule '{'+'.join(names)}' has no option '{key}'{hint}")
    resolved: list[Member] = []
    for entry in entries:
        own = {option.name for option in entry.options}
        given = {key: value for key, value in options.items() if key in own}
        resolved.append((_computed(entry) if unguaranteed else entry, entry.resolve(CATALOG.family, given)))
    return resolved


def inputs(members: Sequence[Member]) -> Inputs:
    """Return what a rule or chain needs: a sum only where that is enough for every member.

    >>> inputs(resolve("mean", {})), inputs(resolve(["clip_median", "mean"], {}))
    ('sum', 'rows')
    """
    return "sum" if all(entry.declares.needs == "sum" for entry, _ in members) else "rows"


def falls_back(members: Sequence[Member], fallback: str) -> int:
    """Return from how few updates a rule or chain works with the rule `fallback` for smaller numbers.

    OptionError when `fallback` cannot replace it.
    """
    ((entry, options),) = resolve(fallback, {})
    for each, _ in [*members, (entry, options)]:
        if each.declares.keeps:
            raise OptionError(
                f"aggregation rule '{each.name}' keeps something from version to version, so that no version can be "
                "made by another rule: leave aggregation.fallback out, or choose rules that keep nothing"
            )
    return min(fewest(members), fewest([(entry, options)]))


def _computed(entry: Entry) -> Entry:
    """Return the rule with the minimum from which it can be computed."""
    need = entry.declares.others.computable
    if need is None:
        return entry
    return replace(entry, declares=replace(entry.declares, minimum=need.fewest, limit=lambda _: need.formula))


def beside_overview(
    names: str | Sequence[str], options: Mapping[str, Any], num_updates: int, *, unguaranteed: bool = False
) -> str:
    """Describe how the original overview judges `num_updates` updates where that differs; else empty.

    >>> beside_overview("krum", {"f": 3}, 9)
    "the overview's f < n/3 does not allow f=3 of 9, n >= 2f+3 does"
    >>> beside_overview("krum", {"f": 1}, 4)
    "the overview's f < n/3 allows f=1 of 4, n >= 2f+3 does not"
    >>> beside_overview("krum", {"f": 2}, 9)
    ''
    """
    members = resolve(names, options, unguaranteed=unguaranteed)
    if any(map(shares_of, members)):
        if num_updates < fewest(members):
            return ""
        members = counted(members, num_updates)
    for (entry, own), num_rows in zip(members, given(members, num_updates), strict=True):
        traits = CATALOG.entry(entry.name).declares
        theirs = traits.others.overview
        if theirs is None:
            continue
        allowed, enough = num_rows >= theirs.fewest(own), num_rows >= traits.minimum(own)
        if allowed != enough:
            words = ("allows", "does not") if allowed else ("does not allow", "does")
            formula, limit = theirs.formula, traits.limit(own)
            return f"the overview's {formula} {words[0]} f={own['f']} of {num_rows}, {limit} {words[1]}"
    return ""


def minimum(names: str | Sequence[str], options: Mapping[str, Any], *, unguaranteed: bool = False) -> int:
    """Return the fewest updates that the rule or chain takes; UnknownNameError or OptionError if it never works."""
    return fewest(resolve(names, options, unguaranteed=unguaranteed))


def guaranteed(names: str | Sequence[str], options: Mapping[str, Any], num_updates: int) -> bool:
    """Return whether the guarantee of the rule or chain holds with `num_updates` updates.

    >>> guaranteed("bulyan", {"f": 2}, 9), guaranteed("bulyan", {"f": 2}, 11)
    (False, True)
    """
    members = resolve(names, options, unguaranteed=True)
    if num_updates < fewest(members):
        return False
    seen = zip(counted(members, num_updates), given(members, num_updates), strict=True)
    return all(CATALOG.entry(entry.name).declares.minimum(own) <= num_rows for (entry, own), num_rows in seen)


def withstood(
    names: str | Sequence[str], options: Mapping[str, Any], num_updates: int, *, unguaranteed: bool = False
) -> int | None:
    """Return how many attackers among `num_updates` the rule or chain is for: f, counted out where it is a share.

    None where it has no such number, or there are too few updates. It withstands them where it is `guaranteed`.

    >>> withstood("krum", {"f": 0.2}, 19), withstood("krum", {"f": 2}, 19), withstood("median", {}, 19)
    (3, 2, None)
    """
    members = resolve(names, options, unguaranteed=unguaranteed)
    if num_updates < fewest(members):
        return None
    seen = zip(counted(members, num_updates), given(members, num_updates), strict=True)
    found = [entry.declares.withstands(own, num_rows) for (entry, own), num_rows in seen]
    return min((f for f in found if f is not None), default=None)


def require(names: str | Sequence[str], options: Mapping[str, Any], num_updates: int) -> None:
    """Raise OptionError, with the limit and a remedy, when `num_updates` are too few for the rule or chain."""
    require_members(resolve(names, options), num_updates)


def require_members(members: Sequence[Member], num_updates: int) -> None:
    """Apply `require` to a rule or chain with its resolved options."""
    for member, (needed, limit) in zip(members, needs(members), strict=True):
        if num_updates < needed:
            entry, options = member
            shares = " and ".join(shares_of(member))
            instead = f"give {shares} as a whole number" if shares else "defend against fewer attackers"
            values = ", ".join(f"{key}={value}" for key, value in options.items() if value is not None)
            raise OptionError(
                f"aggregation rule '{entry.name}'{f' with {values}' if values else ''} needs "
                f"{limit} = {needed} updates, got {num_updates}; "
                f"gather more updates, {instead}, or choose a rule that needs fewer"
            )


_KRUM_COMPUTABLE = Need(lambda o: 2 * o["f"] + 2, "n >= 2f+2")
"""With fewer, attackers that send equal updates have a score among themselves alone: 0."""

_KRUM = Traits(
    lambda o: 2 * o["f"] + 3,
    lambda _: "n >= 2f+3",
    others=Minima(computable=_KRUM_COMPUTABLE),
)
_F = Option("f", int, 1, "Byzantine updates that it must withstand.", minimum=0, maximum=1_000_000, share=True)


CATALOG = Catalog(
    "aggregation rule",
    "barnraise.aggregation",
    [
        Entry(
            "mean",
            "barnraise.aggregation.mean:Mean",
            "the weighted mean; one attacker moves it anywhere",
            declares=Traits(lambda _: 1, lambda _: "n >= 1", needs="sum", linear=True, weighted=True),
        ),
        Entry(
            "median",
            "barnraise.aggregation.median:Median",
            "the median of each coordinate",
            declares=Traits(lambda _: 1, lambda _: "n >= 1", coordinatewise=True),
        ),
        Entry(
            "trimmed_mean",
            "barnraise.aggregation.trimmed_mean:TrimmedMean",
            "the mean of each coordinate without its largest and smallest values",
            options=(
                Option("f", int, None, "Values dropped a side.", minimum=1, maximum=1_000_000, share=True),
                Option("trim_ratio", float, None, "Share of the values dropped a side (0.25).", minimum=0, maximum=0.5),
            ),
            declares=Traits(trim_minimum, trim_limit, coordinatewise=True, withstands=trimmed_per_side),
        ),
        Entry(
            "krum",
            "barnraise.aggregation.krum:Krum",
            "the update that is closest to its neighbours",
            options=(_F,),
            declares=replace(
                _KRUM, others=Minima(_KRUM_COMPUTABLE, overview=Need(lambda o: 3 * o["f"] + 1, "f < n/3"))
            ),
        ),
        Entry(
            "multi_krum",
            "barnraise.aggregation.krum:MultiKrum",
            "the mean of the n-f updates that are closest to their neighbours",
            options=(_F,),
            declares=_KRUM,
        ),
        Entry(
            "bulyan",
            "barnraise.aggregation.bulyan:Bulyan",
            "Krum's choice of n-2f updates, then a mean around the median of each coordinate",
            options=(_F,),
            declares=Traits(
                lambda o: 4 * o["f"] + 3,
                lambda _: "n >= 4f+3",
                coordinatewise=True,
                others=Minima(computable=Need(lambda o: 4 * o["f"] + 1, "n >= 4f+1")),
            ),
        ),
        Entry(
            "centered_clipping",
            "barnraise.aggregation.centered_clipping:CenteredClipping",
            "the previous aggregate, moved by differences from it of limited length",
            options=(
                Option(
                    "tau", float, None, "The length at which an update is cut (L2); else the median.", minimum=1e-30
                ),
                Option(
                    "iterations",
                    int,
                    1,
                    "Iterations; each starts from the result of the one before.",
                    minimum=1,
                    maximum=100,
                ),
            ),
            declares=Traits(lambda _: 1, lambda _: "n >= 1", keeps=("previous",)),
        ),
        Entry(
            "geometric_median",
            "barnraise.aggregation.geometric_median:GeometricMedian",
            "the point whose distances from all updates have the least sum",
            options=(Option("iterations", int, 100, "Most iterations.", minimum=1, maximum=1000),),
            declares=Traits(lambda _: 1, lambda _: "n >= 1"),
        ),
        Entry(
            "dnc",
            "barnraise.aggregation.dnc:DivideAndConquer",
            "a variant of DnC: the mean of all but f updates, each time without the one that stands out most",
            options=(_F,),
            declares=Traits(lambda o: 2 * o["f"] + 1, lambda _: "n >= 2f+1"),
        ),
        Entry(
            "arc",
            "barnraise.aggregation.arc:AdaptiveRobustClipping",
            "shortens the longest updates, somewhat more than f, to the next; goes in front of a rule",
            options=(_F,),
            declares=Traits(lambda o: 2 * o["f"] + 1, lambda _: "n >= 2f+1", prepares=True),
        ),
        Entry(
            "clip_median",
            "barnraise.aggregation.clip_median:ClipMedian",
            "shortens each update to the median of their norms; goes in front of a rule",
            declares=Traits(lambda _: 1, lambda _: "n >= 1", prepares=True),
        ),
        Entry(
            "bucketing",
            "barnraise.aggregation.bucketing:Bucketing",
            "merges groups of s updates, drawn by lot, into their means; goes in front of a rule",
            options=(Option("s", int, 2, "Updates that are merged into one.", minimum=1, maximum=1_000_000),),
            declares=Traits(lambda _: 1, lambda _: "n >= 1", prepares=True, merges=lambda o, n: -(-n // o["s"])),
        ),
        Entry(
            "worker_momentum",
            "barnraise.aggregation.worker_momentum:WorkerMomentum",
            "each node's momentum in place of its update; goes in front of a rule",
            options=(Option("beta", float, 0.9, "Share of the momentum that stays.", minimum=0, maximum=0.999),),
            declares=Traits(lambda _: 1, lambda _: "n >= 1", prepares=True, keeps=("momentum of {node}",)),
        ),
        Entry(
            "monna",
            "barnraise.aggregation.monna:NearestNeighbourAveraging",
            "the mean of the n-f updates that are nearest to the previous aggregate",
            options=(_F,),
            declares=Traits(lambda o: 2 * o["f"] + 1, lambda _: "n >= 2f+1", keeps=("previous",)),
        ),
        Entry(
            "nnm",
            "barnraise.aggregation.nnm:NearestNeighbourMixing",
            "replaces each update by the mean of its n-f nearest; goes in front of a rule",
            options=(_F,),
            declares=Traits(lambda o: 2 * o["f"] + 1, lambda _: "n >= 2f+1", prepares=True, mixes=True),
        ),
    ],
)
