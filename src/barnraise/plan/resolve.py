"""From a valid run file to a plan that can work: policies with checked options, and compatible settings.

Reads catalogs only, so it answers in milliseconds; this machine is not examined (`preflight` does that).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from barnraise.compression.catalog import CATALOG as CODECS
from barnraise.compression.catalog import RESIDUAL
from barnraise.config.document import Document
from barnraise.config.faults import Planned, planned
from barnraise.config.load import located
from barnraise.config.privacy_sections import DifferentialPrivacySection
from barnraise.config.problems import Problem, refusal
from barnraise.config.schema import RunFile
from barnraise.models.exchange.record import Exchange
from barnraise.plan.attacks import attack_problems
from barnraise.plan.automatic import automatic_problems, settled
from barnraise.plan.batch_size import settled_batch
from barnraise.plan.choices import AUTO, Aggregation, Choice, choose
from barnraise.plan.compatibility import judge, task_tokens
from barnraise.plan.dataset import data_problems
from barnraise.plan.encryption import EncryptionTerms, encryption_of
from barnraise.plan.exchange import exchange_name
from barnraise.plan.links import link_problems
from barnraise.plan.masking import Masking, masking_of
from barnraise.plan.names import name_problems
from barnraise.plan.privacy import PrivacyTerms, budget_of, settled_noise
from barnraise.plan.purpose import SERVE, SIMULATE, TRAIN, Purpose
from barnraise.plan.table import STATELESS, Case, feeds_back
from barnraise.training.catalog import CATALOG as OUTER
from barnraise.training.catalog import INNER
from barnraise.training.schedule import Schedule
from barnraise.wire.manifest import ExchangeName

RULE, BATCH_SIZE = "aggregation.rule", "training.batch_size"
"""Keys that a run file may leave open."""


@dataclass(frozen=True)
class Plan:
    """A run that can work: its file, its policies with all their options, and warnings.

    `compression` is the codec of contributions, `downlink` that of published versions; `staleness` has a bound of 0 in
    synchronous mode; `inner` holds the options sent to workers; `schedule` multiplies the learning rate; `reasons` says
    why a choice was made, by the key that the file left open.
    """

    run_file: RunFile
    purpose: Purpose
    compression: Choice
    downlink: Choice
    aggregation: Aggregation
    staleness: Choice
    outer: Choice
    inner: Choice
    schedule: Schedule
    scheduler: Choice
    warnings: tuple[Problem, ...]
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def asynchronous(self) -> bool:
        return self.run_file.controller.use_async_training

    @property
    def rule_text(self) -> str:
        """Return the aggregation rule, and the reason for it."""
        why = self.reasons.get(RULE)
        return f"{self.aggregation}{f' ({AUTO}, since {why})' if why else ''}"

    @property
    def overlap(self) -> bool:
        """Return whether workers train on while they upload: never in synchronous mode."""
        return self.asynchronous and self.run_file.exchange.overlap

    @property
    def stateless(self) -> bool:
        """Return whether tasks begin with published state alone."""
        return self.run_file.training.tasks == STATELESS

    @property
    def error_feedback(self) -> bool:
        """Return whether workers keep the parts that compression leaves out."""
        return feeds_back(self.run_file)

    @property
    def private(self) -> DifferentialPrivacySection | None:
        """Return the run's differential privacy; None without."""
        return self.run_file.privacy.differential_privacy

    @property
    def budget(self) -> PrivacyTerms | None:
        """Return the budget of differential privacy; None where the run keeps none."""
        return budget_of(self.run_file)

    @property
    def shares(self) -> bool:
        """Return whether second moments are published behind the parameters."""
        return self.stateless and INNER.entry(self.inner.name).declares.seconds

    def exchange(self, model: Mapping[str, Any], name: ExchangeName | None = None) -> Exchange:
        """Return what travels for a model of this config: by the manifest's `name`, else by the run file."""
        found = Exchange.of(model, exchange_name(self.run_file) if name is None else name, moments=self.shares)
        if self.encryption is None:
            return found
        from barnraise.privacy.encryption.digits import num_digits  # with numpy

        return replace(found, digits=num_digits(found.trained))

    @property
    def merge_lerp(self) -> float:
        """Return the share of its own parameters that a worker keeps when it takes a version in."""
        given = self.run_file.exchange.merge_lerp
        own = self.overlap and not self.stateless
        return given if given is not None else OVERLAPPED_LERP if own else 0.0

    @property
    def ratios(self) -> tuple[float, ...]:
        """Return the shares that contributions may be compressed at, ascending; empty where there is no choice."""
        ratio = self.compression.options.get("ratio")
        if ratio is None or not self.run_file.exchange.auto_tune:
            return ()
        return tuple(ratio * 2**rung for rung in range(RUNGS) if rung == 0 or ratio * 2**rung <= DENSEST)

    @property
    def fragments(self) -> tuple[int, ...]:
        """Return the numbers of ranges into which the parameters may be cut for exchange, the smallest first.

        Larger numbers than given are for slow uplinks, where they lose nothing: waiting ranges are trained on, the
        aggregate of a range does not need a certain number of nodes, and no momentum follows the versions.
        """
        training, exchange = self.run_file.training, self.run_file.exchange
        kept = self.error_feedback and exchange.error_feedback_keep == 1.0
        simple = self.aggregation.sound_nodes <= 1 and not OUTER.entry(self.outer.name).declares.moments
        simple = simple and self.encryption is None
        finer = RUNGS if exchange.auto_tune and kept and simple and not training.version_momentum else 1
        return tuple(exchange.fragments * 2**step for step in range(finer))

    @property
    def contributions(self) -> tuple[Choice, ...]:
        """Return the codecs of contributions, but for the last: one for each of `ratios`, or the one."""
        name, options = self.compression.name, self.compression.options
        return tuple(Choice(name, {**options, "ratio": ratio}) for ratio in self.ratios) or (self.compression,)

    @property
    def last_compression(self) -> Choice | None:
        """Return the codec in which a worker flushes its residual when it leaves or the run ends, if it has one."""
        left_out = CODECS.entry(self.compression.name).declares.sparse or self.fragments[-1] > 1
        if not (left_out and self.error_feedback) or self.private is not None:
            return None  # with differential privacy no residual is sent by itself
        return Choice(RESIDUAL, CODECS.resolve(RESIDUAL, {}))

    @property
    def masking(self) -> Masking | None:
        """Return the terms of masked sums; None where updates travel in clear, as in a simulation."""
        return None if self.purpose is SIMULATE else masking_of(self.run_file, self.aggregation)

    @property
    def encryption(self) -> EncryptionTerms | None:
        """Return the terms of encrypted updates; None where they are not encrypted, as in a simulation."""
        return None if self.purpose is SIMULATE else encryption_of(self.run_file)

    def hidden_bytes(self, exchange: Exchange) -> int | None:
        """Return the size of a masked or encrypted update; None where updates travel in clear."""
        if self.masking is not None:
            return self.masking.terms(exchange.exchanged).payload_bytes
        return self.encryption.agreement(exchange.trained).most_bytes if self.encryption else None

    @property
    def buffer_size(self) -> int | None:
        """Return K as given, None for automatic."""
        size = self.run_file.aggregation.buffer_size
        return None if size == "auto" else size

    @property
    def faults(self) -> tuple[Planned, ...]:
        """Return the planned faults, each seeded by run.seed and its place unless it has its own seed."""
        seed = self.run_file.run.seed
        return tuple(planned(section, seed + index) for index, section in enumerate(self.run_file.faults))

    @property
    def task_tokens(self) -> int:
        """Return the token positions in a usual task."""
        return task_tokens(self.run_file)


def resolve(
    run_file: RunFile, *, purpose: Purpose | None = None, nodes: int | None = None, document: Document | None = None
) -> Plan:
    """Return the plan of `run_file`; RunFileError lists every reason why there is none.

    `purpose` is TRAIN where the run file lists local workers and SERVE otherwise, unless given. `nodes` is the number
    of workers if it is known. `document` lends its name and lines to the message.
    """
    plan, problems = examine(run_file, purpose=purpose, nodes=nodes)
    if plan is None:
        raise refusal(document.name, located(problems, document)) if document else refusal("run file", problems)
    return plan


def examine(
    run_file: RunFile, *, purpose: Purpose | None = None, nodes: int | None = None
) -> tuple[Plan | None, list[Problem]]:
    """Return (plan, []) or (None, problems)."""
    problems: list[Problem] = []
    purpose = purpose or (TRAIN if run_file.workers else SERVE)
    nodes = len(run_file.workers) if purpose.local and run_file.workers else nodes
    problems += automatic_problems(run_file)
    run_file, why_rule = settled(run_file, purpose)
    run_file, unmet = settled_noise(run_file)
    problems += unmet
    problems += [*name_problems(run_file), *link_problems(run_file), *data_problems(run_file)]
    problems += attack_problems(run_file)
    run_file, why_batch = (run_file, "") if problems else settled_batch(run_file, purpose)
    choices = choose(run_file, problems)
    errors, warnings = judge(Case(run_file, choices, purpose, nodes))
    problems += errors
    if problems:
        return None, problems
    reasons = {key: why for key, why in ((RULE, why_rule), (BATCH_SIZE, why_batch)) if why}
    return Plan(run_file, purpose, **vars(choices), warnings=tuple(warnings), reasons=reasons), []


RUNGS = 5
OVERLAPPED_LERP = 0.5
"""As in Streaming DiLoCo (Douillard et al., 2025, section 2.3). docs/research/experiments.md has its gain."""

DENSEST = 0.25
"""The densest that tuning goes: sparse codecs do not pay beyond."""


def payload_bytes(choice: Choice, num_values: int) -> int:
    """Return the size of the largest payload of a codec for a vector of `num_values` elements."""
    size: int = CODECS.entry(choice.name).declares.max_bytes(choice.options, num_values)
    return size
