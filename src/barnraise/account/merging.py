"""How contributions become versions: K, and of how many the newest one is made, with how many attackers among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from barnraise.config.aliases import canonical
from barnraise.config.policy_sections import AggregationSection, TrustSection
from barnraise.config.section import Section
from barnraise.core.errors import InputError
from barnraise.core.ranges import covers, disjoint
from barnraise.ledger import Judged, LedgerView, Noted, VersionClosed, notes
from barnraise.plan.choices import Aggregation, aggregation_of

S = TypeVar("S", bound=Section)


@dataclass(frozen=True)
class Merging:
    """`buffer_size` is K, 0 before there is one. The newest version is made of `nodes` contributions of distinct nodes,
    0 where there is none, and its rule was for `f` attackers among them (None: the rule has no such number), which it
    withstood if that was `guaranteed`. `odds`: how likely more of them lied, by the share that is believed to. The loss
    gate has left out `excluded` updates so far."""

    buffer_size: int = 0
    nodes: int = 0
    f: int | None = None
    guaranteed: bool = True
    odds: float | None = None
    excluded: int = 0


def merging(view: LedgerView) -> Merging:
    """How the run of a ledger merges; what an old one does not tell is left out."""
    size, nodes, rule = view.newest(notes.BufferSize), newest_nodes(view), _rule(view)
    buffer_size, excluded = size.nodes if size else 0, sum(len(note.nodes) for note in _excluded(view))
    if rule is None or not nodes:
        return Merging(buffer_size, nodes, excluded=excluded)
    odds = rule.odds(size.live, nodes) if size else None
    return Merging(buffer_size, nodes, rule.withstood(nodes), rule.guaranteed(nodes), odds, excluded=excluded)


def newest_nodes(view: LedgerView) -> int:
    """How many contributions the aggregation rule saw for the newest version that exists, each of another node.

    Of the parts of the parameters that they cut each other into, where the fewest were.
    """
    found = view.find(VersionClosed, "made_id IS NOT NULL", last=1)
    if not found:
        return 0
    closed = found[0][1]
    void = {
        noted.note.assignment
        for _, noted in view.find(Noted, "kind = ?", notes.kind_of(notes.Voided))
        if isinstance(noted.note, notes.Voided) and noted.note.version == closed.version
    }
    excluded = {node for note in _excluded(view) if note.version == closed.version for node in note.nodes}
    used = msgspec.json.encode([number for number in closed.contributions if number not in void]).decode()
    made_of = "verdict = 'accepted' AND assignment IN (SELECT value FROM json_each(?))"
    seen = [judged for _, judged in view.find(Judged, made_of, used) if judged.node not in excluded]
    slots = {(judged.node, judged.parameters) for judged in seen}
    parts = disjoint(parameters for _, parameters in slots)
    return min((sum(covers(parameters, part) for _, parameters in slots) for part in parts), default=0)


def _excluded(view: LedgerView) -> list[notes.Excluded]:
    found = (noted.note for _, noted in view.find(Noted, "kind = ?", notes.kind_of(notes.Excluded)))
    return [note for note in found if isinstance(note, notes.Excluded)]


def _rule(view: LedgerView) -> Aggregation | None:
    """The rule that the ledger tells of; None where it is not told, or not known here (any more)."""
    told = view.newest(notes.RunFile)
    content = canonical(told.content).content if told else {}
    try:
        return aggregation_of(
            _known(AggregationSection, content.get("aggregation", {})), _known(TrustSection, content.get("trust", {}))
        )
    except (InputError, ValueError):
        return None


def _known(section: type[S], values: dict[str, Any]) -> S:
    """The section of those `values` whose keys there are; another version of barnraise may have had others."""
    return section(**{key: value for key, value in values.items() if key in section.model_fields})
