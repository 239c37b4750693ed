"""The automatic choice of the aggregation rule, which depends on who takes part.

Made before all else, so that a plan, and the run file that a run keeps, name the rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnraise.aggregation.defaults import AUTOMATIC_F, DEFENDED, GATE_ROWS, TRUSTING
from barnraise.config.policy_sections import AggregationSection, TrustSection
from barnraise.config.privacy_sections import NOISE
from barnraise.config.problems import Problem
from barnraise.config.schema import RunFile
from barnraise.config.site_sections import SiteData
from barnraise.plan import suggest
from barnraise.plan.attacks import attacks_of
from barnraise.plan.choices import AUTO
from barnraise.plan.purpose import SERVE, Purpose
from barnraise.plan.table import either


def settled(run_file: RunFile, purpose: Purpose) -> tuple[RunFile, str]:
    """Return `run_file` with a rule in place of `auto`, and the reason; empty where the file names its rule."""
    section, trust = run_file.aggregation, run_file.trust
    if section.rule != AUTO:
        return run_file, ""
    if section.f == 0:
        section, why = _trusting(section), "aggregation.f is 0"
    elif run_file.privacy.homomorphic_encryption is not None and not _says_how_many(section, trust):
        section, why = _trusting(section), "encrypted updates can be summed alone"
    elif why := next(_suspicions(run_file, purpose), ""):
        section, trust = defended(section, trust, gated=_may_be_gated(run_file))
    else:
        section, why = _trusting(section), "all workers are the host's own"
    return run_file.model_copy(update={"aggregation": section, "trust": trust}), why


def defended(
    section: AggregationSection, trust: TrustSection, *, gated: bool = True
) -> tuple[AggregationSection, TrustSection]:
    """Return both sections with the rule for untrusted nodes, and with the loss gate if it may be `gated`.

    A run file that gives the number of liars asks for versions that withstand them; else too few nodes are no obstacle.
    """
    changes: dict[str, object] = {"rule": list(DEFENDED)}
    if not _says_how_many(section, trust):
        changes["f"] = AUTOMATIC_F
        changes["fallback"] = section.fallback or TRUSTING
    elif section.f is None and "f" not in section.options:
        changes["f"] = AUTO
    if trust.loss_gate is None and gated:
        trust = trust.model_copy(update={"loss_gate": GATE_ROWS})
    return section.model_copy(update=changes), trust


def automatic_problems(run_file: RunFile) -> Iterator[Problem]:
    """Yield problems of keys about liars that do not suffice for a choice."""
    if run_file.aggregation.rule == AUTO and run_file.aggregation.trim_ratio is not None:
        trimming = either(suggest.rules_with("trim_ratio"))
        text = f"counts for a rule that trims, but aggregation.rule is {AUTO}; name one ({trimming}), or give"
        yield Problem(
            ("aggregation", "trim_ratio"), f"{text} aggregation.f: {run_file.aggregation.trim_ratio:g} instead"
        )


def _may_be_gated(run_file: RunFile) -> bool:
    """Return whether the controller may read single updates and decide by the loss on training rows."""
    privacy, sites = run_file.privacy, isinstance(run_file.data, SiteData)
    noised = privacy.differential_privacy is not None and privacy.differential_privacy.profile != NOISE
    unread = privacy.secure_aggregation is not None or noised or sites
    return run_file.evaluation.by == "controller" and not unread


def _trusting(section: AggregationSection) -> AggregationSection:
    return section.model_copy(update={"rule": TRUSTING})


def _says_how_many(section: AggregationSection, trust: TrustSection) -> bool:
    return bool(section.f or trust.believed_liars or "f" in section.options)


def _suspicions(run_file: RunFile, purpose: Purpose) -> Iterator[str]:
    """Yield the reasons why a node may lie."""
    if _says_how_many(run_file.aggregation, run_file.trust):
        yield "the run file says that some may lie"
    for _, name, _ in attacks_of(run_file):
        yield f"{name} attacks"
    if purpose is SERVE:
        yield "strangers may join"
