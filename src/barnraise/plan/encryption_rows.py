"""Compatibility rows about encrypted updates, which the controller can only add."""

from __future__ import annotations

from barnraise.aggregation.defaults import TRUSTING
from barnraise.config.encryption_sections import HomomorphicEncryptionSection
from barnraise.core.errors import InputError
from barnraise.plan.encryption import encryption_of
from barnraise.plan.mask_rows import LOSSLESS, checks_of_updates
from barnraise.plan.metrics import wanted_of
from barnraise.plan.purpose import LAB, SIMULATE, TRAIN
from barnraise.plan.table import STATELESS, Case, Found, Row, adding_to, either, rule_name
from barnraise.training.catalog import CATALOG as OUTER

PATH = ("privacy", "homomorphic_encryption")
B_ONLY = "b_only"
MEMORYLESS = [name for name, entry in OUTER.entries.items() if not entry.declares.moments]

ROWS: list[Row] = []
_row = adding_to(ROWS)


def section_of(case: Case) -> HomomorphicEncryptionSection | None:
    """Return the section about encryption, if the run file has one."""
    return case.run_file.privacy.homomorphic_encryption


@_row(
    "encryption with terms that cannot hold",
    "a sum of more updates than its noise allows cannot be decrypted",
    "or leave privacy.homomorphic_encryption out",
)
def _terms(case: Case) -> Found:
    try:
        encryption_of(case.run_file)
    except InputError as error:
        yield PATH, str(error)


@_row(
    "encryption of more than the matrices B of adapters",
    "parameters that do not begin at 0 would have to reach workers in clear, and products of averaged A and B are no "
    "averages; what travels in clear beside a ciphertext names tokens by itself",
    "set training.adapter: {kind: lora, train: b_only}",
)
def _adapters(case: Case) -> Found:
    adapter = case.training.adapter
    if section_of(case) is not None and (adapter is None or adapter.train != B_ONLY):
        said = "is not given" if adapter is None else f"has train: {adapter.train}"
        yield ("training", "adapter"), f"{said}, but updates are encrypted"


@_row(
    "encryption in a lab",
    "a lab's workers join by invites, without key files",
    "run it with `barnraise train`, or leave privacy.homomorphic_encryption out",
)
def _lab(case: Case) -> Found:
    if section_of(case) is not None and case.purpose is LAB:
        yield PATH, "is given, and this is a lab"


@_row(
    "encryption in a simulation",
    "a simulation has no keys",
    "read its figures as those of updates in clear",
    warning=True,
)
def _simulation(case: Case) -> Found:
    if section_of(case) is not None and case.purpose is SIMULATE:
        yield PATH, "is given, and this is a simulation"


@_row(
    "local workers of an encrypted run without their key",
    "they can neither encrypt nor read the model",
    "give the path that `barnraise keys make` wrote; on a host that must not read updates, leave out workers and serve",
)
def _key_file(case: Case) -> Found:
    section = section_of(case)
    if section is not None and case.purpose is TRAIN and not section.key_file:
        yield (*PATH, "key_file"), "is not given, but workers of this machine train"


@_row(
    "a key file in a run file that a host serves",
    "the host of a run reads its run file, and a key beside it opens every update",
    "leave it out, and give it to workers: barnraise join INVITE --key FILE",
)
def _served(case: Case) -> Found:
    section = section_of(case)
    if section is not None and not case.purpose.local and case.purpose is not SIMULATE and section.key_file:
        yield (*PATH, "key_file"), f"is {section.key_file}, but this machine hosts the run"


@_row(
    "codecs of encrypted updates and versions",
    "a codec that rounds or leaves out would change digits of a ciphertext",
    f"set it {either(LOSSLESS)}",
)
def _codecs(case: Case) -> Found:
    if section_of(case) is None:
        return
    for name, choice in (("compression", case.compression), ("downlink_compression", case.downlink)):
        if choice.name not in LOSSLESS:
            yield ("exchange", name), f"is {choice.name}, but updates are encrypted"


@_row(
    "encrypted updates of ranges of the parameters",
    "a ciphertext is of all values",
    "leave exchange.fragments 1",
)
def _fragments(case: Case) -> Found:
    if section_of(case) is not None and case.exchange.fragments > 1:
        yield ("exchange", "fragments"), f"is {case.exchange.fragments}, but updates are encrypted"


@_row(
    "encrypted updates under another rule than the mean",
    "the controller can add ciphertexts, and neither compare nor weigh them",
    f"set aggregation.rule: {TRUSTING}, or privacy.secure_aggregation, whose groups a robust rule can read",
)
def _rule(case: Case) -> Found:
    if section_of(case) is not None and rule_name(case) != TRUSTING:
        yield ("aggregation", "rule"), f"{rule_name(case)} reads updates, but they are encrypted"


@_row(
    "encrypted updates under an outer optimizer with moments",
    "a moment is a factor times an earlier sum, and the controller multiplies no ciphertexts",
    f"set aggregation.outer_optimizer: {either(MEMORYLESS)}",
)
def _outer(case: Case) -> Found:
    if section_of(case) is not None and case.outer.name not in MEMORYLESS:
        yield ("aggregation", "outer_optimizer"), f"is {case.outer.name}, but updates are encrypted"


@_row(
    "a fleet's momentum in an encrypted run",
    "workers decrypt versions, not the movement between them",
    "leave training.version_momentum 0",
)
def _momentum(case: Case) -> Found:
    if section_of(case) is not None and case.training.version_momentum:
        yield ("training", "version_momentum"), f"is {case.training.version_momentum:g}, but updates are encrypted"


@_row(
    "an average of encrypted versions",
    "the controller multiplies no ciphertexts",
    "leave evaluation.average 0",
)
def _average(case: Case) -> Found:
    if section_of(case) is not None and case.evaluation.average:
        yield ("evaluation", "average"), f"is {case.evaluation.average:g}, but versions are encrypted"


@_row(
    "checks of single updates that are encrypted",
    "the controller reads no update",
    "leave them 0, and give the key to members that you trust",
)
def _checks(case: Case) -> Found:
    if section_of(case) is not None:
        yield from checks_of_updates(case, "encrypted")


@_row(
    "a controller that measures an encrypted model",
    "the controller has no model",
    "set evaluation.by: workers, or sites where data.kind is site",
)
def _evaluation(case: Case) -> Found:
    if section_of(case) is not None and case.evaluation.by == "controller":
        yield ("evaluation", "by"), "is controller, but versions are encrypted"


@_row(
    "metrics and samples of an encrypted model",
    "the controller computes them, and it has no model",
    "leave evaluation.metrics and evaluation.prompts out: try the exported model",
)
def _metrics(case: Case) -> Found:
    if section_of(case) is not None and wanted_of(case.run_file).any:
        yield ("evaluation", "metrics"), "or prompts are given, but versions are encrypted"


@_row(
    "encryption and masks together",
    "either hides single updates from the controller, and a sum of ciphertexts takes no masks",
    "leave one of them out",
)
def _masks(case: Case) -> Found:
    if section_of(case) is not None and case.run_file.privacy.secure_aggregation is not None:
        yield PATH, "is given beside privacy.secure_aggregation"


@_row(
    "encryption of stateless tasks",
    "a stateless task begins with published moments, which the controller cannot combine",
    "set training.tasks: stateful",
)
def _stateless(case: Case) -> Found:
    if section_of(case) is not None and case.training.tasks == STATELESS:
        yield ("training", "tasks"), f"is {STATELESS}, but updates are encrypted"


@_row(
    "encryption over rows of the host",
    "the host has the rows: encryption keeps from it which update a node made of them, and the model",
    "read the threat model: it keeps rows from workers that fetch them no more than a run in clear",
    warning=True,
)
def _own_rows(case: Case) -> Found:
    if section_of(case) is not None and str(case.run_file.data.kind) != "site":
        yield PATH, f"is given, but data.kind is {case.run_file.data.kind}"
