"""Compatibility rows about masked updates, of which the controller reads sums alone."""

from __future__ import annotations

from barnraise.compression.catalog import CATALOG as CODECS
from barnraise.config.mask_sections import SecureAggregationSection
from barnraise.config.schema import RunFile
from barnraise.core.errors import InputError
from barnraise.plan.masking import masking_of
from barnraise.plan.purpose import LAB, SIMULATE, TRAIN
from barnraise.plan.table import STATELESS, Case, Found, Row, adding_to, either, rule_name
from barnraise.training.catalog import INNER

PATH = ("privacy", "secure_aggregation")
LOSSLESS = [name for name, entry in CODECS.entries.items() if entry.declares.lossless]

ROWS: list[Row] = []
_row = adding_to(ROWS)


def keeps_rows_home(run_file: RunFile) -> bool:
    """Return whether the rows stay at their sites."""
    return str(run_file.data.kind) == "site"


def section_of(case: Case) -> SecureAggregationSection | None:
    """Return the section about masks, if the run file has one."""
    return case.run_file.privacy.secure_aggregation


def checks_of_updates(case: Case, hidden: str) -> Found:
    """Yield the checks that read single updates, where these are `hidden`: masked or encrypted."""
    for name in ("audits", "scores", "loss_gate", "max_update_norm"):
        if value := getattr(case.trust, name):
            yield ("trust", name), f"is {value:g}, but updates are {hidden}"


@_row(
    "masks with terms that cannot hold",
    "a sum that wraps is wrong without a sign of it, and too few trustees hide nothing from those that collude",
    "or leave the section out",
)
def _terms(case: Case) -> Found:
    try:
        masking_of(case.run_file, case.rule)
    except InputError as error:
        yield PATH, str(error)


@_row(
    "masks in a lab",
    "a lab starts no trustees",
    "run it with `barnraise train`, or leave privacy.secure_aggregation out",
)
def _lab(case: Case) -> Found:
    if section_of(case) is not None and case.purpose is LAB:
        yield PATH, "is given, and this is a lab"


@_row(
    "masks in a simulation",
    "a simulation has no trustees",
    "read its figures as those of updates in clear",
    warning=True,
)
def _simulation(case: Case) -> Found:
    if section_of(case) is not None and case.purpose is SIMULATE:
        yield PATH, "is given, and this is a simulation"


@_row(
    "masks whose trustees are on the host's machine",
    "`train` starts the trustees beside the controller, so the owner of the machine can remove the masks",
    "use `barnraise serve`, and invite people as trustees who do not share what they hold",
    warning=True,
)
def _own_trustees(case: Case) -> Found:
    section = section_of(case)
    if section is not None and case.purpose is TRAIN:
        yield (*PATH, "trustees"), f"is {section.trustees}, and this machine has them all"


@_row(
    "masked updates in a codec that leaves elements out",
    "which elements an update has is seen beside the masks, and sums need the same elements of all",
    f"set exchange.compression: {either(LOSSLESS)}; privacy.secure_aggregation.value_bits sets the bits of an element",
)
def _codec(case: Case) -> Found:
    if section_of(case) is not None and case.compression.name not in LOSSLESS:
        yield ("exchange", "compression"), f"is {case.compression.name}, but updates are masked"


@_row(
    "masked updates of ranges of the parameters",
    "sums need the same elements of all",
    "leave exchange.fragments 1",
)
def _fragments(case: Case) -> Found:
    if section_of(case) is not None and case.exchange.fragments > 1:
        yield ("exchange", "fragments"), f"is {case.exchange.fragments}, but updates are masked"


@_row(
    "masked sums of more nodes than the run has",
    "no version could ever be made",
    "lower privacy.secure_aggregation.least, or add workers",
)
def _too_few_nodes(case: Case) -> Found:
    try:
        masks = masking_of(case.run_file, case.rule)
    except InputError:
        return  # told by the row about its terms
    if masks is not None and case.num_nodes is not None and masks.least > case.num_nodes > 0:
        yield (*PATH, "least"), f"a sum is of {masks.least} nodes or more, but the run has {case.num_nodes}"


@_row(
    "one masked sum under a rule that reads each update",
    "the controller knows the sum of all, which is one row",
    "leave privacy.secure_aggregation.group out, or choose a rule that needs a sum alone",
)
def _one_group(case: Case) -> Found:
    section = section_of(case)
    if section is not None and section.group == "all" and case.rule.needs == "rows":
        yield (*PATH, "group"), f"is all, but {rule_name(case)} reads each update"


@_row(
    "masked updates under a rule that remembers nodes",
    "no update is known by its node",
    "choose a rule without memory",
)
def _memory(case: Case) -> Found:
    if section_of(case) is not None and case.rule.keeps:
        yield ("aggregation", "rule"), f"{rule_name(case)} keeps vectors of nodes, but updates are masked"


@_row(
    "checks of single updates that are masked",
    "the controller reads no single update",
    "leave them 0: groups with a robust rule limit what a node can do (privacy.secure_aggregation.group)",
)
def _checks(case: Case) -> Found:
    if section_of(case) is not None:
        yield from checks_of_updates(case, "masked")


@_row(
    "masks over stateless tasks",
    "whoever has a task's rows can compute its update again, and the host has them",
    "set training.tasks: stateful",
)
def _stateless(case: Case) -> Found:
    if section_of(case) is not None and case.training.tasks == STATELESS and not keeps_rows_home(case.run_file):
        yield ("training", "tasks"), f"is {STATELESS} on the host's own rows, but updates are masked"


@_row(
    "masks over rows of the host",
    "the host has the rows, so that masks hide from it which update a node made of them, and little else",
    "add differential privacy where rows need more than that",
    warning=True,
)
def _own_rows(case: Case) -> Found:
    stateful = case.training.tasks != STATELESS
    if section_of(case) is not None and stateful and not keeps_rows_home(case.run_file):
        yield PATH, f"is given, but data.kind is {case.run_file.data.kind}"


@_row(
    "masks without a limit where steps have any length",
    "an element of an update saturates at the limit, which the learning rate gives for adaptive optimizers alone",
    "give privacy.secure_aggregation.limit: a magnitude that elements of an update rarely reach",
)
def _limit(case: Case) -> Found:
    section = section_of(case)
    if section is not None and section.limit is None and not INNER.entry(case.inner.name).declares.adaptive:
        yield (*PATH, "limit"), f"is not given, but training.inner_optimizer is {case.inner.name}"


@_row(
    "masks over error feedback",
    "a residual would carry parts of several tasks' updates, which one weight cannot stand for",
    "leave exchange.error_feedback out: rounding to the ring is right in the mean",
)
def _feedback(case: Case) -> Found:
    if section_of(case) is not None and case.exchange.error_feedback:
        yield ("exchange", "error_feedback"), "is true, but updates are masked"
