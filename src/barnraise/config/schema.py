"""The run file: every key, its type, range, default and meaning.

One pydantic model a section. `docs/reference/run-file.md` and the JSON Schema are generated from these models, so a
key's description is only here. Names of policies are not: a key says of which family its name is, and the catalogs
above list the names. Rules that depend on them, or on several keys, are in `barnraise.plan`; other spellings of a key
are in `barnraise.config.aliases`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from barnraise.config.data_sections import ChatData, InstructData, RowsData, SatData, TextData
from barnraise.config.part_sections import AdapterSection, PartSection, StopEarlySection
from barnraise.config.policy_sections import (
    AggregationSection,
    EvaluationSection,
    ExchangeSection,
    StalenessSection,
    TrustSection,
)
from barnraise.config.privacy_sections import PrivacySection
from barnraise.config.section import Section
from barnraise.config.site_sections import SiteData
from barnraise.config.trial_sections import FaultSection, NetworkSection, WorkerSection
from barnraise.config.values import (
    MAX_COUNT,
    USUAL_BATCH,
    Architecture,
    Count,
    Decay,
    InnerOptimizer,
    Interval,
    Name,
    Options,
    Positive,
    Precision,
    ProblemName,
    Schedule,
    Scheduler,
    Share,
    Text,
)
from barnraise.config.watch_sections import AlertsSection, DashboardSection, TracingSection


class Run(Section):
    """The run's name and folder, and the seed that makes it repeatable."""

    name: Name = Field(default="run", description="Names the run directory together with the time of its start.")
    seed: int = Field(default=0, ge=0, lt=2**31, description="Seeds model initialisation, data order and simulation.")
    dir: Text = Field(default="runs", description="Folder in which the run directory is made.")
    report_to: Annotated[list[Literal["tensorboard", "wandb", "mlflow", "trackio"]], Field(max_length=4)] = Field(
        default=[],
        description="Experiment trackers that get the run's figures while it works; their files are in its folder. "
        "W&B stays offline unless WANDB_MODE says otherwise.",
    )


class Model(Section):
    """The model to train: by architecture and config, from a local Hugging Face folder, or built by a problem."""

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
    problem: ProblemName | None = Field(
        default=None,
        description="What the model learns. When not given, it is what the architecture is usually trained on. One "
        "of an installed package or of a file builds its own model: then architecture, config and path are left out.",
    )
    problem_options: Options = Field(default_factory=dict, description="Options of the problem.")


class ControllerSection(Section):
    """Where the controller listens, how it hears of its nodes, and what it keeps."""

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
    scheduler: Scheduler = Field(default="gale_shapley", description="How tasks are matched to nodes that ask.")
    scheduler_options: Options = Field(default_factory=dict, description="Further options of the scheduler.")
    threads: int = Field(default=1, ge=1, le=1024, description="Compute threads of the controller.")


class TrainingSection(Section):
    """How workers train, and on how much."""

    tokens: Count = Field(
        default=2_000_000, ge=1, le=MAX_COUNT, description="Token positions to train on before the run ends."
    )
    batch_size: Annotated[int, Field(ge=1, le=1 << 20)] | Literal["auto"] = Field(
        default=USUAL_BATCH,
        description="Rows a local step; auto takes more where a worker's link is slow for its speed, so that it has "
        "enough to compute between two exchanges.",
    )
    local_steps: int = Field(default=20, ge=1, le=100_000, description="Inner optimizer steps a task (H).")
    tasks: Literal["stateful", "stateless"] = Field(
        default="stateful",
        description="The state that a task begins with: the moments, the residual and the progress of its worker "
        "(stateful), or published state alone, second moments included, so that any node can repeat the task "
        "(stateless).",
    )
    version_momentum: Share = Field(
        default=0.0,
        description="Share of its momentum that a worker gives up for the fleet's, which it derives from the "
        "movement of the versions that it applies. At 1 a round costs less of the loss than with momentum of one's "
        "own.",
    )
    pace: Literal["fixed", "matched", "literal"] = Field(
        default="fixed",
        description="Local steps a node: H for all (fixed), H for the slowest and more for faster ones so that all "
        "finish together (matched, equation 7 with the node's speed), or equation 7 by the letter (literal).",
    )
    max_local_steps: int | None = Field(
        default=None, ge=1, le=100_000, description="Most local steps a task; 10 times local_steps when not given."
    )
    proximal: float = Field(
        default=0.0, ge=0, le=1e6, description="Weight of the pull towards a task's start (FedProx's mu)."
    )
    learning_rate: Positive = Field(default=0.001, description="Peak rate of the inner optimizer.")
    schedule: Schedule = Field(default="constant", description="Learning rate over tokens.")
    warmup_tokens: Count = Field(default=0, ge=0, le=MAX_COUNT, description="Tokens over which the rate rises from 0.")
    final_rate: Share = Field(default=0.1, description="Rate at the end of the schedule, as a share of the peak.")
    inner_optimizer: InnerOptimizer = Field(default="adamw", description="The optimizer of the local steps.")
    weight_decay: float = Field(
        default=0.01, ge=0, le=10, description="Weight decay of the inner optimizer, decoupled where it is adaptive."
    )
    weight_decay_on: Literal["matrices", "all"] = Field(
        default="matrices",
        description="Parameters that weight decay applies to: matrices, embeddings among them, but no biases and "
        "weights of norms (matrices), or every parameter (all).",
    )
    betas: tuple[Decay, Decay] | None = Field(
        default=None,
        strict=False,
        description="Decays of the inner optimizer's two moments, where it has them; its own default when not given.",
    )
    momentum: Decay | None = Field(
        default=None,
        description="Momentum of the inner optimizer, where it takes one; its own default when not given.",
    )
    gradient_clip: Positive | None = Field(default=1.0, description="Clip each local gradient to this norm.")
    update_clip: Positive | None = Field(
        default=None,
        description="Scale each contribution down to this norm at most, as it is sent: with what error feedback adds.",
    )
    precision: Precision = Field(
        default="float32",
        description="Autocast type of the workers; `auto` takes the half type where an accelerator multiplies it "
        "natively.",
    )
    checkpoint_activations: bool = Field(
        default=False,
        description="Keep the inputs of layers alone, and compute the rest again for the gradient, which is the same: "
        "less memory, a third more time.",
    )
    compile: Literal["never", "auto"] = Field(
        default="never",
        description="Compile the model where the worker's machine can (auto). Kernels of different machines round "
        "differently, which counts where work is repeated on other machines.",
    )
    offload_optimizer: bool = Field(
        default=False,
        description="Keep an accelerator's moments and master weights in main memory, and take the optimizer's "
        "steps there: with AdamW 8 bytes a parameter of the device's memory instead of 16. CPUs do so anyway.",
    )
    stop_early: StopEarlySection | None = Field(
        default=None,
        description="End the run once the held-out loss no longer falls (evaluation.times sets how often).",
    )
    adapter: AdapterSection | None = Field(
        default=None,
        description="Train adapters beside the model's layers, and send them alone; the model itself stays as it is.",
    )
    train: PartSection | None = Field(
        default=None, description="Train some layers of the model, and send them alone; the others stay as they are."
    )

    @property
    def step_rows(self) -> int:
        """Return the rows of a local step: `batch_size`, or the usual number before a plan has chosen one."""
        return USUAL_BATCH if self.batch_size == "auto" else self.batch_size


class RunFile(Section):
    """The run file with all its sections."""

    run: Run = Field(default_factory=lambda: Run())
    model: Model
    data: Annotated[TextData | ChatData | InstructData | SatData | RowsData | SiteData, Field(discriminator="kind")]
    controller: ControllerSection = Field(default_factory=lambda: ControllerSection())
    workers: Annotated[list[WorkerSection], Field(max_length=10_000)] = Field(
        default_factory=list, description="The local workers; `train` needs at least one, `serve` starts none."
    )
    training: TrainingSection = Field(default_factory=lambda: TrainingSection())
    exchange: ExchangeSection = Field(default_factory=lambda: ExchangeSection())
    aggregation: AggregationSection = Field(default_factory=lambda: AggregationSection())
    staleness: StalenessSection = Field(default_factory=lambda: StalenessSection())
    trust: TrustSection = Field(default_factory=lambda: TrustSection())
    privacy: PrivacySection = Field(default_factory=lambda: PrivacySection())
    evaluation: EvaluationSection = Field(default_factory=lambda: EvaluationSection())
    network: NetworkSection = Field(default_factory=lambda: NetworkSection())
    dashboard: DashboardSection = Field(default_factory=lambda: DashboardSection())
    alerts: AlertsSection = Field(default_factory=lambda: AlertsSection())
    tracing: TracingSection = Field(default_factory=lambda: TracingSection())
    faults: Annotated[list[FaultSection], Field(max_length=1000)] = Field(
        default_factory=list, description="Trials: the faults, the nodes that join, and their times."
    )
