"""The run file: every key, its type, range, default and meaning.

One pydantic model a section. `docs/reference/run-file.md` and the JSON Schema are generated from these models, so a
key's description stands here and nowhere else. Names of policies do not: a key says of which family its name is, and
the catalogs above say what there is. What depends on them, or on several keys, is judged by `barnraise.plan`; other
spellings of a key are in `barnraise.config.aliases`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from barnraise.config.data_sections import SatData, TextData
from barnraise.config.section import Section
from barnraise.config.trial_sections import FaultSection, NetworkSection, WorkerSection
from barnraise.config.values import (
    MAX_COUNT,
    Architecture,
    Attackers,
    Codec,
    Count,
    Decay,
    DownlinkCodec,
    InnerOptimizer,
    Interval,
    Name,
    Options,
    OuterOptimizer,
    Positive,
    Precision,
    Rule,
    Schedule,
    Scheduler,
    Share,
    Text,
    Weighting,
)


class Run(Section):
    """What the run is called, where it lives, and what makes it repeatable."""

    name: Name = Field(default="run", description="Names the run directory together with the time of its start.")
    seed: int = Field(default=0, ge=0, lt=2**31, description="Seeds model initialisation, data order and simulation.")
    dir: Text = Field(default="runs", description="Folder in which the run directory is made.")


class Model(Section):
    """The model to train: from scratch by architecture and config, or a local Hugging Face checkpoint folder."""

    architecture: Architecture | None = Field(
        default=None, description="A Hugging Face model type; those named are tested."
    )
    config: dict[str, Any] = Field(
        default_factory=dict,
        description="Keys of the architecture's config (hidden_size, num_layers, num_heads are understood by all); "
        "what it leaves out is derived from the data, dropout is 0. Beside a `path` it may set dropout alone.",
    )
    path: Text | None = Field(
        default=None,
        description="A local checkpoint folder (safetensors) instead of an architecture. Sizes, dropout and tokenizer "
        "are those of the folder.",
    )


class ControllerSection(Section):
    """Where the controller listens, and how it closes versions."""

    host: Text = Field(default="127.0.0.1", description="Address to listen on; workers must be able to dial it.")
    port: int = Field(default=0, ge=0, le=65535, description="TCP port; 0 takes a free one.")
    use_zmq: bool = Field(
        default=True, description="Carry messages over ZMQ with CURVE; false is XML-RPC over HTTP alone, on `port`."
    )
    http_port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        default=None,
        description="Listen on this TCP port too, with XML-RPC over HTTP, for workers whose network lets no ZMQ out; "
        "0 takes a free one, null is off.",
    )
    use_async_training: bool = Field(default=True, description="Bounded staleness; false is synchronous mode.")
    max_staleness: int = Field(
        default=50, ge=0, le=1_000_000, description="Largest staleness of a node of median speed."
    )
    adaptive_staleness: bool = Field(default=True, description="Divide the bound by a node's speed over the median.")
    min_staleness: int = Field(default=5, ge=0, le=1_000_000, description="The adaptive bound is never below this.")
    max_staleness_multiplier: float = Field(
        default=10.0, ge=1, le=1e6, description="The adaptive bound is never above max_staleness times this."
    )
    staleness_weighting: Weighting = Field(
        default="constant",
        description="How staleness lowers a contribution's weight, and how far its version moves.",
    )
    buffer_size: Annotated[int, Field(ge=1, le=1_000_000)] | Literal["auto"] = Field(
        default="auto", description="Distinct nodes whose contributions close a version (K)."
    )
    sync_window: Positive = Field(
        default=60.0,
        description="Synchronous mode: seconds that the slower half of the nodes may lag behind the faster half.",
    )
    sync_longest_wait: Positive = Field(
        default=600.0, description="Synchronous mode: seconds after which a round closes."
    )
    heartbeat: Interval = Field(default=0.4, description="Seconds between heartbeats in a small fleet.")
    lease: Interval = Field(
        default=1.2,
        description="Seconds of silence after which a node counts as gone, at least (small fleet).",
    )
    longest_lease: Interval = Field(
        default=30.0,
        description="The same for a node whose link is slow or uneven, at most; its frames say how uneven.",
    )
    durability: Literal["local", "standby"] = Field(
        default="local",
        description="When a contribution is acknowledged: once it is on the controller's disk, or on a standby's too. "
        "Without a standby, acknowledgements wait for one then, for standby_patience.",
    )
    standby_lease: Interval = Field(
        default=3.0,
        description="Seconds of the controller's silence after which its standby listens to the workers. It takes over "
        "once more than half of them have come to it.",
    )
    standby_patience: float = Field(
        default=30.0,
        ge=0.0,
        le=1e9,
        description="With durability standby, seconds without one after which contributions are acknowledged once they "
        "are on the controller's disk, until a standby follows again.",
    )
    checkpoint_seconds: Positive = Field(
        default=60.0,
        description="Seconds between checkpoints, at most. One is taken earlier when the contributions since the last "
        "one take four times the room of a checkpoint, and 32 MiB at least.",
    )
    keep_checkpoints: int = Field(default=2, ge=1, le=1000, description="How many checkpoints are kept.")
    keep_payloads: bool = Field(
        default=False,
        description="Keep all payloads, so that `verify` can make every version again; else only those that no "
        "checkpoint covers are kept for sure.",
    )
    evaluations: int = Field(default=20, ge=1, le=10_000, description="Evaluations on held-out data over the run.")
    evaluation_rows: int = Field(default=128, ge=1, le=1_000_000, description="Held-out rows an evaluation reads.")
    evaluated_by: Literal["controller", "workers"] = Field(
        default="controller",
        description="Who measures the held-out loss. Where workers do, nodes of two owners measure each row, as far as "
        "two are there, and the controller loads the model only when these differ or nobody measures.",
    )
    scheduler: Scheduler = Field(default="gale_shapley", description="How tasks are matched to nodes that ask.")
    scheduler_options: Options = Field(default_factory=dict, description="Further options of the scheduler.")
    max_update_norm: Positive | None = Field(
        default=None,
        description="Refuse contributions of a larger norm. When not given, contributions that are longer than the "
        "optimizer, the learning rate and the steps can make them are shortened to that length.",
    )
    per_network: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        default=None,
        description="Most nodes that come in by invites from one network (/24 of IPv4, /64 of IPv6), over the whole "
        "run; machines on the list of keys do not count.",
    )
    threads: int = Field(default=1, ge=1, le=1024, description="Compute threads of the controller.")


class TrainingSection(Section):
    """How workers train and how their contributions become versions."""

    tokens: Count = Field(
        default=2_000_000, ge=1, le=MAX_COUNT, description="Token positions to train on before the run ends."
    )
    batch_size: int = Field(default=8, ge=1, le=1 << 20, description="Rows a local step.")
    local_steps: int = Field(default=20, ge=1, le=100_000, description="Inner optimizer steps a task (H).")
    tasks: Literal["stateful", "stateless"] = Field(
        default="stateful",
        description="What a task begins with: the moments, the residual and the progress of its worker (stateful), or "
        "what is published alone, second moments included, so that anybody can do it again (stateless).",
    )
    fragments: int = Field(
        default=1,
        ge=1,
        le=1024,
        description="Ranges of the parameters that take turns: each task hands in one of them (Streaming DiLoCo), so "
        "that bytes flow evenly. Needs error_feedback_keep: 1.",
    )
    merge_lerp: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        default=None,
        description="Share of its own parameters that a worker keeps when it takes a version in; when not given, 0.5 "
        "where exchanges overlap with training, else 0.",
    )
    version_momentum: Share = Field(
        default=0.0,
        description="Share of its momentum that a worker gives up for the fleet's, which the versions that it takes in "
        "tell by their movement. At 1 a round costs less of the loss than with momentum of one's own.",
    )
    pace: Literal["fixed", "matched", "literal"] = Field(
        default="fixed",
        description="Local steps a node: H for all (fixed), H for the slowest and more for faster ones so that all "
        "finish together (matched, equation 7 with the node's speed), or equation 7 by the letter (literal).",
    )
    max_local_steps: int | None = Field(
        default=None, ge=1, le=100_000, description="Most local steps a task; 10 times local_steps when not given."
    )
    normalize_steps: bool = Field(
        default=False,
        description="Scale each contribution to local_steps steps and let nodes weigh alike, however many tokens they "
        "trained on (FedNova).",
    )
    proximal: float = Field(
        default=0.0, ge=0, le=1e6, description="Weight of the pull towards a task's start (FedProx's mu)."
    )
    learning_rate: Positive = Field(default=0.001, description="Peak rate of the inner optimizer.")
    schedule: Schedule = Field(default="constant", description="Learning rate over tokens.")
    warmup_tokens: Count = Field(default=0, ge=0, le=MAX_COUNT, description="Tokens over which the rate rises from 0.")
    final_rate: Share = Field(default=0.1, description="Rate at the end of the schedule, as a share of the peak.")
    inner_optimizer: InnerOptimizer = Field(default="adamw", description="What takes the local steps.")
    weight_decay: float = Field(
        default=0.01, ge=0, le=10, description="Weight decay of the inner optimizer, decoupled where it is adaptive."
    )
    betas: tuple[Decay, Decay] = Field(
        default=(0.9, 0.95), strict=False, description="Decays of the inner optimizer's two moments, where it has them."
    )
    momentum: Decay = Field(default=0.0, description="Momentum of the inner optimizer, where it takes one.")
    gradient_clip: Positive | None = Field(default=1.0, description="Clip each local gradient to this norm.")
    update_clip: Positive | None = Field(
        default=None,
        description="Scale each contribution down to this norm at most, as it is sent: with what error feedback adds.",
    )
    audits: Annotated[float, Field(ge=0, le=0.5)] = Field(
        default=0.0,
        description="Share of the contributions that another node does anew; the ledger then says how far apart they "
        "are. Which ones nobody knows beforehand.",
    )
    scores: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0,
        description="Share of the contributions of which the controller sees whether they do more for the loss on the "
        "rows that they were to be trained on than on others; whose do not, too often for chance, gets no more tasks. "
        "Who is new, or under suspicion, is looked at each time.",
    )
    loss_gate: Annotated[int, Field(ge=0, le=4096)] | None = Field(
        default=None,
        description="Training rows on which the controller compares what a version does to the loss with and without a "
        "node, before it is made; fewer than half of its nodes are left out if it is better without them. 0: no "
        "gate. When not given, 64 where `aggregation_rule: auto` comes to the robust chain and the controller has the "
        "model, else 0.",
    )
    precision: Precision = Field(default="float32", description="Autocast type of the workers.")
    overlap: bool = Field(default=True, description="Train the next task while a contribution is uploaded.")
    outer_optimizer: OuterOptimizer = Field(
        default="sgd", description="What turns the aggregate into the next version."
    )
    outer_learning_rate: Positive | None = Field(
        default=None, description="Rate of the outer optimizer; its own default when not given."
    )
    outer_weighting: Literal["share", "full"] = Field(
        default="share",
        description="Asynchronous mode: move a version by its nodes' share of all work (steady with any number of "
        "workers), or by their whole mean (as for an outer optimizer that divides by itself).",
    )
    outer_momentum: Share | None = Field(
        default=None, description="Momentum of the outer optimizer, where it takes one; its own default when not given."
    )
    outer_options: Options = Field(default_factory=dict, description="Further options of the outer optimizer.")
    average: Share = Field(
        default=0.0,
        description="Evaluate and export an average of the versions that looks back over about this share of the run, "
        "instead of the newest version alone (0). Workers train on from the newest one.",
    )
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
        description="Send later what compression left out. When not given, it is so where tasks are stateful.",
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
    aggregation_rule: Literal["auto"] | Rule | Annotated[list[Rule], Field(min_length=1, max_length=8)] = Field(
        default="auto",
        description="How the slots of a buffer become one update; a list is a chain of rules that prepare the slots "
        "and one that ends it. `auto` is a mean where all workers are the host's own and none of them attacks, and a "
        "robust chain for 0.3 of a version's nodes where strangers may join (`serve`), where a worker of the run file "
        "attacks, or where aggregation_f or believed_liars are given; `check` says which.",
    )
    aggregation_fallback: Rule | None = Field(
        default=None,
        description="The rule for versions of fewer nodes than aggregation_rule needs. While enough nodes keep pace "
        "there are no such versions. When not given, the run waits for enough nodes.",
    )
    aggregation_f: Attackers | Literal["auto"] | None = Field(
        default=None,
        description="Byzantine nodes a robust rule must withstand: so many, or a share of the nodes of a version, "
        "rounded down to what the rule withstands with these, of which no version has fewer than withstand one. `auto` "
        "is a share of 0.3; with believed_liars K is then as large as liar_odds takes.",
    )
    believed_liars: Annotated[float, Field(ge=0, lt=0.5)] | None = Field(
        default=None, description="Share of the nodes that may lie: `check`, `status` tell how likely f is exceeded."
    )
    liar_odds: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=1e-6, description="With aggregation_f `auto`: a version's probability of more liars than f, at most."
    )
    unguaranteed: bool = Field(
        default=False,
        description="Make versions of as few nodes as the rule can be computed from, where its guarantee against liars "
        "does not hold any more. `check`, `status` and the report say so.",
    )
    trim_ratio: Annotated[float, Field(gt=0, lt=0.5)] | None = Field(
        default=None,
        description="Share of the contributions that a rule which trims drops a side; its own default when not given.",
    )
    aggregation_options: Options = Field(default_factory=dict, description="Further options of the aggregation rule.")


class RunFile(Section):
    """The run file."""

    run: Run = Field(default_factory=lambda: Run())
    model: Model
    data: Annotated[TextData | SatData, Field(discriminator="kind")]
    controller: ControllerSection = Field(default_factory=lambda: ControllerSection())
    workers: Annotated[list[WorkerSection], Field(max_length=10_000)] = Field(
        default_factory=list, description="The local workers; `train` needs at least one, `serve` starts none."
    )
    training: TrainingSection = Field(default_factory=lambda: TrainingSection())
    network: NetworkSection = Field(default_factory=lambda: NetworkSection())
    faults: Annotated[list[FaultSection], Field(max_length=1000)] = Field(
        default_factory=list, description="Trials: what goes wrong, who joins, and when."
    )
