"""Compatibility rows about the aggregation rule: how many nodes it needs, and how many liars it withstands."""

from __future__ import annotations

from bisect import bisect_right

from barnraise.plan import suggest
from barnraise.plan.choices import Aggregation, aggregation_of
from barnraise.plan.purpose import SERVE
from barnraise.plan.table import Case, Found, Row, adding_to, either, rule_name, rule_text

ROUNDING = 1e-5
"""Rounding of a share of many nodes."""

ROWS: list[Row] = []
_row = adding_to(ROWS)


@_row(
    "fewer local workers than the aggregation rule needs",
    "with fewer contributions the rule's guarantee against liars is void",
    "list more workers, give aggregation.f as a lower whole number, or choose a rule that needs fewer",
)
def _too_few_workers(case: Case) -> Found:
    rule = case.rule
    if case.num_nodes is not None and case.num_nodes < rule.minimum_nodes:
        has = f"{case.num_nodes} node{'s' if case.num_nodes != 1 else ''}"
        path = ("aggregation", "rule")
        needs = f"needs {rule.limit}, here {rule.minimum_nodes} nodes, but the run has {has}"
        yield path, f"{rule_text(case)} {needs}{_instead(case, case.num_nodes)}"


def _instead(case: Case, nodes: int) -> str:
    """Return rules that work with `nodes` nodes, in brackets."""
    f, found = case.rule.options.get("f"), []
    if isinstance(f, int):
        fewer = bisect_right(range(1, f), nodes, key=lambda less: _would(case, f=less).minimum_nodes)
        found += [f"aggregation.f: {fewer}"] if fewer else []
    bare = _would(case, unguaranteed=True)
    if bare.minimum_nodes <= nodes:
        found.append(f"trust.unguaranteed: true, which takes {bare.limit}, here {bare.minimum_nodes}")
    enough = [f"enough for {', or for '.join(found)}"] if found else []
    said = [case.rule.beside_overview(nodes)] if case.rule.beside_overview(nodes) else []
    return f" ({'; '.join([*enough, *said])})" if enough or said else ""


def _would(case: Case, *, f: int | None = None, unguaranteed: bool | None = None) -> Aggregation:
    """The rule, if the run file gave this `f`, or said so of `unguaranteed`."""
    section, trust = case.aggregation, case.trust
    if f is not None:
        given = {"options": section.options | {"f": f}} if section.f is None else {"f": f}
        section = section.model_copy(update=given)
    if unguaranteed is not None:
        trust = trust.model_copy(update={"unguaranteed": unguaranteed})
    return aggregation_of(section, trust)


@_row(
    "a rule past its guarantee, by `trust.unguaranteed: true`",
    "no proof bounds what liars can do then",
    "gather that many, or lower aggregation.f",
    warning=True,
)
def _past_guarantee(case: Case) -> Found:
    rule, sound = case.rule, _would(case, unguaranteed=False)
    if rule.minimum_nodes == sound.minimum_nodes or (case.num_nodes or 0) >= sound.minimum_nodes:
        return
    there = f"with {case.num_nodes} nodes" if case.num_nodes is not None else f"below {sound.minimum_nodes} nodes"
    yield (
        ("trust", "unguaranteed"),
        f"{rule_text(case)} is UNGUARANTEED {there}: it needs {sound.limit}, here {sound.minimum_nodes}, and is "
        f"computed from {rule.limit}, here {rule.minimum_nodes}",
    )


@_row(
    "`trust.unguaranteed: true` with a rule that cannot be computed from fewer nodes than it needs",
    "it has no effect",
    "leave it out",
    warning=True,
)
def _nothing_past(case: Case) -> Found:
    if case.trust.unguaranteed and case.rule.minimum_nodes == _would(case, unguaranteed=False).minimum_nodes:
        yield ("trust", "unguaranteed"), f"is true, but {rule_text(case)} needs {case.rule.limit} in any case"


@_row(
    "a robust rule where the number of nodes is unknown",
    "versions are made only while enough nodes live",
    "invite at least as many, or choose a rule that needs fewer",
    warning=True,
)
def _unknown_nodes(case: Case) -> Found:
    rule = case.rule
    if case.purpose is SERVE and rule.minimum_nodes > 1:
        yield ("aggregation", "rule"), f"{rule_text(case)} pauses below {rule.minimum_nodes} live nodes"


@_row(
    "a buffer_size below what the aggregation rule needs",
    "a version would be made of too few contributions to tell a liar",
    "raise buffer_size, or leave it `auto`",
)
def _small_buffer(case: Case) -> Found:
    size, rule = case.aggregation.buffer_size, case.rule
    if size != "auto" and size < rule.minimum_nodes:
        text = f"is {size}, but {rule_text(case)} needs {rule.limit}, here {rule.minimum_nodes} contributions"
        yield ("aggregation", "buffer_size"), text


@_row(
    "aggregation.f with a rule that withstands no liars",
    "the run would look defended and not be",
    f"choose {either(suggest.rules_with('f'))}, or leave aggregation.f out",
)
def _undefended(case: Case) -> Found:
    if case.aggregation.f and "f" not in case.rule.known_options:
        yield (
            ("aggregation", "f"),
            f"is {case.aggregation.f}, but {rule_text(case)} has no such bound",
        )


@_row(
    "aggregation.f as a share that the rule cannot withstand, however many contribute",
    "f is then the most that the rule withstands, which is less than was asked for",
    "lower aggregation.f, or choose a rule that withstands more",
    warning=True,
)
def _too_large_a_share(case: Case) -> Found:
    f, of = case.rule.options.get("f"), 1_000_000
    if isinstance(f, float) and (most := (case.rule.withstood(of) or 0) / of) < f - ROUNDING:
        yield ("aggregation", "f"), f"is {f:g}, but {rule_name(case)} withstands less than {most:.3g}"
