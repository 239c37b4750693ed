"""Compatibility rows about rows that stay with their owners: what the controller cannot do without rows."""

from __future__ import annotations

from barnraise.config.site_sections import SiteData
from barnraise.plan.purpose import SIMULATE
from barnraise.plan.table import Case, Found, Row, adding_to

ROWS: list[Row] = []
_row = adding_to(ROWS)


def _sites(case: Case) -> SiteData | None:
    data = case.run_file.data
    return data if isinstance(data, SiteData) else None


@_row(
    "audits of work on rows that stay with their owners",
    "an audit repeats a task on its rows, and no other node has them",
    "leave trust.audits 0, and choose an aggregation.rule that withstands liars",
)
def _audited_sites(case: Case) -> Found:
    if _sites(case) and case.trust.audits:
        yield ("trust", "audits"), f"is {case.trust.audits:g}, but data.kind is site"


@_row(
    "scores of work on rows that stay with their owners",
    "a score measures the loss on the rows of a task, and the controller does not have them",
    "leave trust.scores 0, and choose an aggregation.rule that withstands liars",
)
def _scored_sites(case: Case) -> Found:
    if _sites(case) and case.trust.scores:
        yield ("trust", "scores"), f"is {case.trust.scores:g}, but data.kind is site"


@_row(
    "a loss gate over rows that stay with their owners",
    "the gate measures training rows, and the controller does not have them",
    "leave trust.loss_gate 0, and choose an aggregation.rule that withstands liars",
)
def _gated_sites(case: Case) -> Found:
    if _sites(case) and case.trust.loss_gate:
        yield ("trust", "loss_gate"), f"is {case.trust.loss_gate}, but data.kind is site"


@_row(
    "evaluation by the sites, where rows are the run's",
    "only rows that stay with their owners are measured there",
    "leave evaluation.by `controller`, or set it to `workers`",
)
def _measured_by_no_site(case: Case) -> Found:
    if case.evaluation.by == "sites" and not _sites(case):
        yield ("evaluation", "by"), f"is sites, but data.kind is {case.run_file.data.kind}"


@_row(
    "evaluation without rows, where these stay with their owners",
    "the controller and other workers have no held-out rows of a site",
    "set evaluation.by: sites, or give data.public_held_out for evaluation.by: controller",
)
def _measured_on_nothing(case: Case) -> Found:
    data, by = _sites(case), case.evaluation.by
    if data and (by == "workers" or (by == "controller" and not data.public_held_out)):
        has = "and there are no public_held_out files" if by == "controller" else "which have no rows of each other"
        yield ("evaluation", "by"), f"is {by}, {has}"


@_row(
    "evaluation by sites that release no loss",
    "the run would have no held-out loss",
    "set data.releases.held_out to mean or each, or give data.public_held_out and evaluation.by: controller",
)
def _measured_in_secret(case: Case) -> Found:
    data = _sites(case)
    if data and case.evaluation.by == "sites" and data.releases.held_out == "off":
        yield ("data", "releases", "held_out"), "is off, but evaluation.by is sites"


@_row(
    "metrics or samples without held-out rows of the host",
    "the controller measures them on rows, and those of the sites stay with their owners",
    "give data.public_held_out with evaluation.by: controller, or leave them out",
)
def _metrics_without_rows(case: Case) -> Found:
    data, section = _sites(case), case.evaluation
    if data and not data.public_held_out:
        for name in ("metrics", "samples", "prompts"):
            if getattr(section, name):
                yield ("evaluation", name), "is given, but there are no public_held_out files"


@_row(
    "a simulation of sites",
    "simulated nodes have no files of their own",
    "simulate the run with data of kind text, or start it with `barnraise train`",
)
def _simulated_sites(case: Case) -> Found:
    if _sites(case) and case.purpose is SIMULATE:
        yield ("data", "kind"), "is site"


@_row(
    "a local worker without files, where rows stay with their owners",
    "it would have nothing to train on",
    "name its files, as in `workers: [{name: a, data: {files: [a/*.txt]}}]`",
)
def _site_without_files(case: Case) -> Found:
    if _sites(case) and case.purpose.local:
        for number, worker in enumerate(case.run_file.workers):
            if worker.data is None:
                yield ("workers", number, "data"), f"is missing for '{worker.name}', but data.kind is site"


@_row(
    "files of a worker, where rows are the run's",
    "the controller sends each worker its rows",
    "leave them out, or set data.kind: site",
)
def _files_of_no_site(case: Case) -> Found:
    if not _sites(case):
        for number, worker in enumerate(case.run_file.workers):
            if worker.data is not None:
                yield ("workers", number, "data"), f"is given for '{worker.name}', but data.kind is not site"


@_row(
    "rows that stay with their owners, and what cannot be checked without them",
    "no other node or reader has the rows, so no work is copied, audited, scored or repeated, and `barnraise verify` "
    "checks the ledger's chain and the making of versions alone",
    "choose an aggregation.rule that withstands liars where you do not trust each site",
    warning=True,
)
def _unchecked_sites(case: Case) -> Found:
    if _sites(case):
        yield ("data", "kind"), "is site, so no other node can copy, audit, score or repeat a site's work"
