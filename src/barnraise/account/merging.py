"""The making of versions from contributions: K, and the contributions and attackers of the newest one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import msgspec

from barnraise.account.pauses import Pauses
from barnraise.account.reducer import Kinds, Reducer
from barnraise.config.aliases import canonical
from barnraise.config.policy_sections import AggregationSection, TrustSection
from barnraise.config.section import Section
from barnraise.core.errors import InputError
from barnraise.core.ranges import covers, disjoint
from barnraise.ledger import Judged, LedgerView, Noted, VersionClosed, VersionMade, notes
from barnraise.plan.choices import Aggregation, aggregation_of

S = TypeVar("S", bound=Section)


@dataclass(frozen=True)
class Merging:
    """The merging of contributions into versions.

    `buffer_size` is K, 0 before there is one. The newest version is made of `nodes` contributions of distinct nodes, 0
    where there is none, and its rule was for `f` attackers among them (None: the rule has no such number), which it
    withstood if that was `guaranteed`. `odds`: the probability of more liars, by their assumed share. The loss gate has
    left out `excluded` updates so far. The newest version was `made` at that time of the run's clock, and the next one
    has contributions of `gathered` nodes, unless `pauses` say why the run rests.
    """

    buffer_size: int = 0
    nodes: int = 0
    f: int | None = None
    guaranteed: bool = True
    odds: float | None = None
    excluded: int = 0
    made: float = 0.0
    gathered: int = 0
    pauses: Pauses = field(default_factory=Pauses)


class NewestVersion(Reducer):
    """Keeps the contributions of the newest version that exists.

    It was `made` at that time. They are `closed` by version, without those that are `void`, and those of nodes that the
    loss gate has `left_out`. `excluded` counts the latter over the whole run.
    """

    kinds: ClassVar[Kinds] = (VersionClosed, VersionMade, notes.Voided, notes.Excluded)

    version: int = -1
    made: float = 0.0
    closed: dict[int, tuple[int, ...]] = msgspec.field(default_factory=dict)
    void: dict[int, set[int]] = msgspec.field(default_factory=dict)
    left_out: dict[int, set[str]] = msgspec.field(default_factory=dict)
    excluded: int = 0

    def add(self, row_id: int, decision: object, view: LedgerView) -> None:
        if isinstance(decision, VersionClosed):
            self.closed[decision.version] = decision.contributions
        elif isinstance(decision, VersionMade):
            self._made(decision.version, decision.time)
        elif isinstance(decision, Noted) and isinstance(decision.note, notes.Voided):
            if decision.note.version >= self.version:
                self.void.setdefault(decision.note.version, set()).add(decision.note.assignment)
        elif isinstance(decision, Noted) and isinstance(decision.note, notes.Excluded):
            self.excluded += len(decision.note.nodes)
            if decision.note.version >= self.version:
                self.left_out.setdefault(decision.note.version, set()).update(decision.note.nodes)

    def _made(self, version: int, time: float) -> None:
        """Forget older versions."""
        self.version, self.made = version, time
        for kept in (self.closed, self.void, self.left_out):
            for older in [one for one in kept if one < version]:
                del kept[older]

    def nodes(self, view: LedgerView) -> int:
        """Return how many contributions, of distinct nodes, made the newest version.

        Where parameters are cut into parts, the number of the part with the fewest.
        """
        void, left_out = self.void.get(self.version, ()), self.left_out.get(self.version, ())
        used = [number for number in self.closed.get(self.version, ()) if number not in void]
        made_of = "verdict = 'accepted' AND assignment IN (SELECT value FROM json_each(?))"
        found = view.find(Judged, made_of, msgspec.json.encode(used).decode()) if used else []
        slots = {(judged.node, judged.parameters) for _, judged in found if judged.node not in left_out}
        parts = disjoint(parameters for _, parameters in slots)
        return min((sum(covers(parameters, part) for _, parameters in slots) for part in parts), default=0)


def merging(nodes: int, excluded: int, size: notes.BufferSize | None, run_file: dict[str, Any]) -> Merging:
    """Return how a run merges whose newest version is made of `nodes` contributions.

    Figures that an old ledger lacks are left out.
    """
    rule, buffer_size = _rule(run_file), size.nodes if size else 0
    if rule is None or not nodes:
        return Merging(buffer_size, nodes, excluded=excluded)
    odds = rule.odds(size.live, nodes) if size else None
    return Merging(buffer_size, nodes, rule.withstood(nodes), rule.guaranteed(nodes), odds, excluded=excluded)


def _rule(run_file: dict[str, Any]) -> Aggregation | None:
    """Return the rule on the ledger; None where there is none, or it is unknown here."""
    content = canonical(run_file).content
    try:
        return aggregation_of(
            _known(AggregationSection, content.get("aggregation", {})), _known(TrustSection, content.get("trust", {}))
        )
    except (InputError, ValueError):
        return None


def _known(section: type[S], values: dict[str, Any]) -> S:
    """The section of those `values` whose keys there are; another version of barnraise may have had others."""
    return section(**{key: value for key, value in values.items() if key in section.model_fields})
