"""Compatibility rows about differential privacy: profiles that a run's other choices would make void."""

from __future__ import annotations

from barnraise.compression.catalog import CATALOG as CODECS
from barnraise.config.privacy_sections import EXAMPLE, NOISE, SITE, DifferentialPrivacySection
from barnraise.config.site_sections import SiteData
from barnraise.core.errors import InputError
from barnraise.plan import suggest
from barnraise.plan.masking import masking_of
from barnraise.plan.privacy import SECTION
from barnraise.plan.problem import builds_own
from barnraise.plan.table import STATELESS, Case, Found, Row, adding_to, either

ROWS: list[Row] = []
_row = adding_to(ROWS)

UNEVEN = "matched", "literal"
"""Paces at which a task may have more steps than training.local_steps."""


def _section(case: Case) -> DifferentialPrivacySection | None:
    return case.run_file.privacy.differential_privacy


@_row(
    "a profile of differential privacy without its budget, or a budget that its profile does not keep",
    "example and site end the run at epsilon; noise on updates of rows that the controller hands out bounds nothing of "
    "one row, so no epsilon is claimed",
    "give epsilon and delta with the profiles example and site, and a number as noise with the profile noise",
)
def _budget(case: Case) -> Found:
    section = _section(case)
    if section is None:
        return
    if section.profile == NOISE:
        if section.noise == "auto":
            yield (*SECTION, "noise"), "is auto, but the profile noise has no budget to choose it by"
        for key in ("epsilon", "delta", "uses"):
            if getattr(section, key) is not None:
                yield (*SECTION, key), f"is {getattr(section, key):g}, but the profile is noise, which claims no bound"
        return
    for key in ("epsilon", "delta"):
        if getattr(section, key) is None:
            yield SECTION, f"has the profile {section.profile}, but no {key}"


@_row(
    "the profile site on rows that the controller hands out",
    "no rows belong to a site then, and the host has them all",
    "keep data at home (data.kind: site), or choose profile: example",
)
def _site_rows(case: Case) -> Found:
    section, kind = _section(case), str(case.run_file.data.kind)
    if section is not None and section.profile == SITE and kind != "site":
        yield (*SECTION, "profile"), f"is site, but data.kind is {kind}"


@_row(
    "the profile site with losses on rows of the sites",
    "no noise covers a loss on a site's held-out rows, which are rows of the site, too",
    "set data.releases.held_out: off; give data.public_held_out, with evaluation.by: controller",
)
def _site_losses(case: Case) -> Found:
    section, data = _section(case), case.run_file.data
    if section is None or section.profile != SITE or not isinstance(data, SiteData):
        return
    if data.releases.held_out != "off":
        yield ("data", "releases", "held_out"), f"is {data.releases.held_out}, with the profile site"


@_row(
    "shared noise without masked sums of enough members",
    "a share of the noise hides an update in a sum alone, and the sum needs as many shares as the whole noise has",
    "leave honest out, so that each site adds the whole noise; or set privacy.secure_aggregation, with groups of "
    "honest members or more",
)
def _shared(case: Case) -> Found:
    section = _section(case)
    if section is None or section.honest is None:
        return
    if section.profile != SITE:
        yield (*SECTION, "honest"), f"is {section.honest}, with the profile {section.profile}"
        return
    try:
        masks = masking_of(case.run_file, case.rule)
    except InputError:
        return  # told by the row about its terms
    if masks is None:
        yield (*SECTION, "honest"), f"is {section.honest}, but updates are not masked"
    elif masks.fewest < section.honest:
        yield (*SECTION, "honest"), f"is {section.honest}, but groups may have {masks.fewest} members"


@_row(
    "differential privacy with tasks that other nodes repeat",
    "a repetition draws other noise, so it is no check; and it uses the rows once more",
    "set training.tasks: stateful and trust.audits: 0; a robust aggregation rule works on noised updates",
)
def _repeated(case: Case) -> Found:
    if _section(case) is None:
        return
    if case.training.tasks == STATELESS:
        yield ("training", "tasks"), "is stateless, with differential privacy"
    if case.trust.audits:
        yield ("trust", "audits"), f"is {case.trust.audits:g}, with differential privacy"


@_row(
    "differential privacy with verdicts that read training rows",
    "scores and the loss gate decide by the loss on training rows, which no noise covers: the versions would tell of "
    "them",
    "set trust.scores: 0 and trust.loss_gate: 0; a robust aggregation rule works on noised updates",
)
def _scored(case: Case) -> Found:
    section = _section(case)
    if section is None or section.profile == NOISE:
        return
    if case.trust.scores:
        yield ("trust", "scores"), f"is {case.trust.scores:g}, with the profile {section.profile}"
    if case.trust.loss_gate:
        yield ("trust", "loss_gate"), f"is {case.trust.loss_gate}, with the profile {section.profile}"


@_row(
    "the profile example with gradients or tasks that it cannot bound",
    "it needs the gradient of each row by itself, and each step to take the same share of a task's rows",
    "leave these keys out, or choose profile: noise",
)
def _unbounded(case: Case) -> Found:
    section = _section(case)
    if section is None or section.profile != EXAMPLE:
        return
    training = case.training
    if builds_own(case.run_file):
        yield ("model", "problem"), "is your own, whose loss may mix the rows of a batch"
    if training.compile != "never":
        yield ("training", "compile"), f"is {training.compile}: a compiled layer has no gradients of single rows"
    if training.checkpoint_activations:
        yield ("training", "checkpoint_activations"), "is true: a layer's inputs are gone when a row's gradient is due"
    if training.pace in UNEVEN:
        yield ("training", "pace"), f"is {training.pace}: a task of more steps takes a smaller share of its rows a step"


@_row(
    "a sparse codec that picks the largest values of a noised update",
    "noise on each value is larger than most values, so it picks noise",
    f"use a dense codec, or exchange.compression: {either(suggest.supports_by_version())}, whose places are random",
    warning=True,
)
def _picks_noise(case: Case) -> Found:
    section, codec = _section(case), CODECS.entry(case.compression.name).declares
    if section is not None and section.profile != EXAMPLE and codec.sparse and not codec.shared_support:
        yield ("exchange", "compression"), f"is {case.compression.name}, with the profile {section.profile}"
