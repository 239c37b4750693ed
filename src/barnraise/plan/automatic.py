"""What a run file leaves to barnraise that hangs on who takes part: the aggregation rule. Chosen before all else, so
that a plan, and the run file that a run keeps, say what it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnraise.aggregation.defaults import AUTOMATIC_F, DEFENDED, GATE_ROWS, TRUSTING
from barnraise.config.problems import Problem
from barnraise.config.schema import RunFile, TrainingSection
from barnraise.plan import suggest
from barnraise.plan.attacks import attacks_of
from barnraise.plan.choices import AUTO
from barnraise.plan.purpose import SERVE, Purpose
from barnraise.plan.table import either


def settled(run_file: RunFile, purpose: Purpose) -> tuple[RunFile, str]:
    """`run_file` with a rule in place of `auto`, and why that one; empty where the file names its rule."""
    training = run_file.training
    if training.aggregation_rule != AUTO:
        return run_file, ""
    if training.aggregation_f == 0:
        chosen, why = _trusting(training), "aggregation_f is 0"
    elif why := next(_suspicions(run_file, purpose), ""):
        gated = run_file.controller.evaluated_by == "controller"
        chosen = defended(training, gated=gated)
    else:
        chosen, why = _trusting(training), "all workers are the host's own"
    return run_file.model_copy(update={"training": chosen}), why


def defended(training: TrainingSection, *, gated: bool = True) -> TrainingSection:
    """`training` with the rule that is taken where somebody may lie, and with the loss gate if it may be `gated`.

    Who says how many may lie wants no version that does not withstand them; else too few nodes are no obstacle.
    """
    changes: dict[str, object] = {"aggregation_rule": list(DEFENDED)}
    if training.loss_gate is None and gated:
        changes["loss_gate"] = GATE_ROWS
    if not _says_how_many(training):
        changes["aggregation_f"] = AUTOMATIC_F
        changes["aggregation_fallback"] = training.aggregation_fallback or TRUSTING
    elif training.aggregation_f is None and "f" not in training.aggregation_options:
        changes["aggregation_f"] = AUTO
    return training.model_copy(update=changes)


def automatic_problems(run_file: RunFile) -> Iterator[Problem]:
    """Keys that tell of liars, and not enough to choose by."""
    if run_file.training.aggregation_rule == AUTO and run_file.training.trim_ratio is not None:
        trimming = either(suggest.rules_with("trim_ratio"))
        text = f"counts for a rule that trims, but aggregation_rule is {AUTO}; name one ({trimming}), or give"
        yield Problem(("training", "trim_ratio"), f"{text} aggregation_f: {run_file.training.trim_ratio:g} instead")


def _trusting(training: TrainingSection) -> TrainingSection:
    return training.model_copy(update={"aggregation_rule": TRUSTING})


def _says_how_many(training: TrainingSection) -> bool:
    return bool(training.aggregation_f or training.believed_liars or "f" in training.aggregation_options)


def _suspicions(run_file: RunFile, purpose: Purpose) -> Iterator[str]:
    """Why somebody may lie."""
    if _says_how_many(run_file.training):
        yield "the run file says that some may lie"
    for _, name, _ in attacks_of(run_file):
        yield f"{name} attacks"
    if purpose is SERVE:
        yield "strangers may join"
