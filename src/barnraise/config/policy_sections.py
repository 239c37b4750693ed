"""The sections of a run file about how contributions travel, become versions, and are judged."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from barnraise.config.section import Section
from barnraise.config.values import (
    Attackers,
    Codec,
    DownlinkCodec,
    Options,
    OuterOptimizer,
    Positive,
    Rule,
    Share,
    Text,
    Weighting,
)


class ExchangeSection(Section):
    """The payloads between a worker and the controller: their compression, fragments and residuals."""

    compression: Codec = Field(default="none", description="Codec of contributions.")
    compression_ratio: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="Share that a sparse codec keeps; its own default when not given."
    )
    compression_options: Options = Field(default_factory=dict, description="Further options of the codec.")
    auto_tune: bool = Field(
        default=True,
        description="Let a node send a larger share (up to 16 times compression_ratio) where its link allows it, and "
        "send by turns (up to 16 times the given fragments, with error_feedback_keep: 1, a rule that a single node "
        "suffices for and an outer optimizer without moments) or take more local steps where its link is slow, so that "
        "exchanges hide behind computation.",
    )
    error_feedback: bool | None = Field(
        default=None,
        description="Send later what compression left out. When not given, it is on for stateful tasks.",
    )
    error_feedback_decay: Share = Field(default=1.0, description="Share of the residual that survives a round.")
    error_feedback_keep: Share = Field(
        default=0.0,
        description="Share of its own residual that a worker trains on with: 1 keeps its progress until it is sent.",
    )
    downlink_compression: DownlinkCodec = Field(
        default="none", description="Codec of published versions: one that decodes to the same bits everywhere."
    )
    downlink_options: Options = Field(default_factory=dict, description="Options of the downlink codec.")
    fragments: int = Field(
        default=1,
        ge=1,
        le=1024,
        description="Ranges of the parameters that take turns: each task submits one of them (Streaming DiLoCo), so "
        "that bytes flow evenly. Needs error_feedback_keep: 1.",
    )
    overlap: bool = Field(default=True, description="Train the next task while a contribution is uploaded.")
    merge_lerp: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        default=None,
        description="Share of its own parameters that a worker keeps when it applies a version; when not given, 0.5 "
        "where exchanges overlap with training, else 0.",
    )


class AggregationSection(Section):
    """How contributions become versions: the rule, how many nodes a version has, and the outer optimizer."""

    rule: Literal["auto"] | Rule | Annotated[list[Rule], Field(min_length=1, max_length=8)] = Field(
        default="auto",
        description="How the slots of a buffer become one update; a list is a chain of rules that prepare the slots "
        "and one that ends it. `auto` is a mean where all workers are the host's own and none of them attacks, and a "
        "robust chain for 0.3 of a version's nodes where strangers may join (`serve`), where a worker of the run file "
        "attacks, or where f or trust.believed_liars are given; `check` says which.",
    )
    f: Attackers | Literal["auto"] | None = Field(
        default=None,
        description="Byzantine nodes that a robust rule must withstand: a number, or a share of the nodes of a "
        "version, rounded down to the number that the rule withstands with these nodes. With a share, each version "
        "has enough nodes to withstand one. `auto` is a share of 0.3; with trust.believed_liars K is then as large "
        "as trust.liar_odds takes.",
    )
    trim_ratio: Annotated[float, Field(gt=0, lt=0.5)] | None = Field(
        default=None,
        description="Share of the contributions that a rule which trims drops a side; its own default when not given.",
    )
    fallback: Rule | None = Field(
        default=None,
        description="The rule for versions of fewer nodes than the rule needs. While enough nodes keep pace "
        "there are no such versions. When not given, the run waits for enough nodes.",
    )
    options: Options = Field(default_factory=dict, description="Further options of the aggregation rule.")
    buffer_size: Annotated[int, Field(ge=1, le=1_000_000)] | Literal["auto"] = Field(
        default="auto", description="Distinct nodes whose contributions close a version (K)."
    )
    normalize_steps: bool = Field(
        default=False,
        description="Scale each contribution to training.local_steps steps and let nodes weigh alike, however many "
        "tokens they trained on (FedNova).",
    )
    outer_optimizer: OuterOptimizer = Field(
        default="sgd", description="What turns the aggregate into the next version."
    )
    outer_learning_rate: Positive | None = Field(
        default=None, description="Rate of the outer optimizer; its own default when not given."
    )
    outer_momentum: Share | None = Field(
        default=None, description="Momentum of the outer optimizer, where it takes one; its own default when not given."
    )
    outer_weighting: Literal["share", "full"] = Field(
        default="share",
        description="Asynchronous mode: move a version by its nodes' share of all work (steady with any number of "
        "workers), or by their whole mean (as for an outer optimizer that divides by itself).",
    )
    outer_options: Options = Field(default_factory=dict, description="Further options of the outer optimizer.")


class StalenessSection(Section):
    """How old the base of a contribution may be in asynchronous mode, and what age does to its weight."""

    max: int = Field(default=50, ge=0, le=1_000_000, description="Largest staleness of a node of median speed.")
    adaptive: bool = Field(default=True, description="Divide the bound by a node's speed over the median.")
    min: int = Field(default=5, ge=0, le=1_000_000, description="The adaptive bound is never below this.")
    max_multiplier: float = Field(
        default=10.0, ge=1, le=1e6, description="The adaptive bound is never above max times this."
    )
    weighting: Weighting = Field(
        default="constant",
        description="How staleness lowers a contribution's weight, and how far its version moves.",
    )


class TrustSection(Section):
    """How many nodes may lie, and how the controller looks for them."""

    believed_liars: Annotated[float, Field(ge=0, lt=0.5)] | None = Field(
        default=None, description="Share of the nodes that may lie: `check`, `status` tell how likely f is exceeded."
    )
    liar_odds: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=1e-6, description="With aggregation.f `auto`: a version's probability of more liars than f, at most."
    )
    unguaranteed: bool = Field(
        default=False,
        description="Make versions of as few nodes as the rule can be computed from, where its guarantee against liars "
        "does not hold any more. `check`, `status` and the report say so.",
    )
    audits: Annotated[float, Field(ge=0, le=0.5)] = Field(
        default=0.0,
        description="Share of the contributions that another node repeats; the ledger then says how far apart both "
        "results are. No node knows beforehand which ones.",
    )
    scores: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0,
        description="Share of the contributions that the controller scores: it compares how far they lower the loss "
        "on the rows of their task and on other rows. A node whose contributions lower it on their own rows no more "
        "than on others, too often for chance, gets no more tasks. The controller scores each contribution of a new "
        "or suspected node.",
    )
    loss_gate: Annotated[int, Field(ge=0, le=4096)] | None = Field(
        default=None,
        description="Training rows on which the controller compares what a version does to the loss with and without a "
        "node, before it is made; fewer than half of its nodes are left out if it is better without them. 0: no "
        "gate. When not given, 64 where `aggregation.rule: auto` comes to the robust chain and the controller has the "
        "model, else 0.",
    )
    max_update_norm: Positive | None = Field(
        default=None,
        description="Refuse contributions of a larger norm. When not given, contributions that are longer than the "
        "optimizer, the learning rate and the steps can make them are shortened to that length.",
    )
    per_network: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        default=None,
        description="Most nodes that join by invites from one network (/24 of IPv4, /64 of IPv6), over the whole "
        "run; machines on the list of keys do not count.",
    )


class EvaluationSection(Section):
    """When, on what and by whom the held-out loss is measured."""

    times: int = Field(default=20, ge=1, le=10_000, description="Evaluations on held-out data over the run.")
    rows: int = Field(default=128, ge=1, le=1_000_000, description="Held-out rows an evaluation reads.")
    by: Literal["controller", "workers", "sites"] = Field(
        default="controller",
        description="The side that measures the held-out loss. With `workers`, nodes of two owners measure each row, "
        "if two owners are present, and the controller loads the model only when their results differ or no node "
        "measures. With `sites`, each site measures on its own held-out rows.",
    )
    metrics: Annotated[list[Text], Field(max_length=16)] = Field(
        default=[],
        description="Metrics of the held-out data besides the loss: perplexity, choice_accuracy, exact_match, formulas "
        "(data of kind sat), problem (the `evaluate` of a problem of your own), or a Python function as "
        "`package.module:function`. The controller measures them.",
    )
    metric_seconds: int = Field(
        default=600,
        ge=1,
        le=86_400,
        description="Most seconds that a Python function or a problem's `evaluate` may take as a metric; it is not "
        "called again once it takes longer.",
    )
    samples: int = Field(
        default=0,
        ge=0,
        le=16,
        description="Samples of the model's text at each evaluation, which are kept: greedy completions of the first "
        "held-out prompts.",
    )
    sample_tokens: int = Field(
        default=64, ge=1, le=1024, description="Most tokens of a sample; traces of formulas are written to their end."
    )
    prompts: Annotated[list[Text], Field(max_length=16)] = Field(
        default=[],
        description="Prompts to complete as samples, instead of held-out ones; with a chat template each is a user's "
        "message.",
    )
    sat_samples: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Traces that the model writes of each held-out formula at the end of a run (data of kind sat). "
        "From 2 on the checker chooses among them, as a second figure: the greedy one, the others drawn.",
    )
    sat_temperature: float = Field(
        default=0.7, ge=0.05, le=10.0, description="Temperature at which these traces are drawn, but for the first."
    )
    average: Share = Field(
        default=0.0,
        description="Evaluate and export an average of the versions that looks back over about this share of the run, "
        "instead of the newest version alone (0). Workers train on from the newest one.",
    )
