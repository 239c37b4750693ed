"""A rule, and another one for fewer updates than the first accepts."""

from __future__ import annotations

from collections.abc import Sequence

from . import chain
from .base import Rule
from .catalog import Inputs, falls_back, inputs, resolve
from .shares import Member, fewer


def build(members: Sequence[Member], fallback: str | None) -> Rule:
    """Build the rule, or chain, of these members, with a `fallback` for fewer updates.

    Raises OptionError.
    """
    rule = chain.build(members)
    if fallback is None:
        return rule
    falls_back(members, fallback)
    return WithFallback(rule, chain.build(resolve(fallback, {})))


def without(rule: Rule, attackers: int) -> Rule:
    """Return the rule for what is left once this number of its attackers' updates are left out.

    It withstands as many fewer, so it needs fewer updates and keeps more of them. A rule for a share of the updates
    withstands that share of what is left.
    """
    if not attackers:
        return rule
    if isinstance(rule, WithFallback):
        return WithFallback(without(rule.rule, attackers), rule.fallback)
    return chain.build([fewer(member, attackers) for member in rule.parts])


class WithFallback(Rule):
    """Applies `rule` where there are enough updates for it, else `fallback`.

    Neither keeps vectors.
    """

    name = "with_fallback"

    def __init__(self, rule: Rule, fallback: Rule) -> None:
        self.rule, self.fallback = rule, fallback
        self.options = {}

    @property
    def parts(self) -> Sequence[Member]:
        return self.fallback.parts  # the needs of both

    @property
    def needs(self) -> Inputs:
        return inputs([*self.rule.parts, *self.fallback.parts])

    @property
    def weighted(self) -> bool:
        return self.rule.weighted or self.fallback.weighted

    @property
    def keeps(self) -> tuple[str, ...]:
        return ()

    def among(self, num_updates: int) -> Rule:
        rule = self.rule if num_updates >= self.rule.minimum else self.fallback
        return rule.among(num_updates)
