"""The sections of a run file about participants and trials: workers, attacks, links, faults."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from barnraise.config.section import Section
from barnraise.config.site_sections import OwnFilesSection
from barnraise.config.values import (
    MAX_COUNT,
    AttackKind,
    Bytes,
    Device,
    FaultKind,
    LinkText,
    Loss,
    Milliseconds,
    Name,
    NotNegative,
    Positive,
    Precision,
    Share,
)


class AttackSection(Section):
    """The attack of a worker, for trials: the keys beside `kind` are that attack's options."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"x-expected": "a section with the `kind` of an attack and its options"}
    )

    kind: AttackKind = Field(description="The name of the attack.")


class WorkerSection(Section):
    """One local worker of the run.

    Values of a machine (memory, operations, bandwidth, latency) are for simulation and matching; a live worker measures
    its own.
    """

    name: Name = Field(description="The node's name in the run.")
    speed: Positive = Field(
        default=1.0, description="Relative speed, for trials: the fastest local worker is not throttled."
    )
    device: Device = Field(default="cpu", description="A torch device.")
    threads: int = Field(default=1, ge=1, le=1024, description="Compute threads of this worker.")
    precision: Precision | None = Field(
        default=None, description="Autocast type of this worker, where its device is slow with training.precision's."
    )
    data: OwnFilesSection | None = Field(
        default=None, description="This worker's own files, where `data.kind` is site: it trains on them alone."
    )
    memory_bytes: Bytes | None = Field(default=None, description="Memory of the simulated machine, in bytes.")
    flops_per_second: Positive | None = Field(
        default=None, description="Floating-point operations a second that the simulated machine sustains."
    )
    bandwidth_bytes_per_second: Positive | None = Field(
        default=None,
        description="Bytes a second that the simulated link carries each way, instead of network.profile's.",
    )
    latency_seconds: NotNegative | None = Field(
        default=None, description="Seconds one way on the simulated link, instead of network.profile's."
    )
    link: LinkText | None = Field(
        default=None,
        description="This worker's link instead of the network section's: a preset, or figures as there.",
    )
    attack: AttackSection | None = Field(
        default=None,
        description="The attack that this worker plays, for trials; not where work is only costed.",
    )


class NetworkSection(Section):
    """Emulated links, for trials: of simulated nodes, of `train`'s local workers, of `lab`'s namespaces.

    Each worker has a link of its own to the controller. Its parameters replace the profile's, both ways.
    """

    profile: LinkText = Field(
        default="none",
        description="A preset, or figures as in `10mbit/50ms` (rate, or up and down; delay one way, jitter; loss in %) "
        "or both, as in `PRESET/1%`.",
    )
    rate_mbps: Annotated[float, Field(ge=0.001, le=100_000)] | None = Field(default=None, description="Rate in Mbit/s.")
    delay_ms: Milliseconds | None = Field(default=None, description="Delay one way, in ms.")
    jitter_ms: Milliseconds | None = Field(
        default=None, description="Each packet or message takes up to this much longer, in ms."
    )
    loss: Loss | None = Field(default=None, description="Probability that a packet is lost.")
    duplication: Loss | None = Field(
        default=None, description="Probability that a small message (in a lab: a packet) arrives twice."
    )
    brownout_every: Positive | None = Field(default=None, description="Seconds from one brown-out to the next.")
    brownout_seconds: Positive | None = Field(default=None, description="Seconds for which nothing passes.")
    small_delay_ms: Milliseconds | None = Field(
        default=None,
        description="Delay of small messages (heartbeats, requests, answers) where it is another one; not in a lab.",
    )
    small_jitter_ms: Milliseconds | None = Field(default=None, description="The same of jitter.")
    small_loss: Loss | None = Field(default=None, description="The same of loss.")
    controller_link: LinkText | None = Field(
        default=None,
        description="The controller's own link in a lab, without limit by default, and in simulations, where its rates "
        "alone count, 1gbit by default: a preset, or figures.",
    )


class FaultSection(Section):
    """A trial: a fault happens, or a worker joins, at `at`, `at_seconds` or `at_decisions`: one of them.

    `do` is one of the [kinds](#kinds-of-faults), and the other keys are its operands. `{at: 0.5, kill: slow}` is short
    for `{at: 0.5, do: kill, node: slow}`, and where there is `join`, `do` may be left out, too.
    """

    at: Share | None = Field(default=None, description="Share of the token budget (of the time, with `--hours`).")
    at_seconds: NotNegative | None = Field(default=None, description="Seconds since the start.")
    at_decisions: Annotated[int, Field(ge=1, le=MAX_COUNT)] | None = Field(
        default=None, description="How many decisions are journaled; for the controller's death."
    )
    do: FaultKind | None = Field(default=None, description="The kind of the fault.")
    node: Name | None = Field(default=None, description="The node that the fault strikes.")
    nodes: Annotated[list[Name], Field(min_length=1, max_length=10_000)] | None = Field(
        default=None,
        description="The nodes, where they are several. A fault of links strikes all links when no node is given.",
    )
    seconds: Positive | None = Field(default=None, description="How long it lasts, or how long a notice is.")
    by_seconds: Positive | None = Field(
        default=None, description="Seconds by which a clock jumps, or by which a commit takes longer."
    )
    share: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="Probability that it happens to a message."
    )
    way: Literal["up", "down"] | None = Field(
        default=None, description="The direction of the messages: to the controller, or from it."
    )
    seed: Annotated[int, Field(ge=0, lt=2**31)] | None = Field(
        default=None,
        description="Seed of its random choices; derived from run.seed and its place in the list when not given.",
    )
    kill: Name | None = Field(default=None, description="The node to kill.")
    join: WorkerSection | None = Field(default=None, description="The node that joins.")
